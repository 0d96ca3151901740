package ulogd

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"
)

// installation holds the paths of ulogd2 and its plug-ins.
type installation struct {
	binary  string
	plugins []string
}

// pluginPathMax is below the maximum length of a value in ulogd2's configuration.
const pluginPathMax = 200

// pluginNames returns the plug-ins of the configured stacks: input, filter, header parsing (pcap output needs lengths),
// output.
func pluginNames() []string {
	return []string{"ulogd_inppkt_NFLOG.so", "ulogd_filter_MARK.so", "ulogd_raw2packet_BASE.so", "ulogd_output_PCAP.so"}
}

// findInstallation returns the paths of ulogd2 and its plug-ins: those of c, or those found in the file system below
// root. Its error names what is missing.
func findInstallation(c Config, root string) (installation, error) {
	binary, err := findBinary(c.Binary, root)
	if err != nil {
		return installation{}, err
	}
	dirs := []string{c.PluginDir}
	if c.PluginDir == "" {
		// Debian and Ubuntu, with the architecture; Alpine; Fedora; built from source.
		patterns := []string{"/usr/lib/*/ulogd", "/usr/lib/ulogd", "/usr/lib64/ulogd", "/usr/local/lib/ulogd"}
		dirs = nil
		for _, pattern := range patterns {
			found, err := filepath.Glob(filepath.Join(root, pattern))
			if err != nil {
				return installation{}, errors.Wrapf(err, "looking for %s", pattern)
			}
			dirs = append(dirs, found...)
		}
	}
	missing := errors.New("no directory with ulogd2's plug-ins")
	for _, dir := range dirs {
		plugins, err := findPlugins(dir)
		if err == nil {
			return installation{binary: binary, plugins: plugins}, nil
		}
		missing = err
	}
	return installation{}, missing
}

func findBinary(name, root string) (string, error) {
	names := []string{name}
	if name == "" {
		names = []string{"ulogd"}
		for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/sbin", "/usr/bin"} {
			names = append(names, filepath.Join(root, dir, "ulogd"))
		}
	}
	var first error
	for _, n := range names {
		path, err := exec.LookPath(n)
		if err == nil {
			return path, nil
		}
		if first == nil {
			first = err
		}
	}
	return "", errors.Wrap(first, "looking for ulogd2")
}

func findPlugins(dir string) ([]string, error) {
	if strings.ContainsAny(dir, "\"\r\n") || len(dir) > pluginPathMax {
		return nil, errors.Errorf("plug-in directory %q cannot be written into ulogd2's configuration", dir)
	}
	var paths []string
	for _, name := range pluginNames() {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err != nil {
			return nil, errors.Wrap(err, "looking for ulogd2's plug-ins")
		}
		paths = append(paths, path)
	}
	return paths, nil
}
