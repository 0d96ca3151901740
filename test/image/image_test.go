// Package image asks what is in the images that prod/image builds.
package image

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/json"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// imagesVariable and relayVariable name the archives of the images of weave-npc and of the relay to look at, with
// spaces between. "make image" and "make relay-image" set them.
const (
	imagesVariable = "WEAVE_NPC_TEST_IMAGES"
	relayVariable  = "WEAVE_NPC_TEST_RELAY_IMAGES"
)

// machines are the machines of architectures.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// image is an image as its archive has it.
type image struct {
	config struct {
		Architecture, OS string
		Config           struct {
			Entrypoint []string
			User       string
			Env        []string
			Labels     map[string]string
		}
	}
	files map[string][]byte // path -> content, of regular files
	links map[string]string // path -> path that it leads to
	dirs  map[string]bool
	modes map[string]os.FileMode
}

// open reads the archives that are to be looked at, which a variable names and a target of make builds.
func open(t *testing.T, variable, target string) map[string]*image {
	t.Helper()
	names := strings.Fields(os.Getenv(variable))
	if len(names) == 0 {
		t.Skipf("$%s names no image: make %s builds some and looks at them", variable, target)
	}
	all := map[string]*image{}
	for _, name := range names {
		all[path.Base(name)] = read(t, name)
	}
	return all
}

// read reads an archive (docker-archive: a manifest, a configuration, layers).
func read(t *testing.T, name string) *image {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	outer := &image{}
	outer.unpack(t, text)
	var manifest []struct {
		Config string
		Layers []string
	}
	if err := json.Unmarshal(outer.files["manifest.json"], &manifest); err != nil || len(manifest) != 1 {
		t.Fatalf("%s has no manifest of one image: %v", name, err)
	}
	i := &image{}
	if err := json.Unmarshal(outer.files[manifest[0].Config], &i.config); err != nil {
		t.Fatal(err)
	}
	for _, layer := range manifest[0].Layers {
		i.unpack(t, outer.file(t, layer))
	}
	return i
}

// unpack adds what is in a tar archive.
func (i *image) unpack(t *testing.T, text []byte) {
	t.Helper()
	if i.files == nil {
		i.files, i.links, i.dirs, i.modes = map[string][]byte{}, map[string]string{}, map[string]bool{}, map[string]os.FileMode{}
	}
	for r := tar.NewReader(bytes.NewReader(text)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		name := path.Clean(h.Name)
		switch h.Typeflag {
		case tar.TypeReg:
			if i.files[name], err = io.ReadAll(r); err != nil {
				t.Fatal(err)
			}
			i.modes[name] = h.FileInfo().Mode()
		case tar.TypeSymlink:
			i.links[name] = path.Join(path.Dir(name), h.Linkname)
		case tar.TypeLink:
			i.links[name] = path.Clean(h.Linkname)
		case tar.TypeDir:
			i.dirs[name] = true
		}
	}
}

// file returns the content of a file, links followed; it fails if there is none.
func (i *image) file(t *testing.T, name string) []byte {
	t.Helper()
	at := name
	for range 5 {
		if text, ok := i.files[at]; ok {
			return text
		}
		at = i.links[at]
	}
	t.Fatalf("there is no %s", name)
	return nil
}

func TestProgramsAreThere(t *testing.T) {
	for name, i := range open(t, imagesVariable, "image") {
		t.Run(name, func(t *testing.T) {
			for _, family := range []string{"iptables", "ip6tables"} {
				for _, backend := range []string{"nft", "legacy"} {
					for _, program := range []string{"", "-save", "-restore"} {
						i.file(t, "usr/sbin/"+family+"-"+backend+program)
					}
				}
			}
			i.file(t, "usr/sbin/ipset")
			i.file(t, "usr/sbin/ulogd")
			if want := []string{"/usr/bin/weave-npc"}; !slices.Equal(i.config.Config.Entrypoint, want) {
				t.Errorf("%v is run", i.config.Config.Entrypoint)
			}
			i.file(t, "usr/bin/weave-npc")
			i.checkLabels(t)
		})
	}
}

// checkLabels checks that the image says what it is.
func (i *image) checkLabels(t *testing.T) {
	t.Helper()
	for _, label := range []string{"title", "description", "licenses", "source"} {
		if i.config.Config.Labels["org.opencontainers.image."+label] == "" {
			t.Errorf("there is no label %s", label)
		}
	}
}

// TestNoShell asks for shells, for what would need one, and for what gives more rights to who runs it.
func TestNoShell(t *testing.T) {
	shells := regexp.MustCompile(`^(ba|da|a|z|k|c|tc)?sh$|^busybox$|^perl|^python|^env$|^apt|^dpkg`)
	for name, i := range open(t, imagesVariable, "image") {
		t.Run(name, func(t *testing.T) {
			for file, text := range i.files {
				if bytes.HasPrefix(text, []byte("#!")) {
					t.Errorf("%s is a script", file)
				}
				if i.modes[file]&(os.ModeSetuid|os.ModeSetgid) != 0 {
					t.Errorf("%s gives rights", file)
				}
				if i.modes[file]&0o111 != 0 && shells.MatchString(path.Base(file)) {
					t.Errorf("%s is a shell", file)
				}
			}
			for link := range i.links {
				if shells.MatchString(path.Base(link)) {
					t.Errorf("%s is a shell", link)
				}
			}
		})
	}
}

// TestLibrariesAreThere follows every program and library to what it has to be linked with.
func TestLibrariesAreThere(t *testing.T) {
	for name, i := range open(t, imagesVariable, "image") {
		t.Run(name, func(t *testing.T) {
			there := map[string]bool{}
			for _, files := range []map[string]bool{keys(i.files), keys(i.links)} {
				for file := range files {
					if regexp.MustCompile(`^(usr/)?lib(64)?/([a-z0-9_]+-linux-gnu/)?[^/]+$`).MatchString(file) {
						there[path.Base(file)] = true
					}
				}
			}
			linked := 0
			for file, text := range i.files {
				e, err := elf.NewFile(bytes.NewReader(text))
				if err != nil {
					continue
				}
				if e.Machine != machines[i.config.Architecture] {
					t.Errorf("%s is of %s in an image of %s", file, e.Machine, i.config.Architecture)
				}
				libraries, err := e.ImportedLibraries()
				if err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				for _, l := range libraries {
					linked++
					if !there[l] {
						t.Errorf("%s needs %s, which is not there", file, l)
					}
				}
				if file == "usr/bin/weave-npc" && len(libraries) > 0 {
					t.Errorf("%s needs %v", file, libraries)
				}
			}
			if linked == 0 {
				t.Error("no program was found that is linked with a library")
			}
		})
	}
}

func keys[V any](m map[string]V) map[string]bool {
	all := map[string]bool{}
	for k := range m {
		all[k] = true
	}
	return all
}

// bill returns the packages of Debian and the modules that the image says it consists of, with their versions.
func (i *image) bill(t *testing.T, program string) (packages, modules map[string]string) {
	t.Helper()
	var bill struct {
		SPDXVersion string
		Packages    []struct {
			SPDXID, Name, VersionInfo string
		}
	}
	if err := json.Unmarshal(i.file(t, "usr/share/sbom/"+program+".spdx.json"), &bill); err != nil {
		t.Fatal(err)
	}
	packages, modules = map[string]string{}, map[string]string{}
	seen := map[string]bool{}
	for _, p := range bill.Packages {
		if seen[p.SPDXID] {
			t.Errorf("%s is there twice", p.SPDXID)
		}
		seen[p.SPDXID] = true
		if strings.HasPrefix(p.SPDXID, "SPDXRef-deb-") {
			packages[p.Name] = p.VersionInfo
		} else {
			modules[p.Name] = p.VersionInfo
		}
	}
	return packages, modules
}

// TestBillOfMaterials checks that it names each installed package of Debian, in its version, and the modules of the
// binary.
func TestBillOfMaterials(t *testing.T) {
	for name, i := range open(t, imagesVariable, "image") {
		t.Run(name, func(t *testing.T) {
			got, modules := i.bill(t, "weave-npc")
			want := map[string]string{}
			version := regexp.MustCompile(`(?m)^Version: (.*)$`)
			for file, text := range i.files {
				if dir, name := path.Split(file); dir == "var/lib/dpkg/status.d/" {
					want[name] = string(version.FindSubmatch(text)[1])
					doc := "usr/share/doc/" + name
					if to, ok := i.links[doc]; ok {
						doc = to
					}
					i.file(t, doc+"/copyright")
				}
			}
			if len(want) == 0 {
				t.Error("no package of Debian is there")
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("packages of Debian (-want +got):\n%s", d)
			}
			for _, m := range []string{"github.com/weave-npc/weave-npc", "stdlib", "k8s.io/client-go"} {
				if modules[m] == "" {
					t.Errorf("%s is not named", m)
				}
			}
		})
	}
}
