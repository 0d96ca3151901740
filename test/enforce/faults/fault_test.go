package faults

import (
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// manner is how weave-npc is killed.
type manner int

const (
	// withAll kills everything that it has started with it, as is done to a pod.
	withAll manner = iota
	// alone lets what it has started run on.
	alone
	// late lets what it has started run on, but not before the next weave-npc enforces: it was slow.
	late
	manners
)

// String completes "killed".
func (m manner) String() string {
	return [...]string{withAll: "with all", alone: "alone", late: "alone, the rest late"}[m]
}

// fault kills a weave-npc at a point: before one of the system calls that it, or a program that it runs, is about to
// make.
type fault struct {
	manner   manner
	starting bool   // the point was selected before the start
	kill     func() // and wait until it is dead

	mu    sync.Mutex
	calls int      // made since the point was selected
	at    int      // number of the call, from 1; 0 for none
	call  lab.Call // the one that was not made
	dead  bool

	release chan struct{} // closed when the rest may run on
	once    sync.Once
}

// startFaulty starts weave-npc such that it can be killed at a point.
func startFaulty(t *testing.T, d *e2e.Daemon, m manner, at int) *fault {
	t.Helper()
	f := &fault{manner: m, at: at, starting: true, release: make(chan struct{})}
	if m != late {
		f.goOn()
	}
	t.Cleanup(f.goOn)
	d.StartBy(t, func(cmd *lab.Cmd) error {
		if m == withAll {
			cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWPID // as in a container: the first process's end ends all
		}
		f.kill = func() {
			// It may have ended by itself, which the test notices.
			_ = cmd.Process.Signal(syscall.SIGKILL)
			_ = unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		}
		return cmd.StartIntercepted(f.before)
	})
	return f
}

// before is called before each system call.
func (f *fault) before(c lab.Call) {
	// ulogd2 and what it reports have no part in any transaction.
	if c.Process == "ulogd" || strings.Contains(c.Text, "msg=blocked") {
		return
	}
	f.mu.Lock()
	if !f.dead {
		if f.calls++; f.calls == f.at {
			f.call = c
			f.die()
		}
	}
	dead := f.dead
	f.mu.Unlock()
	// What has not become another program yet still has all that weave-npc had open.
	if dead && c.Process != "weave-npc" {
		<-f.release
	}
}

func (f *fault) die() {
	f.dead = true
	f.kill()
}

// choose selects the point, counted from now.
func (f *fault) choose(at int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls, f.at, f.starting = 0, at, false
}

// killNow kills at no special point, unless that is done.
func (f *fault) killNow() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.dead {
		f.die()
	}
}

// count returns the number of calls since the point was selected.
func (f *fault) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// point describes where it was killed.
func (f *fault) point() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.call == (lab.Call{}) {
		return "at the end"
	}
	return f.call.String()
}

// isDead reports whether the process was killed.
func (f *fault) isDead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

// goOn lets what the dead have started run on.
func (f *fault) goOn() { f.once.Do(func() { close(f.release) }) }

// enforces reports whether weave-npc has logged that it enforces policies since it was started.
func enforces(d *e2e.Daemon) bool {
	return strings.Contains(d.Log.Since(d.Said), "policies are enforced")
}
