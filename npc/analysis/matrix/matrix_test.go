package matrix

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/analysis/internal/reachability"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/random"
)

// explained returns what explain answers about two pods or addresses, and for how many flows and directions cluster
// network policies decide.
func explained(t *testing.T, c *cluster.View, from, to string, s flow.Service) (_ reachability.Cell, byTiers int) {
	t.Helper()
	flows, n, unknown := flow.Between(ownedEnds(t, c, from), ownedEnds(t, c, to), s), 0, false
	for _, f := range flows {
		v := explain.Explain(c, f)
		if v.Allowed {
			n++
		}
		unknown = unknown || v.Unknown
		for _, side := range []explain.Side{v.Egress, v.Ingress} {
			if side.By != nil {
				byTiers++
			}
		}
	}
	switch {
	case unknown:
		return reachability.CellUnknown, byTiers
	case len(flows) == 0:
		return reachability.CellNever, byTiers
	case n == 0:
		return reachability.CellDenied, byTiers
	case n == len(flows):
		return reachability.CellAllowed, byTiers
	}
	return reachability.CellPartly, byTiers
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
	folded, byTiers, named := 0, 0, 0
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := random.Cluster(t, r)
		s := random.Pick(r, flow.Service{Protocol: 6, Port: 80}, flow.Service{Protocol: 6, Port: 8080}, flow.Service{Protocol: 1},
			flow.Service{Protocol: 6, Port: 443})
		m, err := New(w.View(), Options{Service: s, Addresses: []string{"172.31.0.1", "10.32.0.9", "224.0.0.1", "fd99::1"},
			EachPod: seed%4 == 0})
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]string{} // domain name -> the address that stands for it
		domains := reachability.Domains(nil, nil, w.View())
		for a, of := range domains {
			names[of[0]] = a.String()
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
						v := w.View()
						if of := names[b]; of != "" {
							v, b = cluster.WithLearned(v, domains), of
							named++
						}
						want, decided := explained(t, v, a, b, s)
						if got := m.cell(i, j); got != want {
							t.Fatalf("seed %d: %s -> %s, %s: %s, and explain answers %s", seed, a, b, s, got, want)
						}
						byTiers += decided
					}
				}
			}
		}
	}
	if named < 200 {
		t.Errorf("only %d verdicts were about domain names", named)
	}
	if folded < 40 {
		t.Errorf("only %d rows had several pods", folded)
	}
	if byTiers < 2000 {
		t.Errorf("only %d verdicts were by cluster network policies", byTiers)
	}
}

// crowd has 20 namespaces. In each, ten policies select ten kinds of pods. Each kind has the given number of pods.
func crowd(t testing.TB, each int) *cluster.Cluster {
	w := cluster.New()
	for n := range 20 {
		ns := fmt.Sprintf("ns%d", n)
		w.SetNamespace(fixture.Namespace(fmt.Sprintf("%s team=%d", ns, n%4)))
		for a := range 10 {
			w.SetPolicy(fixture.Policy(t, fmt.Sprintf("%s/p%d", ns, a), fmt.Sprintf(`{podSelector: {matchLabels: {app: a%d}}, policyTypes: [Ingress, Egress],
				ingress: [{from: [{podSelector: {matchLabels: {app: a%d}}}, {namespaceSelector: {matchLabels: {team: "%d"}}}]},
					{from: [{ipBlock: {cidr: 10.%d.0.0/16, except: [10.%d.%d.0/24]}}], ports: [{port: 80}]}],
				egress: [{to: [{podSelector: {}}, {ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8]}}]}]}`, a, (a+1)%10, a%4, n, n, a)))
			for i := range each {
				name := fmt.Sprintf("app%d-%d", a, i)
				w.SetPod(fixture.Pod(fmt.Sprintf("%s/%s node%d 10.%d.%d.%d fd32:%x::%x:%x app=a%d statefulset.kubernetes.io/pod-name=%s",
					ns, name, (n*7+i)%100, n, a, i, n, a, i, a, name)))
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
	m, err := New(w.View(), Options{Service: flow.Service{Protocol: 6, Port: 80}, EachPod: eachPod})
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
	for _, facts := range []string{
		"shop/web-7d4-a 10.32.1.1 app=web pod-template-hash=7d4",
		"shop/web-7d4-b 10.32.1.2 app=web pod-template-hash=7d4",
		"shop/db-0 10.32.1.3 app=db apps.kubernetes.io/pod-index=0",
		"shop/db-1 10.32.1.4 app=db apps.kubernetes.io/pod-index=1",
		"shop/db-admin 10.32.1.5 app=admin", "shop/x 10.32.1.6 app=cache", "shop/y 10.32.1.7 app=cache",
	} {
		w.SetPod(fixture.Pod(facts))
	}
	text := func(each bool) string {
		m, err := New(w.View(), Options{Service: flow.Service{Protocol: 6, Port: 80}, EachPod: each})
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
	w.SetPolicy(fixture.Policy(t, "shop/first", `{podSelector: {matchLabels: {apps.kubernetes.io/pod-index: "0"}}}`))
	want = "shop/db-0; shop/db-1; shop/db-admin; shop/web-7d4-* (2 pods); shop/x and 1 more"
	if got := text(false); got != want {
		t.Errorf("a policy distinguishes replicas, and rows are %s,\nnot %s", got, want)
	}
	want = "shop/db-0; shop/db-1; shop/db-admin; shop/web-7d4-a; shop/web-7d4-b; shop/x; shop/y"
	if got := text(true); got != want {
		t.Errorf("each pod has a row of its own, and they are %s,\nnot %s", got, want)
	}
}

// TestDiagonal shows between which pods the cells of a row with itself are.
func TestDiagonal(t *testing.T) {
	for _, test := range []struct {
		name       string
		pods       []string
		unreadable npc.Unreadable
		want       string
	}{
		{"a pod reaches itself", []string{"shop/web-1 10.32.1.1 Deployment/web"}, npc.Unreadable{}, "+"},
		{"a workload's template stands for two pods", []string{"shop/web 10.32.1.1 Deployment/web"}, npc.Unreadable{}, "."},
		{"one with the kind in its name too", []string{"shop/web.job 10.32.1.1 Job/web"}, npc.Unreadable{}, "."},
		{"a pod with the name of what made it", []string{"shop/web 10.32.1.1 Workflow/web"}, npc.Unreadable{}, "+"},
		{"replicas", []string{"shop/web-1 10.32.1.1", "shop/web-2 10.32.1.2"}, npc.Unreadable{}, "."},
		{"replicas, among pods that cannot be read", []string{"shop/web-1 10.32.1.1", "shop/web-2 10.32.1.2"},
			npc.Unreadable{Pods: npc.Partly{Reason: "forbidden", Read: map[string]bool{"shop": true}}}, "."},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := cluster.New()
			for _, facts := range test.pods {
				w.SetPod(fixture.Pod(facts))
			}
			w.SetPolicy(fixture.Policy(t, "shop/deny", `{podSelector: {}}`))
			w.SetUnreadable(test.unreadable)
			m, err := New(w.View(), Options{Service: flow.Service{Protocol: 6, Port: 80}})
			if err != nil {
				t.Fatal(err)
			}
			if got := sign(m.cell(0, 0)); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// TestNamespacesOfAMatrix shows which pairs are in the matrix when namespaces are selected.
func TestNamespacesOfAMatrix(t *testing.T) {
	w := cluster.New()
	for _, facts := range []string{"a/x 10.32.1.1", "b/y 10.32.1.2", "c/z 10.32.1.3"} {
		w.SetPod(fixture.Pod(facts))
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
			m, err := New(w.View(), c.o)
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

// TestNamesAreColumns shows which pods reach which domain names, on a port that policies accept them on and on another.
func TestNamesAreColumns(t *testing.T) {
	c := cluster.New()
	c.SetNamespace(fixture.Namespace("shop"))
	c.SetPod(fixture.Pod("shop/web node1 10.32.1.2 app=web"))
	c.SetPod(fixture.Pod("shop/free node1 10.32.1.3"))
	c.SetClusterPolicy(fixture.ClusterPolicy(t, "names", `{tier: Admin, priority: 1,
		subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}, egress: [
		{action: Accept, to: [{domainNames: [a.example.com]}], protocols: [{tcp: {destinationPort: {number: 443}}}]},
		{action: Accept, to: [{domainNames: ["*.example.org"]}]}, {action: Deny, to: [{networks: [0.0.0.0/0]}]}]}`))
	for service, want := range map[string]string{
		"tcp/443": "free: web + *.example.org + a.example.com +; web: free . *.example.org + a.example.com +",
		"tcp/80":  "free: web + *.example.org + a.example.com +; web: free . *.example.org + a.example.com .",
	} {
		s, err := flow.ParseService(service)
		if err != nil {
			t.Fatal(err)
		}
		m, err := New(c.View(), Options{Service: s})
		if err != nil {
			t.Fatal(err)
		}
		var rows []string
		for i, from := range m.From {
			row := strings.TrimPrefix(from.Name, "shop/") + ":"
			for j, to := range m.To {
				if from.Name != to.Name {
					row += " " + strings.TrimPrefix(to.Name, "shop/") + " " + sign(m.cell(i, j))
				}
			}
			rows = append(rows, row)
		}
		if got := strings.Join(rows, "; "); got != want {
			t.Errorf("%s: %s\nwant %s", service, got, want)
		}
	}
	m, err := New(c.View(), Options{Service: flow.Service{Protocol: 6, Port: 443}, To: "shop", Addresses: []string{"203.0.113.7"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.To) != 3 {
		t.Errorf("a namespace is selected, and its pods, an address and %d others are columns: %v", len(m.To)-3, m.To)
	}
	for i, want := range []string{"+", "?"} { // of a name that web may reach, perhaps
		if got := sign(m.cell(i, 2)); m.To[2].Name != "203.0.113.7" || got != want {
			t.Errorf("%s > %s: %s, want %s", m.From[i].Name, m.To[2].Name, got, want)
		}
	}
}
