package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// Call is a system call that an intercepted process is about to make.
type Call struct {
	// Process is how the calling program was called, without directories.
	Process string
	// Number is the system call's, of unix.SYS_EXECVE and its like.
	Number int
	// Text is the beginning of what is written, if the call is a write.
	Text string
}

// String names the program and the call.
func (c Call) String() string {
	name, ok := callNames()[c.Number]
	if !ok {
		name = fmt.Sprintf("call %d", c.Number)
	}
	return c.Process + " " + name
}

// callNames returns the names of the calls that are intercepted most; number -> name.
func callNames() map[int]string {
	return map[int]string{
		unix.SYS_EXECVE: "execve", unix.SYS_CLONE: "clone", unix.SYS_CLONE3: "clone3", unix.SYS_KILL: "kill",
		unix.SYS_EXIT_GROUP: "exit_group", unix.SYS_PIDFD_SEND_SIGNAL: "pidfd_send_signal",
		unix.SYS_WAIT4: "wait4", unix.SYS_WAITID: "waitid", unix.SYS_ACCEPT4: "accept4", unix.SYS_LISTEN: "listen",
		unix.SYS_WRITE: "write", unix.SYS_WRITEV: "writev", unix.SYS_SENDTO: "sendto", unix.SYS_SENDMSG: "sendmsg",
		unix.SYS_CONNECT: "connect", unix.SYS_SETSOCKOPT: "setsockopt", unix.SYS_UNLINKAT: "unlinkat",
		unix.SYS_FLOCK: "flock", unix.SYS_IOCTL: "ioctl", unix.SYS_FCHMOD: "fchmod",
	}
}

// passed returns the system calls before which nothing is asked: they read, wait, or change nothing but the caller's
// own memory, threads, signals, descriptors and rights, so that an end before them leaves what an end after them
// leaves. All others are intercepted, also those that are not known here.
func passed() []uint32 {
	// Calls that not all architectures have.
	own := map[string][]uint32{
		"amd64": {
			4 /* stat */, 21 /* access */, 33 /* dup2 */, 89 /* readlink */, 158 /* arch_prctl */, 262, /* newfstatat */
		},
		"arm64": {79 /* newfstatat */},
	}
	return append(own[runtime.GOARCH],
		// reading
		unix.SYS_READ, unix.SYS_READV, unix.SYS_PREAD64, unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_RECVMMSG,
		unix.SYS_OPENAT,
		unix.SYS_FSTAT, unix.SYS_STATX, unix.SYS_LSEEK, unix.SYS_GETDENTS64, unix.SYS_READLINKAT, unix.SYS_FACCESSAT,
		unix.SYS_FACCESSAT2, unix.SYS_FSTATFS, unix.SYS_STATFS, unix.SYS_GETCWD, unix.SYS_GETSOCKOPT,
		unix.SYS_GETSOCKNAME,
		unix.SYS_GETPEERNAME, unix.SYS_GETPID, unix.SYS_GETPPID, unix.SYS_GETTID, unix.SYS_GETUID, unix.SYS_GETEUID,
		unix.SYS_GETGID, unix.SYS_GETEGID, unix.SYS_CAPGET, unix.SYS_UNAME, unix.SYS_SYSINFO, unix.SYS_GETRANDOM,
		unix.SYS_GETRUSAGE, unix.SYS_GETPRIORITY,
		// waiting, and the time
		unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_EPOLL_PWAIT,
		unix.SYS_PPOLL,
		unix.SYS_PSELECT6, unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE, unix.SYS_SCHED_YIELD,
		unix.SYS_RESTART_SYSCALL,
		// memory, threads and signals
		unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MREMAP, unix.SYS_MADVISE, unix.SYS_MINCORE,
		unix.SYS_BRK,
		unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_TGKILL,
		unix.SYS_SET_ROBUST_LIST, unix.SYS_SET_TID_ADDRESS, unix.SYS_RSEQ, unix.SYS_SCHED_GETAFFINITY,
		unix.SYS_MEMBARRIER,
		unix.SYS_EXIT,
		// descriptors
		unix.SYS_CLOSE, unix.SYS_FCNTL, unix.SYS_DUP3, unix.SYS_PIPE2, unix.SYS_SOCKET, unix.SYS_SOCKETPAIR,
		unix.SYS_BIND,
		unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EVENTFD2, unix.SYS_INOTIFY_INIT1,
		unix.SYS_INOTIFY_ADD_WATCH,
		unix.SYS_INOTIFY_RM_WATCH, unix.SYS_MEMFD_CREATE, unix.SYS_PIDFD_OPEN,
		// the process itself
		unix.SYS_PRCTL, unix.SYS_PRLIMIT64, unix.SYS_SETPGID, unix.SYS_SETSID, unix.SYS_CHDIR, unix.SYS_SETUID,
		unix.SYS_SETGID,
		unix.SYS_SETGROUPS, unix.SYS_CAPSET, unix.SYS_SETPRIORITY, unix.SYS_SCHED_SETSCHEDULER,
	)
}

// launcherName is how this program is called when it is to start a command that is intercepted.
const launcherName = "lab-intercepted"

// StartIntercepted starts the command such that before is called, one call at a time, before each system call by which
// the command, or a process that it started, acts on anything but itself. The system call is made when before returns.
// No alarm is set: it would interrupt a call that waits for others to be answered, such as setsockopt, which nothing
// interrupts otherwise. Wait then also waits for the end of all those processes. The program that calls it must run
// Main first of all.
func (c *Cmd) StartIntercepted(before func(Call)) error {
	return c.startFiltered(launcherName, func(n *notification) response {
		before(n.call())
		if n.setsAlarm() {
			return response{id: n.id}
		}
		return n.goOn()
	})
}

// startFiltered starts the command by a launcher, which installs a filter, and answers what that asks.
func (c *Cmd) startFiltered(launcher string, answer func(*notification) response) error {
	c.Args = append([]string{launcher, c.Path}, c.Args...)
	c.Path = "/proc/self/exe"
	if err := c.Start(); err != nil {
		return err
	}
	listener, err := takeListener(c.Process.Pid)
	if err != nil {
		c.kill()
		_ = c.Wait()
		return errors.Wrapf(err, "intercepting %s on host %s", c.Args[1], c.host.name)
	}
	c.answered = make(chan struct{})
	go func() {
		defer close(c.answered)
		answerAll(listener, answer)
	}()
	return nil
}

// launch becomes the command that is to be intercepted, if that is what this process was started for.
func launch() {
	filters := map[string]func() []unix.SockFilter{launcherName: interceptingFilter, clockLauncherName: clockFilter}
	filter, ok := filters[os.Args[0]]
	if !ok {
		return
	}
	runtime.LockOSThread()
	// Go's own signals must not make a call ask twice.
	err := installFilter(filter(), unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
	if err == nil {
		err = unix.Exec(os.Args[1], os.Args[2:], os.Environ())
	}
	launchFailed(os.Args[1], err)
}

func launchFailed(path string, err error) {
	fmt.Fprintf(os.Stderr, "starting %s: %v\n", path, err)
	os.Exit(1)
}

// Instructions of a seccomp filter, which looks at a struct seccomp_data.

// loadData loads four bytes.
func loadData(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// unless skips instructions if a test of what was loaded fails.
func unless(test uint16, k uint32, skip uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, K: k, Jf: skip}
}

func endFilter(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}

// callNumber and firstArgument are where struct seccomp_data has these; of the argument the lower half, on
// little-endian machines.
const callNumber, firstArgument = 0, 16

// interceptingFilter asks before all calls except those of passed.
func interceptingFilter() []unix.SockFilter {
	program := []unix.SockFilter{loadData(callNumber)}
	for _, call := range passed() {
		program = append(program, unless(unix.BPF_JEQ, call, 1), endFilter(unix.SECCOMP_RET_ALLOW))
	}
	return append(program,
		unless(unix.BPF_JEQ, unix.SYS_CLONE, 3), // of a thread, or of a process?
		loadData(firstArgument), unless(unix.BPF_JSET, unix.CLONE_THREAD, 1), endFilter(unix.SECCOMP_RET_ALLOW),
		endFilter(unix.SECCOMP_RET_USER_NOTIF))
}

// installFilter puts the calling thread, and what it becomes and starts, under a filter. With a listener, the next call
// that the filter asks about waits for another process to take the listener out of this process's descriptors.
func installFilter(program []unix.SockFilter, flags uintptr) error {
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&filter)))
	if errno != 0 {
		return errors.Wrap(errno, "installing a seccomp filter (needs Linux 5.19 and root)")
	}
	return nil
}

// takeListener takes a copy of the listener that a process has made, as soon as it has.
func takeListener(pid int) (int, error) {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return 0, errors.Wrapf(err, "opening process %d", pid)
	}
	defer unix.Close(process)
	for alive(pid) {
		if number, ok := findListener(pid); ok {
			fd, err := unix.PidfdGetfd(process, number, 0)
			return fd, errors.Wrapf(err, "taking descriptor %d of process %d", number, pid)
		}
		time.Sleep(time.Millisecond)
	}
	return 0, errors.Errorf("process %d has ended", pid)
}

func findListener(pid int) (fd int, ok bool) {
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return 0, false
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && target == "anon_inode:seccomp notify" {
			_, err := fmt.Sscanf(filepath.Base(link), "%d", &fd)
			return fd, err == nil
		}
	}
	return 0, false
}

// notification is struct seccomp_notif of linux/seccomp.h.
type notification struct {
	id           uint64
	pid, flags   uint32
	number       int32
	architecture uint32
	instruction  uint64
	arguments    [6]uint64
}

// call describes who calls what; without a name it is a process that is dead by now.
func (n *notification) call() Call {
	c := Call{Number: int(n.number)}
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", n.pid))
	name, _, _ := strings.Cut(string(line), "\x00")
	c.Process = filepath.Base(name)
	if n.number == unix.SYS_WRITE {
		text := make([]byte, min(n.arguments[2], 256))
		local := []unix.Iovec{{Base: unsafe.SliceData(text), Len: uint64(len(text))}}
		remote := []unix.RemoteIovec{{Base: uintptr(n.arguments[1]), Len: len(text)}}
		read, _ := unix.ProcessVMReadv(int(n.pid), local, remote, 0)
		c.Text = string(text[:max(read, 0)])
	}
	return c
}

func (n *notification) setsAlarm() bool {
	const alarm = 37 // only amd64 has it
	return n.number == unix.SYS_SETITIMER || n.number == alarm && runtime.GOARCH == "amd64"
}

// response is struct seccomp_notif_resp.
type response struct {
	id    uint64
	value int64
	err   int32
	flags uint32
}

// goOn lets the call happen.
func (n *notification) goOn() response {
	return response{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
}

// answerAll answers system calls, one after the other, until none of the processes that ask is left.
func answerAll(listener int, answer func(*notification) response) {
	defer unix.Close(listener)
	for {
		ready := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, -1); err != nil && err != unix.EINTR {
			return
		}
		if ready[0].Revents&unix.POLLIN == 0 {
			if ready[0].Revents != 0 {
				return // none is left
			}
			continue
		}
		var n notification
		if control(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)) != 0 {
			continue // who asked was killed meanwhile
		}
		r := answer(&n)
		_ = control(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r)) // the same
	}
}

func control(fd int, request uintptr, argument unsafe.Pointer) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(argument))
	return errno
}
