package e2e

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
)

// Timeout is how long anything may take on a busy machine.
var Timeout = await.Scaled(30 * time.Second)

// Daemon is weave-npc on a node.
type Daemon struct {
	Node   *lab.Node
	Binary string   // path of the command; empty for the one that these tests are about
	Wrap   []string // what runs the command, with its arguments; empty if nothing does
	Args   []string
	Log    *Output
	Cmd    *lab.Cmd
	Said   int // length of the log when it was started
	End    *End
}

// End is the end of a process.
type End struct {
	seen chan struct{} // closed when it has come
	Err  error         // what the process ended with, once seen is closed
}

// StartDaemon starts weave-npc on a node. The end of the test kills it and checks its log.
func StartDaemon(t *testing.T, node *lab.Node, args ...string) *Daemon {
	t.Helper()
	d := NewDaemon(node, args...)
	d.StartBy(t, (*lab.Cmd).Start)
	d.EndWith(t)
	return d
}

// StartEach starts the daemon that configure returns on every node, as StartDaemon does, and does not wait for any.
func (w *Cluster) StartEach(t *testing.T, configure func(i int, n *lab.Node) *Daemon) {
	t.Helper()
	for i, n := range w.Nodes() {
		d := configure(i, n)
		d.Start(t)
		d.EndWith(t)
		w.Daemons = append(w.Daemons, d)
	}
}

// CommonArgs returns the flags of all daemons. Most tests begin with pods, and end what they send with a frame of the type
// that is allowed.
func CommonArgs(node *lab.Node) []string {
	return []string{"--node-name", node.Name(), "--bind-audit", "0s", "--allow-ethertypes", "0x88b5"}
}

// NewDaemon returns a daemon of a node that has not been started.
func NewDaemon(node *lab.Node, args ...string) *Daemon {
	return &Daemon{Node: node, Log: &Output{}, Args: append(CommonArgs(node), args...)}
}

// EndWith has the end of the test kill weave-npc and check its log.
func (d *Daemon) EndWith(t *testing.T) {
	t.Cleanup(func() {
		d.Kill(t)
		d.CheckLog(t)
	})
}

// Start starts weave-npc.
func (d *Daemon) Start(t *testing.T) {
	t.Helper()
	d.StartBy(t, (*lab.Cmd).Start)
}

// StartBy starts weave-npc with a function other than Cmd.Start.
func (d *Daemon) StartBy(t *testing.T, start func(*lab.Cmd) error) {
	t.Helper()
	binary := cmp.Or(d.Binary, Command())
	if line := slices.Concat(d.Wrap, []string{binary}, d.Args); len(d.Wrap) > 0 {
		d.Cmd = d.Node.Command(context.Background(), line[0], line[1:]...)
	} else {
		d.Cmd = d.Node.Command(context.Background(), binary, d.Args...)
		d.Cmd.Args[0] = "weave-npc"
	}
	d.Cmd.Env = append(d.Cmd.Env, "HOSTNAME=", "GORACE=halt_on_error=1")
	d.Cmd.Stdout, d.Cmd.Stderr = d.Log, d.Log
	d.Said = d.Log.Len()
	e, cmd := &End{seen: make(chan struct{})}, d.Cmd
	d.End = e
	if err := start(cmd); err != nil {
		t.Fatalf("%v\n%s", err, d.Log)
	}
	go func() {
		e.Err = cmd.Wait()
		close(e.seen)
	}()
}

// Running reports whether weave-npc has not ended.
func (d *Daemon) Running() bool {
	select {
	case <-d.End.seen:
		return false
	default:
		return true
	}
}

// Signal sends a signal and waits for the end.
func (d *Daemon) Signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := d.Cmd.Process.Signal(s); err != nil && d.Running() {
		t.Fatal(err)
	}
	select {
	case <-d.End.seen:
	case <-time.After(Timeout):
		t.Fatalf("weave-npc on %s does not end after %s\n%s", d.Node, s, d.Log)
	}
}

// Kill kills weave-npc and waits for its end.
func (d *Daemon) Kill(t *testing.T) {
	t.Helper()
	d.Signal(t, syscall.SIGKILL)
}

// Restart starts a daemon again once it has ended, which it may have been asked to do.
func (d *Daemon) Restart(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Timeout)
	defer cancel()
	select {
	case <-d.End.seen:
	case <-ctx.Done():
		t.Fatalf("%s on %s does not end\n%s", filepath.Base(d.Cmd.Path), d.Node, d.Log)
	}
	d.Start(t)
}
