package reach

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/explain"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/tiers"
)

func setPolicy(t testing.TB, c *cluster.Cluster, key, spec string) {
	t.Helper()
	c.SetPolicy(fixture.Policy(t, key, spec))
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// randomWorld has few labels, ports and addresses, so that many pods are alike, some claim the same address, and some report a stale one.
func randomWorld(t *testing.T, r *rand.Rand) *cluster.Cluster {
	w := cluster.New()
	w.LegacyNetpol = r.IntN(8) == 0
	for _, ns := range []string{"a", "b", "c"} {
		if r.IntN(6) > 0 {
			w.SetNamespace(npc.Namespace{Name: ns, Labels: map[string]string{"team": pick(r, "x", "y")}, DefaultDeny: r.IntN(2) == 0})
		}
	}
	for i := range 14 {
		node := r.IntN(2) + 1
		p := npc.Pod{Namespace: pick(r, "a", "b", "c"), Name: fmt.Sprintf("p%d", i), Node: fmt.Sprintf("node%d", node),
			Labels:    map[string]string{"app": pick(r, "web", "db"), "of-no-policy": pick(r, "1", "2")},
			HostAddrs: []netip.Addr{netip.AddrFrom4([4]byte{172, 31, 0, byte(node)})}}
		if r.IntN(3) > 0 {
			p.Labels["tier"] = pick(r, "1", "2")
		}
		if r.IntN(5) > 0 {
			p.Addrs = append(p.Addrs, netip.AddrFrom4([4]byte{10, 32, byte(r.IntN(2)), byte(r.IntN(40))}))
		}
		if r.IntN(3) > 0 {
			p.Addrs = append(p.Addrs, netip.MustParseAddr(fmt.Sprintf("fd32::%d:%d", r.IntN(2), i)))
		}
		if r.IntN(2) == 0 {
			p.Ports = []npc.NamedPort{{Name: "http", Protocol: 6, Port: pick[uint16](r, 80, 8080)}}
		}
		p.StaleAddrs = r.IntN(20) == 0
		w.SetPod(p)
	}
	for i := range r.IntN(6) {
		setPolicy(t, w, pick(r, "a", "b", "c")+"/"+fmt.Sprint("q", i), randomSpec(r))
	}
	if r.IntN(2) == 0 {
		for i, a := range []string{"172.31.0.1", "10.32.0.9", "fd99::1"} { // pods may have addresses of Nodes too
			n := npc.Node{Name: fmt.Sprint("node", i+1), Labels: map[string]string{"zone": pick(r, "x", "y")}, Addrs: []netip.Addr{netip.MustParseAddr(a)}}
			for j := range 5 {
				n.Addrs = append(n.Addrs, netip.AddrFrom4([4]byte{10, 32, 1, byte(5*i + j)}))
			}
			w.SetNode(n)
		}
		for range r.IntN(5) {
			w.SetClusterPolicy(randomClusterPolicy(r))
		}
	}
	return w
}

// randomClusterPolicy returns one about the pods and namespaces of a random world.
func randomClusterPolicy(r *rand.Rand) *v1alpha2.ClusterNetworkPolicy {
	return rapid.Custom(func(t *rapid.T) *v1alpha2.ClusterNetworkPolicy {
		return tiers.Draw(t, tiers.Universe{Names: []string{"p", "q", "r", "s"}, Namespaces: []map[string]string{{"team": "x"}, {"team": "y"}},
			Pods:  []map[string]string{{"app": "web"}, {"app": "db", "tier": "1"}, {"tier": "2"}},
			Nodes: []map[string]string{{"zone": "x"}, {"zone": "y"}},
			CIDRs: []v1alpha2.CIDR{"0.0.0.0/0", "::/0", "10.32.0.0/17", "10.32.0.16/28", "172.31.0.0/16", "fd32::1:0/112"},
			Ports: []int32{80, 443, 8080}, PortNames: []string{"http"}})
	}).Example(r.Int())
}

func randomSpec(r *rand.Rand) string {
	selector := func() string {
		return pick(r, "{}", "{matchLabels: {app: web}}", "{matchLabels: {app: db, tier: '1'}}",
			"{matchExpressions: [{key: tier, operator: DoesNotExist}]}", "{matchExpressions: [{key: app, operator: NotIn, values: [web]}]}")
	}
	peer := func() string {
		switch r.IntN(5) {
		case 0:
			return "{podSelector: " + selector() + "}"
		case 1:
			return "{namespaceSelector: {matchLabels: {team: " + pick(r, "x", "y") + "}}, podSelector: " + selector() + "}"
		case 2:
			return "{namespaceSelector: {}}"
		case 3:
			return "{ipBlock: {cidr: 10.32.0.0/16, except: [10.32." + pick(r, "0.0/25", "0.16/28", "1.0/24") + "]}}"
		default:
			return "{ipBlock: {cidr: '" + pick(r, "0.0.0.0/0", "::/0", "10.32.0.8/29", "fd32::1:0/112", "172.31.0.0/16") + "'}}"
		}
	}
	rules := func(peers string) (text string) {
		for i := range r.IntN(3) {
			if i > 0 {
				text += ", "
			}
			switch r.IntN(3) {
			case 0:
				text += "{" + peers + ": [" + peer() + "]}"
			case 1:
				text += "{" + peers + ": [" + peer() + ", " + peer() + "], ports: [{port: http}, {port: 443}]}"
			default:
				text += "{ports: [{port: " + pick(r, "80", "http", "443", "1, endPort: 100") + "}]}"
			}
		}
		return "[" + text + "]"
	}
	return fmt.Sprintf("{podSelector: %s, policyTypes: %s, ingress: %s, egress: %s}", selector(),
		pick(r, "[Ingress]", "[Egress]", "[Ingress, Egress]"), rules("from"), rules("to"))
}

// explained returns what explain answers about two pods or addresses, and for how many flows and directions cluster network policies decide.
func explained(t *testing.T, c *cluster.View, from, to string, s flow.Service) (_ cell, byTiers int) {
	t.Helper()
	flows, n := flow.Between(ownedEnds(t, c, from), ownedEnds(t, c, to), s), 0
	for _, f := range flows {
		v := explain.Explain(c, f)
		if v.Allowed {
			n++
		}
		for _, side := range []explain.Side{v.Egress, v.Ingress} {
			if side.By != nil {
				byTiers++
			}
		}
	}
	switch {
	case len(flows) == 0:
		return cellNever, byTiers
	case n == 0:
		return cellDenied, byTiers
	case n == len(flows):
		return cellAllowed, byTiers
	}
	return cellPartly, byTiers
}

// ownedEnds returns the ends that a matrix has of a pod, or an address.
func ownedEnds(t *testing.T, c *cluster.View, text string) []flow.End {
	t.Helper()
	if strings.Contains(text, "/") {
		return c.OwnedEnds(text)
	}
	ends, err := c.Find(text)
	if err != nil {
		t.Fatal(err)
	}
	return ends
}

// members are the pods of a row, or the address that it is.
func members(r Row) []string {
	if len(r.Pods) > 0 {
		return r.Pods
	}
	return []string{r.Name}
}

// TestClassesGetTheVerdictsOfTheirPods compares every pair of pods with what explain answers about it.
func TestClassesGetTheVerdictsOfTheirPods(t *testing.T) {
	folded, byTiers := 0, 0
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := randomWorld(t, r)
		s := pick(r, flow.Service{Protocol: 6, Port: 80}, flow.Service{Protocol: 6, Port: 8080}, flow.Service{Protocol: 1},
			flow.Service{Protocol: 6, Port: 443})
		m, err := NewMatrix(w.View(), Options{Service: s, Addresses: []string{"172.31.0.1", "10.32.0.9", "224.0.0.1", "fd99::1"},
			EachPod: seed%4 == 0})
		if err != nil {
			t.Fatal(err)
		}
		for i, from := range m.From {
			if len(from.Pods) > 1 {
				folded++
			}
			for j, to := range m.To {
				for _, a := range members(from) {
					for _, b := range members(to) {
						if a == b && len(to.Pods) > 1 {
							continue // the cell is about two different ones
						}
						want, decided := explained(t, w.View(), a, b, s)
						if got := m.cell(i, j); got != want {
							t.Fatalf("seed %d: %s -> %s, %s: %s, and explain answers %s", seed, a, b, s, got, want)
						}
						byTiers += decided
					}
				}
			}
		}
	}
	if folded < 40 {
		t.Errorf("only %d rows had several pods", folded)
	}
	if byTiers < 2000 {
		t.Errorf("only %d verdicts were by cluster network policies", byTiers)
	}
}

// crowd has 20 namespaces; in each, ten policies choose ten kinds of pods; each kind has as many pods as it is told.
func crowd(t testing.TB, each int) *cluster.Cluster {
	w := cluster.New()
	for n := range 20 {
		ns := fmt.Sprintf("ns%d", n)
		w.SetNamespace(npc.Namespace{Name: ns, Labels: map[string]string{"team": fmt.Sprint(n % 4)}})
		for a := range 10 {
			setPolicy(t, w, fmt.Sprintf("%s/p%d", ns, a), fmt.Sprintf(`{podSelector: {matchLabels: {app: a%d}}, policyTypes: [Ingress, Egress],
				ingress: [{from: [{podSelector: {matchLabels: {app: a%d}}}, {namespaceSelector: {matchLabels: {team: "%d"}}}]},
					{from: [{ipBlock: {cidr: 10.%d.0.0/16, except: [10.%d.%d.0/24]}}], ports: [{port: 80}]}],
				egress: [{to: [{podSelector: {}}, {ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8]}}]}]}`, a, (a+1)%10, a%4, n, n, a))
			for i := range each {
				w.SetPod(npc.Pod{Namespace: ns, Name: fmt.Sprintf("app%d-%d", a, i), Node: fmt.Sprintf("node%d", (n*7+i)%100),
					Labels: map[string]string{"app": fmt.Sprint("a", a), "statefulset.kubernetes.io/pod-name": fmt.Sprintf("app%d-%d", a, i)},
					Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(n), byte(a), byte(i)}),
						netip.MustParseAddr(fmt.Sprintf("fd32:%x::%x:%x", n, a, i))}})
			}
		}
	}
	return w
}

// allocated is what a matrix takes in memory, given back or not.
func allocated(t testing.TB, w *cluster.Cluster, eachPod bool) float64 {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m, err := NewMatrix(w.View(), Options{Service: flow.Service{Protocol: 6, Port: 80}, EachPod: eachPod})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.WriteText(io.Discard); err != nil {
		t.Fatal(err)
	}
	if err := m.WriteJSON(io.Discard); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc - before.TotalAlloc)
}

// TestMemoryOfManyPods shows that memory grows with the pods, not with their pairs, be they folded or not.
func TestMemoryOfManyPods(t *testing.T) {
	for _, c := range []struct {
		eachPod   bool
		few, many int // of each kind
	}{{false, 5, 50}, {true, 1, 8}} {
		small, large := allocated(t, crowd(t, c.few), c.eachPod), allocated(t, crowd(t, c.many), c.eachPod)
		times := float64(c.many) / float64(c.few)
		if ratio := large / small; ratio > 2*times {
			t.Errorf("each pod %t: %.0f times as many pods take %.1f times the memory (%.0f and %.0f MB)", c.eachPod, times, ratio, small/1e6, large/1e6)
		}
		if large > 300e6 {
			t.Errorf("each pod %t: takes %.0f MB", c.eachPod, large/1e6)
		}
	}
}

func BenchmarkMatrix(b *testing.B) {
	w := crowd(b, 50)
	for b.Loop() {
		allocated(b, w, false)
	}
}

// TestRowsOfReplicas shows what rows are, and what they are called.
func TestRowsOfReplicas(t *testing.T) {
	w := cluster.New()
	pod := func(name, labels string, addr byte) {
		w.SetPod(npc.Pod{Namespace: "shop", Name: name, Labels: fixture.Labels(t, labels),
			Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 32, 1, addr})}})
	}
	pod("web-7d4-a", "{app: web, pod-template-hash: 7d4}", 1)
	pod("web-7d4-b", "{app: web, pod-template-hash: 7d4}", 2)
	pod("db-0", "{app: db, apps.kubernetes.io/pod-index: '0'}", 3)
	pod("db-1", "{app: db, apps.kubernetes.io/pod-index: '1'}", 4)
	pod("db-admin", "{app: admin}", 5)
	pod("x", "{app: cache}", 6)
	pod("y", "{app: cache}", 7)
	text := func(each bool) string {
		m, err := NewMatrix(w.View(), Options{Service: flow.Service{Protocol: 6, Port: 80}, EachPod: each})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, r := range m.From {
			names = append(names, r.Name)
		}
		return strings.Join(names, "; ")
	}
	want := "shop/db-0 and 1 more; shop/db-admin; shop/web-7d4-* (2 pods); shop/x and 1 more"
	if got := text(false); got != want {
		t.Errorf("rows are %s,\nnot      %s", got, want)
	}
	setPolicy(t, w, "shop/first", `{podSelector: {matchLabels: {apps.kubernetes.io/pod-index: "0"}}}`)
	want = "shop/db-0; shop/db-1; shop/db-admin; shop/web-7d4-* (2 pods); shop/x and 1 more"
	if got := text(false); got != want {
		t.Errorf("a policy tells replicas apart, and rows are %s,\nnot %s", got, want)
	}
	want = "shop/db-0; shop/db-1; shop/db-admin; shop/web-7d4-a; shop/web-7d4-b; shop/x; shop/y"
	if got := text(true); got != want {
		t.Errorf("each pod has a row of its own, and they are %s,\nnot %s", got, want)
	}
}

// TestNamespacesOfAMatrix shows which pairs are in the matrix when namespaces are chosen.
func TestNamespacesOfAMatrix(t *testing.T) {
	w := cluster.New()
	for i, name := range []string{"a/x", "b/y", "c/z"} {
		ns, name, _ := strings.Cut(name, "/")
		w.SetPod(npc.Pod{Namespace: ns, Name: name, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 32, 1, byte(i + 1)})}})
	}
	for _, c := range []struct {
		name string
		o    Options
		want string // pairs
	}{
		{"to_or_from", Options{Either: "b"}, "a/x>b/y b/y>a/x b/y>b/y b/y>c/z c/z>b/y"},
		{"from", Options{From: "b"}, "b/y>a/x b/y>b/y b/y>c/z"},
		{"to", Options{To: "b"}, "a/x>b/y b/y>b/y c/z>b/y"},
		{"from_and_to", Options{From: "a", To: "b"}, "a/x>b/y"},
		{"within", Options{From: "a", To: "a"}, "a/x>a/x"},
		{"with_an_address", Options{From: "a", To: "a", Addresses: []string{"192.0.2.1"}},
			"a/x>a/x a/x>192.0.2.1 192.0.2.1>a/x 192.0.2.1>192.0.2.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Service = flow.Service{Protocol: 6, Port: 80}
			m, err := NewMatrix(w.View(), c.o)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i, from := range m.From {
				for j, to := range m.To {
					if m.asked(i, j) {
						got = append(got, from.Name+">"+to.Name)
					}
				}
			}
			if said := strings.Join(got, " "); said != c.want {
				t.Errorf("asks %s,\nnot  %s", said, c.want)
			}
			inText(t, m, len(got))
			inJSON(t, m, len(got))
		})
	}
}

// inText counts the signs of the table.
func inText(t *testing.T, m *Matrix, want int) {
	t.Helper()
	var b bytes.Buffer
	if err := m.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(b.String(), "\n")
	if got := strings.Count(table, "+"); got != want {
		t.Errorf("the text has %d signs, not %d:\n%s", got, want, &b)
	}
}

// inJSON counts the cells that are not null.
func inJSON(t *testing.T, m *Matrix, want int) {
	t.Helper()
	var b bytes.Buffer
	if err := m.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Port     string
		From, To []struct{ Name string }
		Cells    [][]*string
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatalf("%v\n%s", err, &b)
	}
	n := 0
	for _, row := range got.Cells {
		for _, c := range row {
			if c != nil && *c == "allowed" {
				n++
			}
		}
	}
	if n != want || got.Port != "tcp/80" || len(got.Cells) != len(got.From) || len(got.Cells[0]) != len(got.To) {
		t.Errorf("the JSON has %d cells, not %d:\n%s", n, want, &b)
	}
}
