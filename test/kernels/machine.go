package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// job is what the first process of a machine has to do.
type job struct {
	Command []string
	Dir     string
	Env     []string
	Modules string   // where all modules of the kernel are
	Load    []string // files of modules to load first
}

// memory is what a machine has. What its programs write is in it, and only what is used is taken.
const memory = "4G"

// boot runs a command under a kernel, writes what it prints and returns its status. Everything goes through descriptors, so that nothing
// is left if this process is killed.
func (h host) boot(ctx context.Context, name string, j job, out io.Writer) (int, error) {
	k, err := h.kernel(ctx, name)
	if err != nil {
		return 0, err
	}
	j.Modules = k.modules()
	content, err := initrd(k, j)
	if err != nil {
		return 0, err
	}
	ram, err := inMemory(content)
	if err != nil {
		return 0, err
	}
	defer ram.Close()
	ctx, cancel := context.WithTimeout(ctx, h.limit)
	defer cancel()
	var said, status, console bytes.Buffer
	files, err := share(ctx)
	if err != nil {
		return 0, fmt.Errorf("sharing the root file system: %w", err)
	}
	defer files.Close()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", h.arguments(k)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	cmd.ExtraFiles = []*os.File{ram, files}
	cmd.Stdout, cmd.Stderr = &said, &said
	var readers sync.WaitGroup
	for _, to := range []io.Writer{out, &status, &console} {
		r, w, err := os.Pipe()
		if err != nil {
			return 0, err
		}
		defer r.Close()
		defer w.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, w)
		readers.Go(func() { _, _ = io.Copy(to, r) }) // what is missing shows in the status
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	for _, w := range cmd.ExtraFiles {
		w.Close()
	}
	err = cmd.Wait()
	readers.Wait()
	code, unended := strconv.Atoi(strings.TrimSpace(status.String()))
	if unended != nil {
		return 0, fmt.Errorf("kernel %s did not run the command to its end: %w\n%s%s", k.version,
			errors.Join(context.Cause(ctx), err), said.Bytes(), lastOf(console.Bytes()))
	}
	return code, nil
}

// share has a process serve the root file system, read-only, to who is connected to the descriptor, until that is
// closed or the context ends.
func share(ctx context.Context) (*os.File, error) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@", Net: "unix"}) // the kernel selects a name
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	connect, err := listener.File()
	if err != nil {
		return nil, err
	}
	defer connect.Close()
	cmd := exec.CommandContext(ctx, "sh", "-euc", `mount --make-rprivate /
mount -o remount,bind,ro /
exec /usr/lib/qemu/virtiofsd --fd=3 --thread-pool-size=0 -f -o sandbox=chroot,source=/,cache=always,log_level=err`)
	cmd.ExtraFiles = []*os.File{connect}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Unshareflags: unix.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = cmd.Wait() }() // if it ends early, the machine's console shows that it has no root file system
	conn, err := net.DialUnix("unix", nil, listener.Addr().(*net.UnixAddr))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.File()
}

// arguments returns those of qemu. The initial RAM disk, the root file system, the output, the status and the console
// are descriptors from 3.
func (h host) arguments(k kernel) []string {
	// Nested KVM on AMD offers arch-capabilities, and refuses them.
	processor := []string{"-accel", "kvm", "-cpu", "host,-arch-capabilities", "-smp", strconv.Itoa(processors())}
	if h.simulated != "" {
		// The clock counts instructions, of two nanoseconds each: no timeout ends earlier if this machine is busy. The
		// model is without what is slow to simulate.
		processor = []string{"-accel", "tcg", "-cpu", "max,-la57,-pku", "-icount", "shift=1", "-rtc", "clock=vm"}
	}
	args := []string{"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-nic", "none",
		"-machine", "q35,memory-backend=memory", "-m", memory,
		"-object", "memory-backend-memfd,share=on,id=memory,size=" + memory,
		"-kernel", k.image(), "-initrd", "/dev/fd/3",
		"-append", "console=ttyS0 loglevel=4 panic=-1 mitigations=off random.trust_cpu=on no_timer_check net.ifnames=0",
		"-chardev", "socket,id=files,fd=4", "-device", "vhost-user-fs-pci,queue-size=1024,chardev=files,tag=root",
		"-device", "virtio-rng-pci", "-device", "virtio-serial-pci", "-serial", "file:/dev/fd/7"}
	args = append(args, processor...)
	for fd, port := range []string{"out", "status"} {
		args = append(args, "-chardev", fmt.Sprintf("file,id=%s,path=/dev/fd/%d", port, 5+fd),
			"-device", fmt.Sprintf("virtserialport,chardev=%s,name=%s", port, port))
	}
	const quick = "qboot.rom" // does nothing but start a kernel
	if _, err := os.Stat(filepath.Join("/usr/share/qemu", quick)); err == nil {
		args = append(args, "-bios", quick)
	}
	return args
}

// processors returns how many processors this process may use.
func processors() int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return 1
	}
	return set.Count()
}

// inMemory returns a file without a name.
func inMemory(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("initrd", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "initrd")
	_, err = f.Write(content)
	return f, err
}

// lastOf returns the end of what the console of a machine has.
func lastOf(console []byte) []byte { return console[max(0, len(console)-4000):] }
