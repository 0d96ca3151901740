package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/lab"
)

// pod is a pod and the TCP servers in it.
type pod struct {
	namespace, name, node string
	ports                 []port
}

// port is a container port.
type port struct {
	name   string
	number uint16
}

func (p pod) String() string { return p.namespace + "/" + p.name }

// serves returns what the pod serves, in words.
func (p pod) serves() string {
	var words []string
	for _, port := range p.ports {
		words = append(words, fmt.Sprintf("%d (%s)", port.number, port.name))
	}
	return strings.Join(words, ", ")
}

// pods returns the pods of the cluster.
func pods() []pod {
	return []pod{
		{"shop", "web", "node1", []port{{"http", 80}, {"metrics", 9113}}},
		{"shop", "api", "node2", []port{{"http", 8080}, {"metrics", 9102}}},
		{"shop", "db", "node1", []port{{"postgres", 5432}, {"metrics", 9187}}},
		{"monitoring", "prometheus", "node2", []port{{"http", 9090}}},
		{"dev", "shell", "node1", []port{{"metrics", 9100}}},
	}
}

// The host that is not in the cluster, and what it serves.
const (
	outside     = "outside"
	outsidePort = 443
)

// metricsAddr is where each weave-npc serves its health, in the network namespace of its node.
const metricsAddr = "127.0.0.1:6781"

// timeout is how long each step of the cluster may take. It is long enough for busy machines.
const timeout = time.Minute

// cluster is a network of namespaces with manifests that describe it.
type cluster struct {
	npc       string // path of the program
	harness   *lab.Network
	hosts     map[string]*lab.Host // name -> pod or outside host
	manifests manifests
	running   errgroup.Group // the weave-npcs
}

// newCluster makes the nodes, the pods with their servers and the manifests of both. Nothing enforces anything yet.
func newCluster(ctx context.Context, npc string) (*cluster, error) {
	npc, err := filepath.Abs(npc)
	if err != nil {
		return nil, errors.Wrap(err, "finding weave-npc")
	}
	harness, err := lab.New(lab.Config{Nodes: 2, IPv4: true, IPv6: true, Attach: lab.Bridge})
	if err != nil {
		return nil, err
	}
	c := &cluster{npc: npc, harness: harness, hosts: map[string]*lab.Host{outside: harness.Outside()},
		manifests: manifests(filepath.Join(harness.Dir(), "manifests"))}
	if err := c.populate(ctx); err != nil {
		_ = harness.Close()
		return nil, err
	}
	return c, nil
}

// close waits for the weave-npcs, whose context has to have ended, and removes the cluster.
func (c *cluster) close() error {
	err := c.running.Wait()
	if closed := c.harness.Close(); closed != nil {
		return closed
	}
	return err
}

// populate makes all that is in the cluster.
func (c *cluster) populate(ctx context.Context) error {
	if err := c.harness.Outside().Serve("tcp", outsidePort); err != nil {
		return err
	}
	var documents []string
	for _, p := range pods() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		host, err := c.harness.Node(p.node).AddPod(p.String(), lab.PodConfig{})
		if err != nil {
			return err
		}
		c.hosts[p.String()] = host.Host
		for _, port := range p.ports {
			if err := host.Serve("tcp", port.number); err != nil {
				return err
			}
		}
		documents = append(documents, podManifest(p, host.Addrs()))
	}
	if err := os.Mkdir(string(c.manifests), 0o755); err != nil {
		return errors.Wrap(err, "making the directory of manifests")
	}
	if err := c.manifests.write(namespacesFile, namespacesManifest); err != nil {
		return err
	}
	return c.manifests.write(podsFile, strings.Join(documents, "---\n"))
}

// arguments returns the flags of weave-npc on a node.
func (c *cluster) arguments(n *lab.Node) []string {
	return []string{"--manifests", string(c.manifests), "--node-name", n.Name(), "--pod-interface", n.PodInterface(),
		"--metrics-addr", metricsAddr}
}

// logFile returns the path of weave-npc's log on a node.
func (c *cluster) logFile(n *lab.Node) string { return filepath.Join(c.harness.Dir(), n.Name()+".log") }

// startNPC starts weave-npc on a node, and returns its process. The end of the context stops it; should it end before
// that, died is called.
func (c *cluster) startNPC(ctx context.Context, n *lab.Node, died func(*lab.Node, error)) (pid int, err error) {
	const graceful = 5 * time.Second
	log, err := os.OpenFile(c.logFile(n), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, errors.Wrapf(err, "making a log for weave-npc on %s", n)
	}
	defer log.Close() // the process has its own
	cmd := n.Command(ctx, c.npc, c.arguments(n)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = graceful
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	c.running.Go(func() error {
		_ = cmd.Wait() // its error is that it was stopped
		status := cmd.ProcessState
		if ctx.Err() == nil {
			died(n, errors.Errorf("weave-npc on %s ended (%s), having said:\n%s", n, status, c.logTail(n)))
			return nil
		}
		// One that was stopped before it was up died of the signal.
		wait, _ := status.Sys().(syscall.WaitStatus)
		if status.Success() || wait.Signaled() && wait.Signal() == unix.SIGTERM {
			return nil
		}
		return errors.Errorf("weave-npc on %s was stopped and ended with %s, having said:\n%s", n, status, c.logTail(n))
	})
	return cmd.Process.Pid, nil
}

// awaitReady waits until weave-npc on a node reports that it enforces the manifests.
func (c *cluster) awaitReady(ctx context.Context, n *lab.Node) error {
	client := http.Client{Transport: &http.Transport{DialContext: n.DialContext, DisableKeepAlives: true},
		Timeout: time.Second}
	for deadline := time.Now().Add(timeout); ; {
		why := readiness(ctx, client)
		switch {
		case why == "":
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(deadline):
			return errors.Errorf("weave-npc on %s is not ready after %s: %s\n%s", n, timeout, why, c.dump())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// readiness returns why a weave-npc is not ready, "" if it is.
func readiness(ctx context.Context, client http.Client) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+metricsAddr+"/readyz", nil)
	if err != nil {
		return err.Error()
	}
	response, err := client.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return ""
	}
	why, _ := io.ReadAll(io.LimitReader(response.Body, 1000)) // the status is the answer
	return response.Status + " " + strings.TrimSpace(string(why))
}

// output runs a command on a node and returns what it prints.
func output(ctx context.Context, n *lab.Node, name string, args ...string) (string, error) {
	text, err := n.Command(ctx, name, args...).Output()
	return strings.TrimRight(string(text), "\n"), err
}

// logSince returns the lines that weave-npc logged on a node after the first so many bytes.
func (c *cluster) logSince(n *lab.Node, offset int) ([]string, error) {
	text, err := os.ReadFile(c.logFile(n))
	if err != nil {
		return nil, errors.Wrapf(err, "reading weave-npc's log on %s", n)
	}
	return strings.Split(strings.TrimRight(string(text[min(offset, len(text)):]), "\n"), "\n"), nil
}

// logSize returns the number of bytes that weave-npc has logged on a node.
func (c *cluster) logSize(n *lab.Node) (int, error) {
	info, err := os.Stat(c.logFile(n))
	if err != nil {
		return 0, errors.Wrapf(err, "looking at weave-npc's log on %s", n)
	}
	return int(info.Size()), nil
}

// logTail returns the end of weave-npc's log on a node.
func (c *cluster) logTail(n *lab.Node) string {
	const most = 30
	lines, err := c.logSince(n, 0)
	if err != nil {
		return err.Error()
	}
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

// dump returns what helps to find out what is wrong with a node.
func (c *cluster) dump() string {
	var b strings.Builder
	for _, n := range c.harness.Nodes() {
		fmt.Fprintf(&b, "=== %s: the kernel's rules and sets\n%s\n=== %s: the end of weave-npc's log\n%s\n", n,
			lab.DumpFilter(n), n, c.logTail(n))
	}
	return b.String()
}
