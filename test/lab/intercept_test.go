package lab

import (
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestWhatIsInterceptedHappensCallByCall kills a command, and what it has started, before each of their calls.
func TestWhatIsInterceptedHappensCallByCall(t *testing.T) {
	t.Parallel()
	w, err := New(Config{Nodes: 1, IPv4: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	h := w.Outside()
	intercepted := func(before func(n int, c Call, kill func())) {
		t.Helper()
		c := h.Command(t.Context(), "sh", "-c", "ipset create one hash:ip && ipset create two hash:ip && echo said >&2")
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWPID // all end with the first
		var mu sync.Mutex
		n := 0
		if err := c.StartIntercepted(func(call Call) {
			mu.Lock()
			defer mu.Unlock()
			n++
			before(n, call, func() {
				_ = c.Process.Kill()
				// The first is dead when all are; else the call would still be made.
				_ = unix.Waitid(unix.P_PID, c.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
			})
		}); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait() // it may have been killed
	}
	sets := func() []string {
		t.Helper()
		output, err := h.Command(t.Context(), "ipset", "list", "-n").Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(output))
	}
	var calls []string
	var text string
	intercepted(func(_ int, c Call, _ func()) {
		calls = append(calls, c.String())
		text += c.Text
	})
	all := strings.Join(calls, "\n")
	for _, call := range []string{"sh execve", "ipset sendmsg", "sh wait4", "sh exit_group"} {
		if !strings.Contains(all, call) && !strings.Contains(all, strings.Replace(call, "sendmsg", "sendto", 1)) {
			t.Errorf("no %s in\n%s", call, all)
		}
	}
	if len(sets()) != 2 || !strings.Contains(text, "said\n") {
		t.Errorf("with %v let happen there are %v, and %q was said", calls, sets(), text)
	}
	seen := map[int]bool{}
	last := 0
	for at := range len(calls) {
		if _, err := h.Command(t.Context(), "ipset", "destroy").Output(); err != nil {
			t.Fatal(err)
		}
		intercepted(func(n int, _ Call, kill func()) {
			if n > at {
				kill()
			}
		})
		now := len(sets())
		if now < last {
			t.Errorf("%d calls make %d sets, and one more makes %d", at, last, now)
		}
		last = now
		seen[now] = true
	}
	if !seen[0] || !seen[1] || !seen[2] {
		t.Errorf("of none, one and two sets, %v were seen", seen)
	}
}

// TestAlarmsInterruptNoInterceptedCall while one process waits for the calls of another to be answered.
func TestAlarmsInterruptNoInterceptedCall(t *testing.T) {
	t.Parallel()
	w, err := New(Config{Nodes: 1, IPv4: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	c := w.Outside().Command(t.Context(), "sh", "-c", `cd "$1" && (while :; do echo slow; done) >/dev/null &
		perl -e 'chdir shift; $SIG{ALRM} = sub {}; alarm 1;
			for (1..100) { mkdir "d" or die "mkdir: $!"; rmdir "d" or die "rmdir: $!" }' "$1"
		code=$?; kill $!; exit $code`, "sh", t.TempDir())
	var said strings.Builder
	c.Stderr = &said
	if err := c.StartIntercepted(func(call Call) {
		if call.Text == "slow\n" {
			time.Sleep(20 * time.Millisecond)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("%v: %s", err, said.String())
	}
}
