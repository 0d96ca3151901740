package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// kernel is an unpacked kernel of Debian's: DIR/vmlinuz, DIR/lib/modules/VERSION.
type kernel struct{ dir, version string }

func (k kernel) image() string   { return filepath.Join(k.dir, "vmlinuz") }
func (k kernel) modules() string { return filepath.Join(k.dir, "lib", "modules") }

// kernel returns a kernel, which it takes from apt if it is not in the cache.
func (h host) kernel(ctx context.Context, name string) (kernel, error) {
	k := kernel{dir: filepath.Join(h.cache, name)}
	if err := os.MkdirAll(h.cache, 0o755); err != nil {
		return k, err
	}
	lock, err := os.OpenFile(filepath.Join(h.cache, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return k, err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return k, err
	}
	if _, err := os.Stat(k.image()); errors.Is(err, os.ErrNotExist) {
		if err := fetch(ctx, name, k.dir); err != nil {
			return k, fmt.Errorf("fetching kernel %s: %w", name, err)
		}
	}
	versions, err := filepath.Glob(filepath.Join(k.modules(), "*"))
	if err != nil || len(versions) != 1 {
		return k, fmt.Errorf("%s has the modules of %d kernels", k.dir, len(versions))
	}
	k.version = filepath.Base(versions[0])
	return k, nil
}

// fetch unpacks a kernel into a directory. Its modules are not compressed there, which a slow machine would notice.
func fetch(ctx context.Context, name, dir string) error {
	image, err := imagePackage(ctx, name)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "kernels: fetching", image)
	parts := dir + ".new"
	if err := os.RemoveAll(parts); err != nil { // of a run that was killed
		return err
	}
	defer os.RemoveAll(parts)
	if err := os.Mkdir(parts, 0o755); err != nil {
		return err
	}
	const script = `apt-get -q -o APT::Sandbox::User=root download "$0"
dpkg-deb -x "$0"_*.deb root
mv root/boot/vmlinuz-* root/vmlinuz
[ -d root/lib/modules ] || mv root/usr/lib root/lib
find root/lib/modules -name '*.ko.xz' -print0 | xargs -0 -r xz -d
depmod -b root "$(ls root/lib/modules)"
rm -rf root/boot root/usr`
	cmd := exec.CommandContext(ctx, "sh", "-euc", script, image)
	cmd.Dir = parts
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return os.Rename(filepath.Join(parts, "root"), dir)
}

// imagePackage returns the package with the newest kernel of a series and a flavour, such as 6.12-cloud. The series that
// a release of Debian began with has no package that names it.
func imagePackage(ctx context.Context, name string) (string, error) {
	series, flavour, ok := strings.Cut(name, "-")
	if ok {
		flavour += "-"
	}
	for _, of := range []string{series + "-" + flavour, flavour} {
		about, err := exec.CommandContext(ctx, "apt-cache", "show", "--no-all-versions", "linux-image-"+of+"amd64").Output()
		if err != nil {
			continue // there is none
		}
		if image := imageOf(string(about), series); image != "" {
			return image, nil
		}
	}
	return "", fmt.Errorf("apt has no kernel %s (is its list of packages empty: apt-get update?)", name)
}

var depends = regexp.MustCompile(`(?m)^Depends:.*?\b(linux-image-\d[^ ,]*)`)

// imageOf returns which package another one stands for, as apt-cache shows it; empty if it is of another series.
func imageOf(about, series string) string {
	m := depends.FindStringSubmatch(about)
	if m == nil || !strings.Contains("\n"+about, "\nVersion: "+series+".") {
		return ""
	}
	return m[1]
}
