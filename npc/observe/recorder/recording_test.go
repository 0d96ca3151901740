package recorder

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/verdict"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
	"github.com/weave-npc/weave-npc/ulogd"
)

// names is a fake: pods by address, those of this node first.
type names struct{ local, remote map[netip.Addr]npc.Pod }

func (n names) PodAt(a netip.Addr) (npc.Pod, bool) {
	if p, ok := n.local[a]; ok {
		return p, true
	}
	p, ok := n.remote[a]
	return p, ok
}

func (n names) NameOf(a netip.Addr) string {
	if a == node {
		return "node"
	}
	return ""
}

func (n names) IsLocal(a netip.Addr) bool {
	_, ok := n.local[a]
	return ok
}

// Differences has one rule deny everything, which a group allows.
func (n names) Differences(verdict.Flow) (verdict.Verdict, []verdict.Difference) {
	return verdict.Verdict{Evaluated: true, Direction: npc.Egress, By: verdict.By{Tier: "Admin", Policy: "guard", Number: 2, Content: "c"}},
		[]verdict.Difference{{Group: "open", Content: "1", Policy: "open-all", Verdict: verdict.Verdict{Allowed: true}}}
}

// Evaluate takes 2,000 comparisons for port 2000.
func (n names) Evaluate(most int, f verdict.Flow) (v verdict.Verdict, costly string) {
	if f.Port == 2000 && most < 2000 {
		return v, "shop"
	}
	v, _ = n.Differences(f)
	return v, ""
}

// NamesAt has one name for an address outside, as web knows it.
func (n names) NamesAt(pod, a netip.Addr) []string {
	if pod == web && a != db {
		return []string{"api.example.com"}
	}
	return nil
}

func (n names) Groups() map[string]string { return map[string]string{"open": "1"} }

// guard is the rule that denies everything.
var guard = []flowlog.Applied{{RuleRef: flowlog.RuleRef{Tier: "Admin", Policy: "guard", Number: 2, Direction: "egress"}, Content: "c"}}

var (
	web, db, node = netip.MustParseAddr("10.32.1.2"), netip.MustParseAddr("10.32.2.2"), netip.MustParseAddr("172.31.0.11")
	outside       = netip.MustParseAddr("192.0.2.1")
	cast          = names{
		local: map[netip.Addr]npc.Pod{web: {Namespace: "shop", Name: "web-1", Labels: map[string]string{"app": "web"},
			Workload: &npc.Workload{Kind: "Deployment", Name: "web"}}},
		remote: map[netip.Addr]npc.Pod{db: {Namespace: "data", Name: "db", Ports: []npc.NamedPort{{Name: "pg", Protocol: 6, Port: 5432},
			{Name: "dns", Protocol: 17, Port: 53}}}},
	}
)

func newRecorder(t *testing.T, configure func(*Config)) *Recorder {
	t.Helper()
	c := Config{Node: "node1", Records: 1000, Names: cast, Domains: cast, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)}
	configure(&c)
	r := New(c)
	if err := r.Open(); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestEvaluate shows that the ends are named, and connections without a pod of this node are left out.
func TestEvaluate(t *testing.T) {
	pg := flow.Service{Protocol: 6, Port: 5432}
	for _, test := range []struct {
		name       string
		src, dst   netip.Addr
		service    flow.Service
		from, to   string
		ports      string
		unconcerns bool
	}{
		{"from a local pod", web, db, pg, "shop/Deployment/web", "data/Pod/db", "[pg]", false},
		{"another port", web, db, flow.Service{Protocol: 6, Port: 53}, "shop/Deployment/web", "data/Pod/db", "[]", false},
		{"from a local pod to a name", web, outside, pg, "shop/Deployment/web", "192.0.2.1 api.example.com", "[]", false},
		{"to its node", web, node, pg, "shop/Deployment/web", "node", "[]", false},
		{"to a local pod", outside, web, pg, "192.0.2.1", "shop/Deployment/web", "[]", false},
		{"from the node", node, web, pg, "node", "shop/Deployment/web", "[]", false},
		{"of other nodes", outside, db, pg, "", "", "", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			end := func(e flowlog.End) string {
				switch {
				case e.IsPod():
					return e.Namespace + "/" + e.Workload
				case e.NodeAddr:
					return "node"
				}
				return strings.Join(append([]string{e.Addr.String()}, e.DomainNames...), " ")
			}
			j, concerned := evaluator{Names: cast, domains: cast}.Evaluate(test.src, test.dst, test.service)
			if concerned == test.unconcerns || concerned && (end(j.From) != test.from || end(j.To) != test.to || fmt.Sprint(j.PortNames) != test.ports ||
				j.Verdict != flowlog.Denied || !slices.Equal(j.By, guard) || len(j.Staged) != 1) {
				t.Errorf("%+v %v", j, concerned)
			}
		})
	}
}

// TestS99_DeniedPacketsAreRecorded as connections, if their port is known.
func TestS99_DeniedPacketsAreRecorded(t *testing.T) {
	r := newRecorder(t, func(*Config) {})
	packet := ulogd.Packet{Src: web, Dst: db, Protocol: 6, SrcPort: 4711, DstPort: 5432}
	r.Denied(packet)
	packet.SrcPort++
	r.Denied(packet)
	packet.Fragment = true
	r.Denied(packet)
	packet.Fragment, packet.Truncated = false, true
	r.Denied(packet)
	got, _ := r.store.Since(0)
	if len(got) != 1 || got[0].Count != 2 || got[0].Verdict != flowlog.Denied || got[0].Port != (flow.Service{Protocol: 6, Port: 5432}) {
		t.Errorf("%+v", got)
	}
}

// TestPairsOfNamespacesAreBounded, and those beyond the bound are counted together.
func TestPairsOfNamespacesAreBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := newRecorder(t, func(c *Config) { c.Registry = registry })
	for i := range maxPairs + 10 {
		end := flowlog.End{Namespace: fmt.Sprint("n", i), Workload: "Pod/x"}
		r.store.Seen(flowlog.Connection{}, flowlog.Evaluation{From: end, To: flowlog.End{Addr: outside}, Verdict: flowlog.Allowed}, 2)
	}
	r.store.Seen(flowlog.Connection{}, flowlog.Evaluation{From: flowlog.End{Namespace: "n0", Workload: "Pod/x"}, To: flowlog.End{Addr: outside}, Verdict: flowlog.Denied}, 1)
	collected, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series, others := 0, 0.0
	for _, family := range collected {
		if family.GetName() != "weavenpc_flows_connections_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			series++
			if m.GetLabel()[0].GetValue() == "other" {
				others += m.GetCounter().GetValue()
			}
		}
	}
	if series != maxPairs+2 || others != 20 {
		t.Errorf("%d series, and %g of others", series, others)
	}
}

// bothWays has a rule of either direction allow everything.
type bothWays struct{ names }

func (bothWays) Differences(verdict.Flow) (verdict.Verdict, []verdict.Difference) {
	return verdict.Verdict{Evaluated: true, Allowed: true, Direction: npc.Egress,
		By: verdict.By{Policy: "shop/out", Number: 1, Content: "a"}, Also: verdict.By{Policy: "shop/in", Number: 3, Content: "b"}}, nil
}

// TestHitsOfRules are of the rules of both directions, of what is recorded and of nothing else.
func TestHitsOfRules(t *testing.T) {
	r := newRecorder(t, func(c *Config) { c.Names = bothWays{cast} })
	opened := flowlog.Connection{Src: web, Dst: db, Service: flow.Service{Protocol: 6, Port: 80}}
	r.store.Add(time.Now(), evaluator{Names: r.config.Names, domains: r.config.Domains}, flowlog.Allowed, []flowlog.Connection{opened, opened, {Src: outside, Dst: db, Service: opened.Service}})
	var got []string
	for _, h := range r.store.Hits().Rules {
		got = append(got, fmt.Sprintf("%s %d by %s", h.Verdict, h.Count, h.RuleRef))
	}
	slices.Sort(got)
	if want := "[allowed 2 by egress rule 1 of policy shop/out allowed 2 by ingress rule 3 of policy shop/in]"; fmt.Sprint(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
	records, _ := r.store.Since(0)
	if len(records) != 1 || *records[0].By != (flowlog.RuleRef{Policy: "shop/out", Number: 1, Direction: "egress"}) {
		t.Errorf("%+v", records)
	}
}

// TestRulesInMetricsAreBounded, and those beyond the bound are counted together.
func TestRulesInMetricsAreBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := newRecorder(t, func(c *Config) { c.Registry = registry })
	for i := range maxRules + 10 {
		by := []flowlog.Applied{{RuleRef: flowlog.RuleRef{Policy: fmt.Sprint("shop/p", i), Number: 1, Direction: "ingress"}, Content: "c"}}
		r.store.Seen(flowlog.Connection{}, flowlog.Evaluation{Verdict: flowlog.Allowed, By: by}, 2)
		r.store.Seen(flowlog.Connection{}, flowlog.Evaluation{Verdict: flowlog.Allowed, By: by}, 1)
	}
	collected, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series, others := 0, 0.0
	for _, family := range collected {
		if family.GetName() != "weavenpc_flows_rule_connections_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			series++
			if m.GetLabel()[0].GetValue() == "other" {
				others += m.GetCounter().GetValue()
			} else if m.GetCounter().GetValue() != 3 {
				t.Errorf("%v", m)
			}
		}
	}
	if series != maxRules+1 || others != 30 {
		t.Errorf("%d series, and %g of others", series, others)
	}
}

// TestRepliesAreLookedForRarely where none arrive, and soon for new connections.
func TestRepliesAreLookedForRarely(t *testing.T) {
	a, b := flowlog.Connection{Src: web}, flowlog.Connection{Src: db}
	set := func(all ...flowlog.Connection) map[flowlog.Connection]uint64 {
		out := map[flowlog.Connection]uint64{}
		for _, c := range all {
			out[c] = 0
		}
		return out
	}
	period := repliesPeriod
	for _, step := range []struct {
		known, waiting map[flowlog.Connection]uint64
		want           time.Duration
	}{
		{nil, set(), repliesPeriod}, {set(), set(a), repliesPeriod}, {set(a), set(a), 2 * repliesPeriod}, {set(a), set(a), 4 * repliesPeriod},
		{set(a), set(a, b), repliesPeriod}, {set(a, b), set(b), 2 * repliesPeriod}, {set(b), set(), repliesPeriod},
	} {
		if period = nextPeriod(period, step.known, step.waiting); period != step.want {
			t.Errorf("%v after %v: %s, want %s", step.waiting, step.known, period, step.want)
		}
	}
	for range 20 {
		period = nextPeriod(period, set(a), set(a))
	}
	if period != maxRepliesPeriod {
		t.Errorf("at most %s", period)
	}
}

// TestOpen reads the file, and says once that it holds something else.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "flows.json"), []byte("x\ny\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "hits.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	newRecorder(t, func(c *Config) {
		c.Directory, c.Socket, c.Log = dir, filepath.Join(dir, "flows.sock"), slog.New(slog.NewTextHandler(&log, nil))
	})
	text := log.String()
	if strings.Count(text, "\n") != 2 || !strings.Contains(text, "lines=2") || !strings.Contains(text, "hits of rules are counted from now on") {
		t.Error(text)
	}
}
