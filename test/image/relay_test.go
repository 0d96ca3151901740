package image

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"maps"
	"path"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRelayIsAlone in its image, for the machine that the image is for and linked with nothing, and runs without
// rights.
func TestRelayIsAlone(t *testing.T) {
	const program = "usr/bin/weave-npc-relay"
	for name, i := range open(t, relayVariable, "relay-image") {
		t.Run(name, func(t *testing.T) {
			want := []string{program, "usr/share/sbom/weave-npc-relay.spdx.json"}
			if diff := cmp.Diff(want, slices.Sorted(maps.Keys(i.files))); diff != "" || len(i.links) > 0 {
				t.Errorf("files (-want +got):\n%s, links %v", diff, i.links)
			}
			c := i.config.Config
			if !slices.Equal(c.Entrypoint, []string{"/" + program}) || c.User != "65532:65532" || i.modes[program]&0o005 != 0o005 {
				t.Errorf("%v is run by %q, and is of mode %s", c.Entrypoint, c.User, i.modes[program])
			}
			i.checkLabels(t)
			text := i.file(t, program)
			e, err := elf.NewFile(bytes.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			libraries, err := e.ImportedLibraries()
			if err != nil || len(libraries) > 0 {
				t.Errorf("it needs %v, %v", libraries, err)
			}
			if machine := machines[i.config.Architecture]; e.Machine != machine || i.config.OS != "linux" {
				t.Errorf("it is of %s in an image of %s/%s", e.Machine, i.config.OS, i.config.Architecture)
			}
		})
	}
}

// TestRelayBillOfMaterials asks whether it names each module of the binary, in its version, and that of weave-npc in
// the binary's own.
func TestRelayBillOfMaterials(t *testing.T) {
	for name, i := range open(t, relayVariable, "relay-image") {
		t.Run(name, func(t *testing.T) {
			built, err := buildinfo.Read(bytes.NewReader(i.file(t, "usr/bin/weave-npc-relay")))
			if err != nil {
				t.Fatal(err)
			}
			own := path.Dir(path.Dir(built.Main.Path))
			want := map[string]string{built.Main.Path: built.Main.Version, "stdlib": built.GoVersion[len("go"):]}
			for _, m := range built.Deps {
				want[m.Path] = m.Version
			}
			if want[own] == "" || want["k8s.io/apiserver"] == "" {
				t.Errorf("it was not built of %s and k8s.io/apiserver", own)
			}
			want[own] = built.Main.Version
			packages, modules := i.bill(t, "weave-npc-relay")
			if diff := cmp.Diff(want, modules); diff != "" || len(packages) > 0 {
				t.Errorf("modules (-want +got):\n%s, packages %v", diff, packages)
			}
		})
	}
}
