package e2e

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
)

// Cluster is a lab network with the hosts of every test:
//
//	node1   shop/web, shop/db, ops/mon
//	node2   shop/api, ops/copy
//	outside out
type Cluster struct {
	*lab.Network
	Backend lab.Backend
	Attach  lab.Attach
	Hosts   map[string]*lab.Host    // by their short names: web, n1, out
	Places  map[*lab.Host]*lab.Node // pod -> its node
	Veths   map[string]string       // pod -> its interface on its node
	Daemons []*Daemon
	Sets    map[*lab.Node]*ipset.Conn
	Source  ObjectWriter
	Step    int // number of the last state that was applied
	// Timeout is how long a step may take, if that is longer than usual.
	Timeout time.Duration
}

// ObjectWriter writes objects to the source that the daemons follow.
type ObjectWriter interface {
	Write(t *testing.T, o *Objects)
}

// cast returns the pods of every cluster and the nodes that they are on.
func cast() map[string]string {
	return map[string]string{"shop/web": "node1", "shop/db": "node1", "ops/mon": "node1",
		"shop/api": "node2", "ops/copy": "node2"}
}

// Base makes the objects that every test begins with, without policies.
func Base() Change {
	return Do(Namespace("shop", "team=a"), Namespace("ops", "team=b"),
		Pod("shop/web", Labelled("app=web")), Pod("shop/db", Labelled("app=db")), Pod("shop/api", Labelled("app=api")),
		Pod("ops/mon", Labelled("app=mon")), Pod("ops/copy", Labelled("app=web")))
}

// New makes a cluster without daemons and objects. It has both families unless config selects one.
func New(t *testing.T, backend lab.Backend, config lab.Config) *Cluster {
	t.Helper()
	config.Nodes = 2
	if !config.IPv4 && !config.IPv6 {
		config.IPv4, config.IPv6 = true, true
	}
	l, err := lab.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &Cluster{Network: l, Backend: backend, Attach: config.Attach, Hosts: map[string]*lab.Host{"out": l.Outside()},
		Places: map[*lab.Host]*lab.Node{}, Veths: map[string]string{}, Sets: map[*lab.Node]*ipset.Conn{}}
	for i, n := range l.Nodes() {
		w.Hosts["n"+strconv.Itoa(i+1)] = n.Host
		w.openSets(t, n)
	}
	for name, node := range cast() {
		w.AddPod(t, node, OwnName(name), lab.PodConfig{})
	}
	for _, h := range w.Hosts {
		Serve(t, h)
	}
	return w
}

// openSets opens a node's sets.
func (w *Cluster) openSets(t *testing.T, n *lab.Node) {
	t.Helper()
	if err := n.Do(func() (err error) {
		w.Sets[n], err = ipset.Open()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Sets[n].Close() })
}

// AddPod attaches a pod to a node, without an object.
func (w *Cluster) AddPod(t *testing.T, node, name string, config lab.PodConfig) *lab.Pod {
	t.Helper()
	p, err := w.Node(node).AddPod(name, config)
	if err != nil {
		t.Fatal(err)
	}
	w.Hosts[name] = p.Host
	w.Places[p.Host] = p.Node()
	w.Veths[name] = p.Port()
	return p
}

// ClosePod ends a pod that AddPod made.
func (w *Cluster) ClosePod(t *testing.T, p *lab.Pod) {
	t.Helper()
	delete(w.Hosts, p.Name())
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// Serve starts a host's servers. The other ports answer with a refusal.
func Serve(t *testing.T, h *lab.Host) {
	t.Helper()
	for _, s := range []struct {
		proto string
		port  uint16
	}{{"tcp", 80}, {"udp", 53}, {"sctp", 80}} {
		if err := h.Serve(s.proto, s.port); err != nil {
			t.Fatal(err)
		}
	}
}

// NodeOf returns the node of a pod, nil for other hosts.
func (w *Cluster) NodeOf(h *lab.Host) *lab.Node { return w.Places[h] }

// Replacer replaces $web4, $web6 and the like by the addresses of hosts.
func (w *Cluster) Replacer() *strings.Replacer {
	var pairs []string
	for name, h := range w.Hosts {
		for _, family := range []int{4, 6} {
			if a := h.Addr(family); a.IsValid() {
				pairs = append(pairs, "$"+name+strconv.Itoa(family), a.String())
			}
		}
	}
	return strings.NewReplacer(pairs...)
}

// StartDaemons starts weave-npc on every node. On the first one it knows local pods by their interface, if there is
// one, on the others by their addresses.
func (w *Cluster) StartDaemons(t *testing.T, args ...string) {
	t.Helper()
	for i, n := range w.Nodes() {
		w.Daemons = append(w.Daemons, StartDaemon(t, n, w.DaemonArgs(i, args...)...))
	}
	for _, d := range w.Daemons {
		d.AwaitReady(t)
	}
}

// DaemonArgs returns the flags of weave-npc on the node with an index. Allowed packets are accepted, as with an API
// server, unless args have another --allow-action.
func (w *Cluster) DaemonArgs(i int, args ...string) []string {
	n := w.Nodes()[i]
	own := []string{"--iptables-backend", string(w.Backend), "--allow-action", "ACCEPT"}
	if i == 0 && n.PodInterface() != "" {
		own = append(own, "--pod-interface", n.PodInterface())
	} else {
		own = append(own, "--pod-cidr", Ranges(n))
	}
	return append(own, args...)
}

// Ranges returns the ranges of a node's pods, separated by commas.
func Ranges(n *lab.Node) string {
	var texts []string
	for _, r := range n.PodRanges() {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, ",")
}

// DaemonOn returns the daemon of a node.
func (w *Cluster) DaemonOn(n *lab.Node) *Daemon {
	for _, d := range w.Daemons {
		if d.Node == n {
			return d
		}
	}
	return nil
}

// Apply writes objects to the source, and returns when every node has enforced them.
//
// It adds a pod on every node and a policy for a moment. The policy's egress rule names a port of the pods in a
// namespace with a certain label, so the set of that port is filled once namespace, pod and policy have arrived, and
// the pods leave the sets after the transaction with everything else has been applied.
func (w *Cluster) Apply(t *testing.T, o *Objects) {
	t.Helper()
	w.Step++
	number := strconv.Itoa(w.Step)
	mark := o.Clone()
	Namespace("sync", "step="+number)(w, mark)
	Policy("sync/step-"+number, `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: `+
		`{matchLabels: {step: "`+number+`"}}}], ports: [{port: sync}]}]}`)(w, mark)
	for _, n := range w.Nodes() {
		Pod("sync/step-"+number+"-"+n.Name(), On(n.Name()), Port("sync", int32(2000+w.Step), ""),
			Running(syncByte, n.PodRanges()[0]))(w, mark)
	}
	w.Source.Write(t, mark)
	w.awaitSync(t, true)

	Without("sync/step-"+number)(w, mark)
	for _, n := range w.Nodes() {
		Pod("sync/step-"+number+"-"+n.Name(), Phase(corev1.PodSucceeded))(w, mark)
	}
	w.Source.Write(t, mark)
	w.awaitSync(t, false)
}

// syncAddr returns the last but one address of a node's first range, which no pod has.
func syncAddr(n *lab.Node) netip.Addr { return within(n.PodRanges()[0], syncByte) }

// syncByte is the last byte of the addresses that Apply waits for.
const syncByte = 254

// within returns the address of a range with the given last byte.
func within(r netip.Prefix, last byte) netip.Addr {
	raw := r.Addr().AsSlice()
	raw[len(raw)-1] = last
	a, _ := netip.AddrFromSlice(raw)
	return a
}

// awaitSync waits until the nodes' sets hold the present step's pod with its port, and the kernel all other changes too
// (namespaces take turns, and the step's may be the first), or until they do not hold the pod any more.
func (w *Cluster) awaitSync(t *testing.T, there bool) {
	t.Helper()
	for _, n := range w.Nodes() {
		var sets []ipset.Listing
		await.Within(t, max(2*Timeout, w.Timeout), func() bool {
			d := w.DaemonOn(n)
			if d != nil && !d.Running() {
				t.Fatalf("weave-npc on %s has ended: %v\n%s", n, d.End.Err, d.Log)
			} else if d != nil && d.complains() {
				d.CheckLog(t)
				t.FailNow()
			}
			sets = w.ListSets(t, n)
			member := ipset.Addr(syncAddr(n))
			if there {
				const tcp = 6
				member = ipset.AddrPort(syncAddr(n), tcp, uint16(2000+w.Step))
			}
			return Holds(sets, member) == there && (!there || d == nil || d.Idle())
		}, func() string {
			return fmt.Sprintf("%s does not follow step %d (there: %t)\n%s\n%s", n, w.Step, there, w.DaemonOn(n).Log,
				lab.DumpFilter(n))
		})
	}
}

// ListSets returns the sets of weave-npc on a node.
func (w *Cluster) ListSets(t *testing.T, n *lab.Node) []ipset.Listing {
	t.Helper()
	sets, err := w.Sets[n].List("weave-")
	if err != nil {
		t.Fatal(err)
	}
	return sets
}

// Holds reports whether a set has an entry.
func Holds(sets []ipset.Listing, e ipset.Entry) bool {
	for _, s := range sets {
		for _, m := range s.Members {
			if m.Entry == e {
				return true
			}
		}
	}
	return false
}

// EachBackend runs a test with both backends side by side.
func EachBackend(t *testing.T, test func(t *testing.T, backend lab.Backend)) {
	t.Parallel()
	for _, backend := range []lab.Backend{lab.NFT, lab.Legacy} {
		t.Run(string(backend), func(t *testing.T) {
			t.Parallel()
			test(t, backend)
		})
	}
}

// Start returns a cluster with daemons and manifests in a state.
func Start(t *testing.T, backend lab.Backend, state Change, args ...string) *Cluster {
	t.Helper()
	w := New(t, backend, lab.Config{})
	w.Begin(t, state, args...)
	return w
}

// Begin starts the daemons of a cluster.
func (w *Cluster) Begin(t *testing.T, state Change, args ...string) {
	t.Helper()
	m := w.FromManifests(t, state)
	w.StartDaemons(t, append([]string{"--manifests", m.Dir}, args...)...)
}
