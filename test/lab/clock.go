package lab

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// clockLauncherName is how this program is called when it is to start a command whose wall clock is wrong.
const clockLauncherName = "lab-clock"

const (
	archPrctl = 158 // the first system call of a Go program on amd64
	// Types of the auxiliary vector, of linux/auxvec.h.
	atNull, atIgnore, atSysinfoEHDR = 0, 1, 33
)

// Clock is the wall clock of a command that StartWithClock has started.
type Clock struct {
	wrong atomic.Int64 // by so many nanoseconds
	asked atomic.Int64
}

// Set makes the clock wrong by a duration from now on: it jumps.
func (c *Clock) Set(wrong time.Duration) { c.wrong.Store(int64(wrong)) }

// Asked returns how often a program has read the clock.
func (c *Clock) Asked() int { return int(c.asked.Load()) }

// StartWithClock starts the command, a Go program, with a wall clock of its own; its monotonic clock is everybody's.
// The program that calls it must run Main first of all. It is for amd64 only.
func (c *Cmd) StartWithClock() (*Clock, error) {
	if runtime.GOARCH != "amd64" {
		return nil, errors.New("a program's clock can be made wrong on amd64 only")
	}
	clock := &Clock{}
	return clock, c.startFiltered(clockLauncherName, clock.answer)
}

// clockFilter asks before the wall clock is read, and at the first call of a program; before a program begins too, so
// that the launcher waits until its listener is taken.
func clockFilter() []unix.SockFilter {
	return []unix.SockFilter{
		loadData(callNumber),
		unless(unix.BPF_JEQ, unix.SYS_EXECVE, 1), endFilter(unix.SECCOMP_RET_USER_NOTIF),
		unless(unix.BPF_JEQ, archPrctl, 1), endFilter(unix.SECCOMP_RET_USER_NOTIF),
		unless(unix.BPF_JEQ, unix.SYS_CLOCK_GETTIME, 3),
		loadData(firstArgument), unless(unix.BPF_JEQ, unix.CLOCK_REALTIME, 1), endFilter(unix.SECCOMP_RET_USER_NOTIF),
		endFilter(unix.SECCOMP_RET_ALLOW),
	}
}

func (c *Clock) answer(n *notification) response {
	switch n.number {
	case unix.SYS_EXECVE:
		return n.goOn()
	case archPrctl:
		// One that fails leaves the clock right, and Asked at 0.
		_ = hideVDSO(int(n.pid))
		return n.goOn()
	}
	c.asked.Add(1)
	now := unix.NsecToTimespec(time.Now().UnixNano() + c.wrong.Load())
	text := unsafe.Slice((*byte)(unsafe.Pointer(&now)), unsafe.Sizeof(now))
	local := []unix.Iovec{{Base: unsafe.SliceData(text), Len: uint64(len(text))}}
	remote := []unix.RemoteIovec{{Base: uintptr(n.arguments[1]), Len: len(text)}}
	if _, err := unix.ProcessVMWritev(int(n.pid), local, remote, 0); err != nil {
		return n.goOn()
	}
	return response{id: n.id}
}

// hideVDSO removes the vDSO, which returns the time without a system call, from a new program's auxiliary vector.
func hideVDSO(pid int) error {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return err
	}
	// The name, in parentheses, may have blanks. Behind it, startstack is field 28 of all.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	at, err := strconv.ParseInt(fields[28-3], 10, 64)
	if err != nil {
		return err
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	word := func() (uint64, error) {
		var b [8]byte
		_, err := memory.ReadAt(b[:], at)
		at += 8
		return binary.NativeEndian.Uint64(b[:]), err
	}
	if _, err = word(); err != nil { // the number of arguments
		return err
	}
	for zeros := 0; zeros < 2; { // arguments and environment
		w, err := word()
		if err != nil {
			return err
		}
		if w == 0 {
			zeros++
		}
	}
	for {
		kind, err := word()
		if err != nil || kind == atNull {
			return err
		}
		if kind == atSysinfoEHDR {
			_, err := memory.WriteAt(binary.NativeEndian.AppendUint64(nil, atIgnore), at-8)
			return err
		}
		if _, err := word(); err != nil {
			return err
		}
	}
}
