package release

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// krew has the fields of krew's manifests that ours uses. Other fields, also misspelt ones, are an error.
type krew struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Spec       struct {
		Version, Homepage, Description, Caveats string
		ShortDescription                        string `yaml:"shortDescription"`
		Platforms                               []platform
	}
}

// platform says where the archive for a system is.
type platform struct {
	Selector struct {
		MatchLabels struct{ OS, Arch string } `yaml:"matchLabels"`
	}
	URI, Sha256, Bin string
}

// system returns what the archive of a platform is for, as its name has it.
func (p platform) system() string {
	return p.Selector.MatchLabels.OS + "_" + p.Selector.MatchLabels.Arch
}

// readKrew reads a manifest and checks it by the rules that krew documents for its index.
func readKrew(t *testing.T, text []byte) krew {
	t.Helper()
	var m krew
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&m); err != nil {
		t.Fatal(err)
	}
	if m.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || m.Kind != "Plugin" || m.Metadata.Name != "npc" {
		t.Errorf("it is of a %s %s called %s", m.APIVersion, m.Kind, m.Metadata.Name)
	}
	if !regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`).MatchString(m.Spec.Version) {
		t.Errorf("its version is %q", m.Spec.Version)
	}
	short := m.Spec.ShortDescription
	if short == "" || len(short) > 50 || strings.ContainsAny(short, "\n.") || m.Spec.Description == "" || !strings.HasPrefix(m.Spec.Homepage, "https://") {
		t.Errorf("its descriptions or its homepage: %+v", m.Spec)
	}
	seen := map[string]bool{}
	for _, p := range m.Spec.Platforms {
		archive, program := ".tar.gz", "kubectl-npc"
		if p.Selector.MatchLabels.OS == "windows" {
			archive, program = ".zip", "kubectl-npc.exe"
		}
		uri := m.Spec.Homepage + "/releases/download/" + m.Spec.Version + "/kubectl-npc_" + p.system() + archive
		if p.URI != uri || p.Bin != program || !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(p.Sha256) {
			t.Errorf("%s: %+v, its archive is %s", p.system(), p, uri)
		}
		if seen[p.system()] || seen[p.Sha256] {
			t.Errorf("%s is there twice, or its sum", p.system())
		}
		seen[p.system()], seen[p.Sha256] = true, true
	}
	for _, s := range systems() {
		if !seen[s] {
			t.Errorf("%s is missing", s)
		}
	}
	return m
}

// systems are those that the plug-in is for.
func systems() []string {
	return []string{"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64", "windows_amd64", "windows_arm64"}
}

// TestKrewManifest checks the manifest before prod/release has filled it in.
func TestKrewManifest(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(top, "prod", "krew", "npc.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	filled := strings.ReplaceAll(string(text), "VERSION", "v1.2.3")
	for i, s := range systems() {
		filled = strings.Replace(filled, "SHA256_"+s, strings.Repeat(string(rune('a'+i)), 64), 1)
	}
	readKrew(t, []byte(filled))
}
