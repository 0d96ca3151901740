package ulogd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFindInstallation in what each distribution's packages install.
func TestFindInstallation(t *testing.T) {
	const arm, amd = "usr/lib/aarch64-linux-gnu/ulogd", "usr/lib/x86_64-linux-gnu/ulogd"
	for _, c := range []struct {
		name     string
		binary   string
		dirs     map[string][]string // directory -> its plug-ins; nil: all
		want     string              // the directory that is found
		wantsErr string
	}{
		{name: "Debian and Ubuntu", binary: "usr/sbin/ulogd", dirs: map[string][]string{amd: nil}, want: amd},
		{name: "Debian on ARM", binary: "usr/sbin/ulogd", dirs: map[string][]string{arm: nil}, want: arm},
		{name: "Alpine", binary: "usr/sbin/ulogd", dirs: map[string][]string{"usr/lib/ulogd": nil}, want: "usr/lib/ulogd"},
		{name: "Fedora", binary: "usr/sbin/ulogd", dirs: map[string][]string{"usr/lib64/ulogd": nil}, want: "usr/lib64/ulogd"},
		{name: "from source", binary: "usr/local/sbin/ulogd", dirs: map[string][]string{"usr/local/lib/ulogd": nil}, want: "usr/local/lib/ulogd"},
		{name: "two architectures, one without the pcap plug-in", binary: "usr/sbin/ulogd",
			dirs: map[string][]string{arm: pluginNames()[:len(pluginNames())-1], amd: nil}, want: amd},
		{name: "without the pcap plug-in", binary: "usr/sbin/ulogd", dirs: map[string][]string{amd: pluginNames()[:len(pluginNames())-1]},
			wantsErr: "ulogd_output_PCAP.so"},
		{name: "without plug-ins", binary: "usr/sbin/ulogd", wantsErr: "no directory with"},
		{name: "without a binary", dirs: map[string][]string{amd: nil}, wantsErr: "looking for ulogd2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			t.Setenv("PATH", filepath.Join(root, "bin"))
			if c.binary != "" {
				touch(t, filepath.Join(root, c.binary))
			}
			for dir, names := range c.dirs {
				if names == nil {
					names = pluginNames()
				}
				for _, name := range names {
					touch(t, filepath.Join(root, dir, name))
				}
			}
			got, err := findInstallation(Config{}, root)
			if c.wantsErr != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantsErr) {
					t.Errorf("found %v, %v; not that there is no %s", got, err, c.wantsErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := installation{binary: filepath.Join(root, c.binary)}
			for _, name := range pluginNames() {
				want.plugins = append(want.plugins, filepath.Join(root, c.want, name))
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(installation{})); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o700); err != nil {
		t.Fatal(err)
	}
}
