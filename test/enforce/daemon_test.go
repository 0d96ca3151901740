package enforce

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
)

// timeout is how long anything may take on a busy machine.
const timeout = 30 * time.Second

// daemon is weave-npc on a node.
type daemon struct {
	node   *lab.Node
	binary string   // path of the command; empty for the one that these tests are about
	wrap   []string // what runs the command, with its arguments; empty if nothing does
	args   []string
	log    *output
	cmd    *lab.Cmd
	said   int // length of the log when it was started
	end    *end
}

// end is the end of a process.
type end struct {
	seen chan struct{} // closed when it has come
	err  error         // what the process ended with, once seen is closed
}

// startDaemon starts weave-npc on a node. The end of the test kills it and checks its log.
func startDaemon(t *testing.T, node *lab.Node, args ...string) *daemon {
	t.Helper()
	d := newDaemon(node, args...)
	d.startBy(t, (*lab.Cmd).Start)
	d.endWith(t)
	return d
}

// startEach starts the daemon that configure returns on every node, as startDaemon does, and does not wait for any.
func (w *harness) startEach(t *testing.T, configure func(i int, n *lab.Node) *daemon) {
	t.Helper()
	for i, n := range w.Nodes() {
		d := configure(i, n)
		d.start(t)
		d.endWith(t)
		w.daemons = append(w.daemons, d)
	}
}

func newDaemon(node *lab.Node, args ...string) *daemon {
	return &daemon{node: node, log: &output{}, args: append([]string{"--node-name", node.Name()}, args...)}
}

// endWith has the end of the test kill weave-npc and check its log.
func (d *daemon) endWith(t *testing.T) {
	t.Cleanup(func() {
		d.kill(t)
		d.checkLog(t)
	})
}

func (d *daemon) start(t *testing.T) {
	t.Helper()
	d.startBy(t, (*lab.Cmd).Start)
}

// startBy starts weave-npc with a function other than Cmd.Start.
func (d *daemon) startBy(t *testing.T, start func(*lab.Cmd) error) {
	t.Helper()
	binary := cmp.Or(d.binary, command())
	if line := slices.Concat(d.wrap, []string{binary}, d.args); len(d.wrap) > 0 {
		d.cmd = d.node.Command(context.Background(), line[0], line[1:]...)
	} else {
		d.cmd = d.node.Command(context.Background(), binary, d.args...)
		d.cmd.Args[0] = "weave-npc"
	}
	d.cmd.Env = append(os.Environ(), "HOSTNAME=", "GORACE=halt_on_error=1")
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	d.said = d.log.len()
	e, cmd := &end{seen: make(chan struct{})}, d.cmd
	d.end = e
	if err := start(cmd); err != nil {
		t.Fatalf("%v\n%s", err, d.log)
	}
	go func() {
		e.err = cmd.Wait()
		close(e.seen)
	}()
}

func (d *daemon) running() bool {
	select {
	case <-d.end.seen:
		return false
	default:
		return true
	}
}

// signal sends a signal and waits for the end.
func (d *daemon) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil && d.running() {
		t.Fatal(err)
	}
	select {
	case <-d.end.seen:
	case <-time.After(timeout):
		t.Fatalf("weave-npc on %s does not end after %s\n%s", d.node, s, d.log)
	}
}

func (d *daemon) kill(t *testing.T) {
	t.Helper()
	d.signal(t, syscall.SIGKILL)
}

// awaitReady waits until /readyz reports that policies are enforced.
func (d *daemon) awaitReady(t *testing.T) {
	t.Helper()
	var last string
	await.Within(t, timeout, func() bool {
		if !d.running() {
			t.Fatalf("weave-npc on %s has ended: %v\n%s", d.node, d.end.err, d.log)
		}
		var status int
		status, last = d.get("/readyz")
		return status == http.StatusOK
	}, func() string {
		return "weave-npc on " + d.node.Name() + " is not ready: " + last + "\n" + d.log.String()
	})
}

// get asks weave-npc's server, which listens on its default address.
func (d *daemon) get(path string) (status int, body string) { return d.getAt(6781, path) }

// getAt asks a server of the daemon.
func (d *daemon) getAt(port int, path string) (status int, body string) {
	transport := &http.Transport{DialContext: d.node.DialContext}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	response, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// stack is part of every printed stack. A log must have none, whatever else the test expects.
const stack = ".go:"

// trouble reports whether a line has a warning or worse, which a test must expect.
func trouble(line string) bool {
	for _, word := range []string{"level=ERROR", "level=WARN", "DATA RACE", "panic:", "fatal error:", stack} {
		if strings.Contains(line, word) {
			return true
		}
	}
	return false
}

// complains reports whether checkLog would fail the test.
func (d *daemon) complains() bool { return len(d.log.unexpected(false)) > 0 }

// checkLog fails the test if weave-npc logged trouble that the test does not expect.
func (d *daemon) checkLog(t *testing.T) {
	t.Helper()
	for _, line := range d.log.unexpected(true) {
		t.Errorf("weave-npc on %s says: %s", d.node, line)
		if !strings.Contains(line, "level=") {
			t.Errorf("its last words:\n%s", d.log)
		}
	}
}

// output is what a process has printed.
type output struct {
	mu       sync.Mutex
	text     strings.Builder
	line     int      // where the last line begins
	troubles []string // lines with trouble
	checked  int      // how many of them checkLog has seen
	expected []*regexp.Regexp
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(b)
	for rest := o.text.String()[o.line:]; ; {
		line, more, complete := strings.Cut(rest, "\n")
		if !complete {
			return len(b), nil
		}
		o.line += len(line) + 1
		rest = more
		if trouble(line) {
			o.troubles = append(o.troubles, line)
		}
	}
}

// String returns the end of it.
func (o *output) String() string {
	const enough = 8000
	text := o.all()
	if len(text) > enough {
		text = "...\n" + text[len(text)-enough:]
	}
	return text
}

func (o *output) all() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// since returns what was printed after the first n bytes.
func (o *output) since(n int) string { return o.all()[n:] }

func (o *output) len() int { return len(o.all()) }

// expect lets checkLog pass lines that match.
func (o *output) expect(pattern string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.expected = append(o.expected, regexp.MustCompile(pattern))
}

// unexpected returns the lines with trouble that the test does not expect and has not seen yet.
func (o *output) unexpected(seen bool) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var lines []string
	for _, line := range o.troubles[o.checked:] {
		if strings.Contains(line, "fail-closed filter closed for long") {
			continue // the machine is slow: the duration of a step of the test says nothing about weave-npc
		}
		if strings.Contains(line, stack) || !slices.ContainsFunc(o.expected, func(e *regexp.Regexp) bool { return e.MatchString(line) }) {
			lines = append(lines, line)
		}
	}
	if seen {
		o.checked = len(o.troubles)
	}
	return lines
}

// awaitLine waits for a line that matches, after the first n bytes.
func (d *daemon) awaitLine(t *testing.T, n int, pattern string) string {
	t.Helper()
	wanted := regexp.MustCompile("(?m)^.*" + pattern + ".*$")
	var found string
	await.Within(t, timeout, func() bool {
		found = wanted.FindString(d.log.since(n))
		return found != ""
	}, func() string {
		return "weave-npc on " + d.node.Name() + " does not say " + pattern + ":\n" + d.log.String()
	})
	return found
}
