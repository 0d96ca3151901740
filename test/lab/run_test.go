package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/await"
)

// childVariable makes this test binary a process that builds a network and waits to be killed.
const childVariable = "WEAVE_NPC_TEST_LAB_CHILD"

// standUntilKilled builds a network, runs a command in it that outlives its parent, prints the run's id and the
// command's process id, and waits for its own end or its parent's.
func standUntilKilled() {
	defer RemoveOnSignal()()
	w, err := New(Config{Nodes: 1, IPv4: true})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	daemon := w.Node("node1").Command(context.Background(), "setsid", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!")
	output, err := daemon.Output()
	fmt.Println(w.id, strings.TrimSpace(string(output)), err)
	go func() {
		for i := range 200 { // interrupts come while something is being made
			if _, err := w.Node("node1").AddPod(fmt.Sprintf("pod-%d", i), PodConfig{}); err != nil {
				return
			}
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent ends
	os.Exit(1)
}

type child struct {
	*exec.Cmd
	run string
	pid int // of a process in its network that has lost its parent
}

func startChild(t *testing.T) child {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := child{Cmd: exec.Command(binary)}
	c.Env = append(os.Environ(), childVariable+"=1")
	if _, err := c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	output, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(line, "%s %d <nil>", &c.run, &c.pid); err != nil {
		t.Fatalf("the child printed %q", line)
	}
	if len(traces(t, c.run)) == 0 || !alive(c.pid) {
		t.Fatalf("run %s or its process %d is not there", c.run, c.pid)
	}
	return c
}

// traces lists the traces of a run: namespaces, mounts and files.
func traces(t *testing.T, id string) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{netnsDir + "/" + netnsPrefix + id + "*", runsDir + "/" + id + "*"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, paths...)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, netnsPrefix+id) {
			found = append(found, line)
		}
	}
	return found
}

func TestCleanupRemovesWhatAKilledRunLeftAndNothingElse(t *testing.T) {
	t.Parallel()
	w, hosts := newHarness(t, Config{Nodes: 1, IPv4: true})
	c := startChild(t)
	if err := Cleanup(); err != nil {
		t.Fatal(err)
	}
	if len(traces(t, c.run)) == 0 {
		t.Fatal("Cleanup removed a run that lives")
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	if err := Cleanup(); err != nil {
		t.Fatal(err)
	}
	// Another process's Cleanup may have been faster, and not be finished.
	await.That(t, "the dead run to go", func() bool { return len(traces(t, c.run)) == 0 && !alive(c.pid) })
	q := Question{From: hosts, To: hosts, Proto: "tcp", Port: 80, Family: 4}
	if err := w.Expect(t.Context(), q, Everything, 10*time.Second); err != nil {
		t.Errorf("the network of a run that lives: %v", err)
	}
}

func TestSignalRemovesTheRun(t *testing.T) {
	t.Parallel()
	c := startChild(t)
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var ended *exec.ExitError
	if err := c.Wait(); !errors.As(err, &ended) || ended.ExitCode() != 128+int(syscall.SIGTERM) {
		t.Errorf("the run ended with %v", err)
	}
	if left := traces(t, c.run); len(left) != 0 || alive(c.pid) {
		t.Errorf("left behind: %q, process alive: %v", left, alive(c.pid))
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	t.Parallel()
	w, _ := newHarness(t, Config{Nodes: 2, IPv4: true, IPv6: true})
	node := w.Node("node1")
	command := node.Command(t.Context(), "sleep", "1000")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = command.Wait() }()
	output, err := w.Outside().Command(t.Context(), "setsid", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!").Output()
	if err != nil {
		t.Fatal(err)
	}
	var daemon int
	if _, err := fmt.Sscan(string(output), &daemon); err != nil || !alive(daemon) {
		t.Fatalf("no process from %q: %v", output, err)
	}
	conn, err := node.DialContext(t.Context(), "tcp", host(t, w, "shop/web").Addr4().String()+":80")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var namespaces []string
	for _, h := range w.Hosts() {
		namespaces = append(namespaces, namespaceOf(t, h.NamespacePath()))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if left := traces(t, w.id); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
	await.That(t, "processes to end", func() bool { return !alive(command.Process.Pid) && !alive(daemon) })
	await.That(t, "threads to leave", func() bool { return !inhabited(t, namespaces) })
	if _, err := node.AddPod("late/pod", PodConfig{}); err == nil || len(traces(t, w.id)) != 0 {
		t.Errorf("a pod was added to a closed network: %q, %v", traces(t, w.id), err)
	}
}

func namespaceOf(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("net:[%d]", info.Sys().(*syscall.Stat_t).Ino)
}

// inhabited reports whether a thread of any process is in one of the namespaces.
func inhabited(t *testing.T, namespaces []string) bool {
	t.Helper()
	tasks, err := filepath.Glob("/proc/[0-9]*/task/*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		link, err := os.Readlink(task)
		if err != nil {
			continue // gone, or not to be looked at, so no thread of the lab
		}
		for _, n := range namespaces {
			if link == n {
				return true
			}
		}
	}
	return false
}

func TestDoIsInsideAndOnlyThere(t *testing.T) {
	t.Parallel()
	w, _ := newHarness(t, Config{Nodes: 1, IPv4: true})
	before := namespaceOf(t, "/proc/self/ns/net")
	err := w.Node("node1").Do(func() error {
		inside, err := os.Readlink("/proc/thread-self/ns/net")
		if err == nil && inside != namespaceOf(t, w.Node("node1").NamespacePath()) {
			t.Errorf("Do ran in %s", inside)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if after := namespaceOf(t, "/proc/self/ns/net"); after != before {
		t.Errorf("the process was in %s and is in %s", before, after)
	}
}

// A command is not tied to the thread of the goroutine that started it.
func TestCommandOutlivesItsGoroutine(t *testing.T) {
	t.Parallel()
	w, _ := newHarness(t, Config{Nodes: 1, IPv4: true})
	var command *Cmd
	err := w.Node("node1").Do(func() error {
		command = w.Node("node1").Command(t.Context(), "sleep", "1000")
		return command.Start()
	})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	if !alive(command.Process.Pid) {
		t.Error("the command died with the thread")
	}
	go func() { _ = command.Wait() }()
}
