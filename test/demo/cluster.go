package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pkg/errors"

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

// pods are the pods of the cluster.
func pods() []pod {
	return []pod{
		{"shop", "web", "node1", []port{{"http", 80}, {"metrics", 9113}}},
		{"shop", "api", "node2", []port{{"http", 8080}, {"metrics", 9102}}},
		{"shop", "db", "node1", []port{{"postgres", 5432}, {"metrics", 9187}}},
		{"monitoring", "prometheus", "node2", []port{{"http", 9090}}},
		{"dev", "shell", "node1", []port{{"metrics", 9100}}},
	}
}

// outside is the host that is not in the cluster, and its port.
const (
	outside     = "outside"
	outsidePort = 443
)

// metricsAddr is where each weave-npc serves its health, in the network namespace of its node.
const metricsAddr = "127.0.0.1:6781"

// cluster is a world of network namespaces with a weave-npc on each node.
type cluster struct {
	world     *lab.World
	hosts     map[string]*lab.Host // name -> pod or outside host
	manifests manifests
}

// newCluster makes the nodes, the pods with their servers and their manifests. Nothing enforces anything yet.
func newCluster(ctx context.Context) (_ *cluster, err error) {
	world, err := lab.New(lab.Config{Nodes: 2, IPv4: true, IPv6: true, Attach: lab.Bridge})
	if err != nil {
		return nil, err
	}
	c := &cluster{world: world, hosts: map[string]*lab.Host{outside: world.Outside()}}
	defer func() {
		if err != nil {
			_ = world.Close()
		}
	}()
	if err := c.world.Outside().Serve("tcp", outsidePort); err != nil {
		return nil, err
	}
	for _, p := range pods() {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		host, err := world.Node(p.node).AddPod(p.String(), lab.PodConfig{})
		if err != nil {
			return nil, err
		}
		c.hosts[p.String()] = host.Host
		for _, port := range p.ports {
			if err := host.Serve("tcp", port.number); err != nil {
				return nil, err
			}
		}
	}
	c.manifests = manifests(filepath.Join(world.Dir(), "manifests"))
	return c, c.writeFirstManifests()
}

// writeFirstManifests says what there is, without a policy.
func (c *cluster) writeFirstManifests() error {
	if err := os.Mkdir(string(c.manifests), 0o755); err != nil {
		return errors.Wrap(err, "making the directory of manifests")
	}
	if err := c.manifests.write(namespacesFile, namespacesManifest()); err != nil {
		return err
	}
	var documents []string
	for _, p := range pods() {
		documents = append(documents, podManifest(p, c.hosts[p.String()].Addrs()))
	}
	return c.manifests.write(podsFile, strings.Join(documents, "---\n"))
}

// arguments are those that weave-npc is started with on a node.
func (c *cluster) arguments(n *lab.Node) []string {
	return []string{"--manifests", string(c.manifests), "--node-name", n.Name(), "--pod-interface", n.PodInterface(),
		"--metrics-addr", metricsAddr}
}

// logFile is what weave-npc writes on a node.
func (c *cluster) logFile(n *lab.Node) string { return filepath.Join(c.world.Dir(), n.Name()+".log") }

// startNPC starts weave-npc on a node. Should it end before the context does, it ends the context.
func (c *cluster) startNPC(ctx context.Context, npc string, n *lab.Node, cancel context.CancelCauseFunc) error {
	log, err := os.Create(c.logFile(n))
	if err != nil {
		return errors.Wrapf(err, "making a log for weave-npc on %s", n)
	}
	defer log.Close() // the process has its own
	npc, err = filepath.Abs(npc)
	if err != nil {
		return errors.Wrap(err, "finding weave-npc")
	}
	cmd := n.Command(ctx, npc, c.arguments(n)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		err := cmd.Wait()
		if ctx.Err() == nil {
			cancel(errors.Errorf("weave-npc on %s ended (%v), having said:\n%s", n, err, c.logTail(n)))
		}
	}()
	return nil
}

// awaitReady waits until weave-npc on a node says that it enforces what the manifests say.
func (c *cluster) awaitReady(ctx context.Context, n *lab.Node) error {
	const patience = 10 * time.Second
	client := http.Client{Transport: &http.Transport{DialContext: n.DialContext, DisableKeepAlives: true},
		Timeout: time.Second}
	deadline := time.Now().Add(patience)
	for {
		why := readiness(ctx, client)
		switch {
		case why == "":
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case time.Now().After(deadline):
			return errors.Errorf("weave-npc on %s is not ready after %s: %s\n%s", n, patience, why, c.dump())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// readiness says why a weave-npc is not ready; empty if it is.
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
	return strings.TrimSpace(string(why))
}

// output runs a command on a node and returns what it prints.
func output(ctx context.Context, n *lab.Node, name string, args ...string) (string, error) {
	text, err := n.Command(ctx, name, args...).Output()
	return strings.TrimRight(string(text), "\n"), err
}

// logTail is the end of what weave-npc has said on a node.
func (c *cluster) logTail(n *lab.Node) string {
	const lines = 30
	text, err := os.ReadFile(c.logFile(n))
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// dump is all that helps to find out why a node does not do what it should.
func (c *cluster) dump() string {
	var b strings.Builder
	for _, n := range c.world.Nodes() {
		fmt.Fprintf(&b, "=== %s: the kernel's rules and sets\n%s\n=== %s: the end of weave-npc's log\n%s\n", n,
			lab.DumpFilter(n), n, c.logTail(n))
	}
	return b.String()
}
