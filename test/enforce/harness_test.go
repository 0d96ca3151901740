package enforce

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
)

// harness is a lab network with the hosts of every test:
//
//	node1   shop/web, shop/db, ops/mon
//	node2   shop/api, ops/copy
//	outside out
type harness struct {
	*lab.Network
	backend lab.Backend
	attach  lab.Attach
	hosts   map[string]*lab.Host // by their short names: web, n1, out
	places  map[*lab.Host]*lab.Node
	veths   map[string]string // pod -> its interface on its node
	daemons []*daemon
	sets    map[*lab.Node]*ipset.Conn
	source  objectWriter
	step    int // number of the last state that was applied
	// timeout is how long a step may take, if that is longer than usual.
	timeout time.Duration
}

// objectWriter writes objects to the source that the daemons follow.
type objectWriter interface {
	write(t *testing.T, o *objects)
}

// cast returns the pods of every harness and the nodes that they are on.
func cast() map[string]string {
	return map[string]string{"shop/web": "node1", "shop/db": "node1", "ops/mon": "node1",
		"shop/api": "node2", "ops/copy": "node2"}
}

// base makes the objects that every test begins with, without policies.
func base() change {
	return do(namespace("shop", "team=a"), namespace("ops", "team=b"),
		pod("shop/web", labelled("app=web")), pod("shop/db", labelled("app=db")), pod("shop/api", labelled("app=api")),
		pod("ops/mon", labelled("app=mon")), pod("ops/copy", labelled("app=web")))
}

func newHarness(t *testing.T, backend lab.Backend, config lab.Config) *harness {
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
	w := &harness{Network: l, backend: backend, attach: config.Attach, hosts: map[string]*lab.Host{"out": l.Outside()},
		places: map[*lab.Host]*lab.Node{}, veths: map[string]string{}, sets: map[*lab.Node]*ipset.Conn{}}
	for i, n := range l.Nodes() {
		w.hosts["n"+strconv.Itoa(i+1)] = n.Host
		w.openSets(t, n)
	}
	for name, node := range cast() {
		w.addPod(t, node, ownName(name), lab.PodConfig{})
	}
	for _, h := range w.hosts {
		serve(t, h)
	}
	return w
}

// openSets opens a node's sets.
func (w *harness) openSets(t *testing.T, n *lab.Node) {
	t.Helper()
	if err := n.Do(func() (err error) {
		w.sets[n], err = ipset.Open()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.sets[n].Close() })
}

// addPod attaches a pod to a node, without an object.
func (w *harness) addPod(t *testing.T, node, name string, config lab.PodConfig) *lab.Pod {
	t.Helper()
	p, err := w.Node(node).AddPod(name, config)
	if err != nil {
		t.Fatal(err)
	}
	w.hosts[name] = p.Host
	w.places[p.Host] = p.Node()
	w.veths[name] = p.Port()
	return p
}

// closePod ends a pod that addPod made.
func (w *harness) closePod(t *testing.T, p *lab.Pod) {
	t.Helper()
	delete(w.hosts, p.Name())
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// serve starts a host's servers. The other ports answer with a refusal.
func serve(t *testing.T, h *lab.Host) {
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

// nodeOf returns the node of a pod, nil for other hosts.
func (w *harness) nodeOf(h *lab.Host) *lab.Node { return w.places[h] }

// replacer replaces $web4, $web6 and the like by the addresses of hosts.
func (w *harness) replacer() *strings.Replacer {
	var pairs []string
	for name, h := range w.hosts {
		for _, family := range []int{4, 6} {
			if a := h.Addr(family); a.IsValid() {
				pairs = append(pairs, "$"+name+strconv.Itoa(family), a.String())
			}
		}
	}
	return strings.NewReplacer(pairs...)
}

// startDaemons starts weave-npc on every node. On the first one it knows local pods by their interface, if there is
// one, on the others by their addresses.
func (w *harness) startDaemons(t *testing.T, args ...string) {
	t.Helper()
	for i, n := range w.Nodes() {
		w.daemons = append(w.daemons, startDaemon(t, n, w.daemonArgs(i, args...)...))
	}
	for _, d := range w.daemons {
		d.awaitReady(t)
	}
}

// daemonArgs returns the flags of weave-npc on the node with an index. Allowed packets are accepted, as with an API
// server, unless args have another --allow-action.
func (w *harness) daemonArgs(i int, args ...string) []string {
	n := w.Nodes()[i]
	own := []string{"--iptables-backend", string(w.backend), "--allow-action", "ACCEPT"}
	if i == 0 && n.PodInterface() != "" {
		own = append(own, "--pod-interface", n.PodInterface())
	} else {
		own = append(own, "--pod-cidr", ranges(n))
	}
	return append(own, args...)
}

func ranges(n *lab.Node) string {
	var texts []string
	for _, r := range n.PodRanges() {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, ",")
}

// daemonOn returns the daemon of a node.
func (w *harness) daemonOn(n *lab.Node) *daemon {
	for _, d := range w.daemons {
		if d.node == n {
			return d
		}
	}
	return nil
}

// apply writes objects to the source, and returns when every node has enforced them.
//
// It adds a pod on every node and a policy for a moment. The policy's egress rule names a port of the pods in a
// namespace with a certain label, so the set of that port is filled once namespace, pod and policy have arrived, and
// the pods leave the sets after the transaction with everything else has been applied.
func (w *harness) apply(t *testing.T, o *objects) {
	t.Helper()
	w.step++
	number := strconv.Itoa(w.step)
	mark := o.clone()
	namespace("sync", "step="+number)(w, mark)
	policy("sync/step-"+number, `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: `+
		`{matchLabels: {step: "`+number+`"}}}], ports: [{port: sync}]}]}`)(w, mark)
	for _, n := range w.Nodes() {
		pod("sync/step-"+number+"-"+n.Name(), on(n.Name()), port("sync", int32(2000+w.step), ""), running(syncByte, n.PodRanges()[0]))(w, mark)
	}
	w.source.write(t, mark)
	w.awaitSync(t, true)

	without("sync/step-"+number)(w, mark)
	for _, n := range w.Nodes() {
		pod("sync/step-"+number+"-"+n.Name(), phase(corev1.PodSucceeded))(w, mark)
	}
	w.source.write(t, mark)
	w.awaitSync(t, false)
}

// syncAddr returns the last but one address of a node's first range, which no pod has.
func syncAddr(n *lab.Node) netip.Addr { return within(n.PodRanges()[0], syncByte) }

// syncByte is the last byte of the addresses that apply waits for.
const syncByte = 254

// within returns the address of a range with the given last byte.
func within(r netip.Prefix, last byte) netip.Addr {
	raw := r.Addr().AsSlice()
	raw[len(raw)-1] = last
	a, _ := netip.AddrFromSlice(raw)
	return a
}

// awaitSync waits until the node's sets hold the present step's pod with its port, or do not hold it any more.
func (w *harness) awaitSync(t *testing.T, there bool) {
	t.Helper()
	for _, n := range w.Nodes() {
		var sets []ipset.Listing
		await.Within(t, max(timeout, w.timeout), func() bool {
			if d := w.daemonOn(n); d != nil && !d.running() {
				t.Fatalf("weave-npc on %s has ended: %v\n%s", n, d.end.err, d.log)
			} else if d != nil && d.complains() {
				d.checkLog(t)
				t.FailNow()
			}
			sets = w.listSets(t, n)
			if there {
				const tcp = 6
				return holds(sets, ipset.AddrPort(syncAddr(n), tcp, uint16(2000+w.step)))
			}
			return !holds(sets, ipset.Addr(syncAddr(n)))
		}, func() string {
			return fmt.Sprintf("%s does not follow step %d (there: %t)\n%s\n%s", n, w.step, there, w.daemonOn(n).log,
				lab.DumpFilter(n))
		})
	}
}

func (w *harness) listSets(t *testing.T, n *lab.Node) []ipset.Listing {
	t.Helper()
	sets, err := w.sets[n].List("weave-")
	if err != nil {
		t.Fatal(err)
	}
	return sets
}

func holds(sets []ipset.Listing, e ipset.Entry) bool {
	for _, s := range sets {
		for _, m := range s.Members {
			if m.Entry == e {
				return true
			}
		}
	}
	return false
}

func asUID(text string) types.UID { return types.UID(text) }
