package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guest is the first process of a machine: it makes the root file system, runs the command and ends the machine.
func guest() {
	if err := serve(); err != nil {
		fmt.Println("kernels:", err) // to the console
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART) // which ends qemu
	select {}
}

func serve() error {
	text, err := os.ReadFile("/job.json")
	if err != nil {
		return err
	}
	var j job
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	for _, name := range j.Load {
		if err := load(filepath.Join("/modules", name)); err != nil {
			return fmt.Errorf("loading %s: %w", name, err)
		}
	}
	if err := enterRoot(); err != nil {
		return err
	}
	if err := furnish(j.Modules); err != nil {
		return err
	}
	out, err := port("out")
	if err != nil {
		return err
	}
	status, err := port("status")
	if err != nil {
		return err
	}
	code, err := execute(j, out)
	if err != nil {
		fmt.Fprintln(out, "kernels:", err)
		code = 127
	}
	_, err = fmt.Fprintln(status, code)
	return err
}

func load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}

// mounted is a file system and where it is mounted.
type mounted struct{ source, target, kind, options string }

func mount(all ...mounted) error {
	for _, m := range all {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.source, m.target, m.kind, 0, m.options); err != nil {
			return fmt.Errorf("mounting %s: %w", m.target, err)
		}
	}
	return nil
}

// enterRoot makes the root file system that of the host, with an overlay in memory for all that is written.
func enterRoot() error {
	err := mount(
		mounted{"root", "/host", "virtiofs", "ro"},
		mounted{"upper", "/upper", "tmpfs", "mode=755,size=75%"})
	if err != nil {
		return err
	}
	for _, dir := range []string{"/upper/u", "/upper/w"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	err = mount(mounted{"root", "/new", "overlay", "lowerdir=/host,upperdir=/upper/u,workdir=/upper/w"})
	if err != nil {
		return err
	}
	if err := os.Chdir("/new"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("entering the root file system: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return os.Chdir("/")
}

// furnish mounts what programs expect, and loads what a node has.
func furnish(modules string) error {
	err := mount(
		mounted{"proc", "/proc", "proc", ""}, mounted{"sysfs", "/sys", "sysfs", ""},
		mounted{"dev", "/dev", "devtmpfs", ""}, mounted{"devpts", "/dev/pts", "devpts", "mode=620,ptmxmode=666,gid=5"},
		mounted{"shm", "/dev/shm", "tmpfs", "mode=1777"}, mounted{"run", "/run", "tmpfs", "mode=755"},
		mounted{"cgroup2", "/sys/fs/cgroup", "cgroup2", ""})
	if err != nil {
		return err
	}
	for name, to := range map[string]string{"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		if err := os.Symlink("/proc/self/"+to, "/dev/"+name); err != nil {
			return err
		}
	}
	if err := os.MkdirAll("/lib/modules", 0o755); err != nil {
		return err
	}
	if err := unix.Mount(modules, "/lib/modules", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting the modules: %w", err)
	}
	const path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for _, words := range []string{"modprobe -a br_netfilter nf_conntrack tun", "ip link set lo up", "hostname machine"} {
		cmd := exec.Command("/bin/sh", "-c", words)
		cmd.Env = []string{path}
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", words, err, said)
		}
	}
	return nil
}

// port opens a port to the host.
func port(name string) (io.Writer, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, path := range names {
		if is, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(is)) == name {
			return os.OpenFile(filepath.Join("/dev", filepath.Base(filepath.Dir(path))), os.O_WRONLY, 0)
		}
	}
	return nil, errors.New("there is no port " + name)
}

// execute runs the command and returns its status. The first process also inherits what others leave.
func execute(j job, out io.Writer) (int, error) {
	for _, e := range j.Env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok {
			if err := os.Setenv("PATH", path); err != nil { // which LookPath reads
				return 0, err
			}
		}
	}
	program, err := exec.LookPath(j.Command[0])
	if err != nil {
		return 0, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	r, w, err := os.Pipe() // the port is opened by one process at a time
	if err != nil {
		return 0, err
	}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(out, r)
		copied <- err
	}()
	pid, err := syscall.ForkExec(program, j.Command, &syscall.ProcAttr{Dir: j.Dir, Env: j.Env,
		Files: []uintptr{null.Fd(), w.Fd(), w.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true}})
	w.Close()
	if err != nil {
		return 0, err
	}
	var status unix.WaitStatus
	for child := 0; child != pid; {
		if child, err = unix.Wait4(-1, &status, 0, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return 0, err
		}
	}
	select { // what the command left running may hold the pipe
	case <-copied:
	case <-time.After(5 * time.Second):
	}
	if status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return status.ExitStatus(), nil
}
