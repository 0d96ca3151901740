package speed

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/lab"
	"github.com/weave-npc/weave-npc/test/synthetic"
)

// kinds returns the kinds of nodes that BenchmarkConnections compares: a bridge alone, one with br_netfilter and
// conntrack, and those of weave-npc, which are named by its backend.
func kinds() []string { return []string{"bare", "floor", "nft", "legacy"} }

// bridge is a node with a client and a server on its bridge, and a pod that no policy allows.
type bridge struct {
	kind                  string
	node                  *lab.Node
	client, server, other *lab.Pod
	sockets               sockets
}

// bridges makes a node of each kind, as long as the benchmark runs.
func bridges(b *testing.B) (out []*bridge) {
	b.Helper()
	network, err := lab.New(lab.Config{Nodes: len(kinds()), IPv4: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := network.Close(); err != nil {
			b.Error(err)
		}
	})
	for i, n := range network.Nodes() {
		br := &bridge{kind: kinds()[i], node: n}
		br.addPods(b)
		switch br.kind {
		case "bare":
			err = n.Do(func() error {
				return os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("0"), 0)
			})
			if err != nil {
				b.Fatal(err)
			}
		case "floor":
			// The kernel tracks connections where a rule matches their state, though no packet meets this one.
			br.run(b, "iptables-nft", "-N", "FLOOR")
			br.run(b, "iptables-nft", "-A", "FLOOR", "-m", "conntrack", "--ctstate", "NEW")
		}
		out = append(out, br)
	}
	return out
}

// addPods adds the pods of the node, and opens the server's sockets.
func (br *bridge) addPods(b *testing.B) {
	b.Helper()
	for name, p := range map[string]**lab.Pod{"client": &br.client, "server": &br.server, "other": &br.other} {
		var err error
		if *p, err = br.node.AddPod(br.node.Name()+"/"+name, lab.PodConfig{}); err != nil {
			b.Fatal(err)
		}
	}
	if err := br.server.Do(func() error { return br.sockets.listen(br.server.Addr4().As4()) }); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(br.sockets.close)
}

// run runs a command on the node.
func (br *bridge) run(b *testing.B, name string, args ...string) {
	b.Helper()
	// The benchmark's context has ended when this cleans up.
	if output, err := br.node.Command(context.Background(), name, args...).CombinedOutput(); err != nil {
		b.Fatalf("%s %q: %v\n%s", name, args, err, output)
	}
}

// enforce has weave-npc enforce the policies of a pair until the end of the benchmark, if the node is for it, and
// checks that it does.
func (br *bridge) enforce(b *testing.B, binary string, pair synthetic.Pair) {
	b.Helper()
	if br.kind != "nft" && br.kind != "legacy" {
		return
	}
	dir := b.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "objects.yaml"), br.manifests(b, pair), 0o600); err != nil {
		b.Fatal(err)
	}
	cmd := br.node.Command(context.Background(), binary, "--manifests", dir, "--node-name", synthetic.Node,
		"--pod-interface", br.node.PodInterface(), "--iptables-backend", br.kind, "--allow-action", "ACCEPT",
		"--bind-audit", "0s", "--metrics-addr", "127.0.0.1:0")
	p := await(b, cmd.Cmd, cmd)
	b.Cleanup(func() {
		p.end()
		br.run(b, binary, "cleanup")
	})
	want := lab.Refused // by the server, which has no such port
	if pair.Policies > 0 {
		want = lab.Dropped
	}
	got, err := br.other.Probe(b.Context(), lab.Packet{Proto: "tcp", To: br.server.Addr4(), Port: 1})
	if err != nil || got != want {
		b.Fatalf("%s: a pod that no policy allows is %s, not %s: %v", br.kind, got, want, err)
	}
}

// manifests returns the objects of the node's cluster.
func (br *bridge) manifests(b *testing.B, pair synthetic.Pair) []byte {
	b.Helper()
	objects := []any{fixture.NodeObject(npc.Node{Name: synthetic.Node}), fixture.NamespaceObject(synthetic.Namespace(0))}
	for _, p := range pair.Pods(br.client.Addr4(), br.server.Addr4(), br.other.Addr4()) {
		objects = append(objects, fixture.PodObject(p))
	}
	for i := range pair.Policies {
		objects = append(objects, pair.Policy(i))
	}
	var out bytes.Buffer
	for _, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			b.Fatal(err)
		}
		fmt.Fprintf(&out, "---\n%s", text)
	}
	return out.Bytes()
}

// flush deletes the connections that the node's kernel tracks.
func (br *bridge) flush() error {
	err := br.node.Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) })
	return errors.Wrapf(err, "deleting the connections of %s", br.kind)
}

// measure measures in the client's network namespace.
func (br *bridge) measure(measure func(*sockets) ([]float64, error)) (values []float64, err error) {
	err = br.client.Do(func() (err error) {
		values, err = measure(&br.sockets)
		return err
	})
	return values, errors.Wrapf(err, "measuring %s", br.kind)
}
