package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	// netnsDir is where `ip netns` looks for namespaces.
	netnsDir = "/run/netns"
	// netnsPrefix begins the names of the namespaces that a lab makes.
	netnsPrefix = "wnpc-"
)

// prepareNetnsDir makes netnsDir a mount point of its own, as `ip netns add` does. If another process did it later, it
// would hide these mounts.
func prepareNetnsDir() error {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return errors.Wrapf(err, "making %s", netnsDir)
	}
	err := unix.Mount("", netnsDir, "none", unix.MS_SHARED|unix.MS_REC, "")
	if !errors.Is(err, unix.EINVAL) {
		return errors.Wrapf(err, "sharing the mount point %s", netnsDir)
	}
	if err := unix.Mount(netnsDir, netnsDir, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return errors.Wrapf(err, "making %s a mount point", netnsDir)
	}
	err = unix.Mount("", netnsDir, "none", unix.MS_SHARED|unix.MS_REC, "")
	return errors.Wrapf(err, "sharing the mount point %s", netnsDir)
}

// createNamespace makes a network namespace for a host and returns its name below netnsDir.
func (r *run) createNamespace(host string) (string, error) {
	made, err := making()
	if err != nil {
		return "", err
	}
	defer made.Close()
	name, err := r.reserve(host)
	if err != nil {
		return "", err
	}
	result := make(chan error, 1)
	onOwnThread(func() { result <- mountNewNamespace(filepath.Join(netnsDir, name)) })
	if err := <-result; err != nil {
		_ = removeNamespaces(name)
		return "", err
	}
	return name, nil
}

// reserve makes the file that a namespace is mounted over. Hosts' names may be longer than what a file's may be.
func (r *run) reserve(host string) (string, error) {
	const longest = 80
	stem := netnsPrefix + r.id + "-" + strings.ReplaceAll(host, "/", ".")
	if len(stem) > longest {
		stem = stem[:longest]
	}
	for i := 1; ; i++ {
		name := stem
		if i > 1 {
			name = fmt.Sprintf("%s-%d", stem, i)
		}
		f, err := os.OpenFile(filepath.Join(netnsDir, name), os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return "", errors.Wrapf(err, "making %s/%s", netnsDir, name)
		}
		return name, errors.Wrapf(f.Close(), "making %s/%s", netnsDir, name)
	}
}

func mountNewNamespace(path string) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return errors.Wrap(err, "unsharing the network namespace")
	}
	err := unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), path, "none", unix.MS_BIND, "")
	return errors.Wrapf(err, "mounting a network namespace at %s", path)
}

// enterNamespace moves the calling thread, which must end afterwards, into a namespace.
func enterNamespace(name string) error {
	handle, err := netns.GetFromPath(filepath.Join(netnsDir, name))
	if err != nil {
		return errors.Wrapf(err, "opening %s/%s", netnsDir, name)
	}
	defer handle.Close()
	return errors.Wrapf(netns.Set(handle), "entering network namespace %s", name)
}

// removeNamespaces ends the processes that still run in namespaces and removes these. One that is gone is no error. It
// goes on after a failure and returns the first.
func removeNamespaces(names ...string) error {
	first := killInside(names)
	for _, name := range names {
		path := filepath.Join(netnsDir, name)
		// A process that is being made this instant may hold the mount for a moment: detach it.
		err := unix.Unmount(path, unix.MNT_DETACH)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			err = nil // nothing is mounted there
		}
		err = errors.Wrapf(err, "unmounting %s", path)
		if removed := os.Remove(path); err == nil && removed != nil && !errors.Is(removed, os.ErrNotExist) {
			err = errors.Wrapf(removed, "removing %s", path)
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// killInside kills the processes, other than this one, that are in one of the namespaces.
func killInside(names []string) error {
	inside := map[unix.Stat_t]bool{}
	for _, name := range names {
		if id, err := inode(filepath.Join(netnsDir, name)); err == nil {
			inside[id] = true
		}
	}
	own, err := inode("/proc/self/ns/net")
	if err != nil {
		return errors.Wrap(err, "looking at this process's network namespace")
	}
	delete(inside, own)
	processes, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return errors.Wrap(err, "listing processes")
	}
	for _, process := range processes {
		// A process that cannot be looked at has ended, or is none that a network started.
		if id, err := inode(process); err != nil || !inside[id] {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(process, "/proc/%d/", &pid); err != nil {
			return errors.Wrapf(err, "reading %s", process)
		}
		if pid == os.Getpid() {
			continue
		}
		if err := killAndWait(pid); err != nil {
			return err
		}
	}
	return nil
}

// inode identifies the file behind a path: nothing but device and number are set.
func inode(path string) (unix.Stat_t, error) {
	var status unix.Stat_t
	err := unix.Stat(path, &status)
	return unix.Stat_t{Dev: status.Dev, Ino: status.Ino}, err
}
