package controller_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/verdict"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/observe/kernel/simulate"
)

// TestS95_WhichChangesMayDeny open connections: after these, all connections are evaluated again.
func TestS95_WhichChangesMayDeny(t *testing.T) {
	w := newHarness(t)
	w.Namespace("a", "team=a")
	web := func(f func(*npc.Pod)) func() {
		return func() { w.SetPod("a/web", "10.32.1.2", []string{"app=web"}, f) }
	}
	web(func(*npc.Pod) {})()
	w.Policy("a/p", `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`)
	w.Sync()
	if !w.Model.TakeEdits() {
		t.Error("connections that existed at the start were not evaluated")
	}
	for _, c := range []struct {
		name   string
		change func()
		want   bool
	}{
		{"a pod comes", func() { w.Pod("a/client", "10.32.1.3", "app=client") }, false},
		{"a pod of another node comes", func() { w.Remote("a/far", "10.32.2.3", "app=client") }, false},
		{"a pod of another node has other labels", func() { w.Relabel("a/far", "app=other") }, true},
		{"a pod of another node goes", func() { w.DeletePod("a/far") }, false},
		{"a local pod goes", func() { w.DeletePod("a/client") }, false},
		{"a port has a name", web(func(p *npc.Pod) { p.Ports = []npc.NamedPort{{Name: "web", Protocol: 6, Port: 80}} }), true},
		{"a policy changes", func() { w.Policy("a/p", `{podSelector: {}}`) }, true},
		{"a policy goes", func() { w.DeletePolicy("a/p") }, true},
		{"a namespace has other labels", func() { w.Namespace("a", "team=b") }, true},
		{"a cluster network policy comes", func() {
			w.ClusterPolicy("p", `{tier: Admin, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}`)
		}, true},
		{"it goes", func() { w.Model.DeleteClusterPolicy("p", types.UID("p")) }, true},
	} {
		c.change()
		w.Again(false)
		if got := w.Model.TakeEdits(); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// TestEvaluate names the rule that decides.
func TestEvaluate(t *testing.T) {
	w := newHarness(t)
	w.Namespace("a", "team=a")
	w.Pod("a/web", "10.32.1.2", "app=web")
	w.Pod("a/client", "10.32.1.3", "app=client")
	w.Remote("a/far", "10.32.2.3", "app=far")
	w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [
{from: [{ipBlock: {cidr: 198.51.100.0/24, except: [198.51.100.128/25]}}]}, {from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 80, endPort: 90}]}]}`)
	w.ClusterPolicy("guard", `{tier: Admin, subject: {namespaces: {}}, egress: [{action: Pass, to: [{namespaces: {}}]},
{action: Deny, to: [{networks: [203.0.113.0/24]}]}]}`)
	w.Sync()
	for _, c := range []struct {
		from, to string
		port     uint16
		want     string
	}{
		{"10.32.1.3", "10.32.1.2", 80, "allowed by  a/web 2 (ingress)"},
		{"10.32.2.3", "10.32.1.2", 80, "denied by   0 (ingress)"},
		{"198.51.100.7", "10.32.1.2", 1, "allowed by  a/web 1 (ingress)"},
		{"198.51.100.200", "10.32.1.2", 80, "denied by   0 (ingress)"},
		{"10.32.1.3", "10.32.1.2", 91, "denied by   0 (ingress)"},
		{"10.32.1.3", "203.0.113.9", 443, "denied by Admin guard 2 (egress)"},
		{"10.32.1.2", "192.0.2.1", 443, "allowed by   0 (egress)"},
		{"10.32.2.3", "192.0.2.1", 443, "not evaluated"},
		{"10.32.1.2", "10.32.1.2", 80, "allowed by   0 (ingress)"},
	} {
		f := verdict.Flow{From: netip.MustParseAddr(c.from), To: netip.MustParseAddr(c.to), Service: flow.Service{Protocol: unix.IPPROTO_TCP, Port: c.port}}
		v, _ := w.Model.Evaluate(verdict.NoBound, f)
		got := fmt.Sprintf("%s by %s %s %d (%s)", map[bool]string{true: "allowed", false: "denied"}[v.Allowed], v.By.Tier, v.By.Policy, v.By.Number, v.Direction)
		if !v.Evaluated {
			got = "not evaluated"
		}
		if got != c.want {
			t.Errorf("%s to %s, port %d: %s, want %s", c.from, c.to, c.port, got, c.want)
		}
	}
}

// TestEvaluateNamesBothRules of a connection between two local pods, and distinguishes rules that differ from rules
// that are moved.
func TestEvaluateNamesBothRules(t *testing.T) {
	w := newHarness(t)
	w.Namespace("a", "team=a")
	w.Pod("a/web", "10.32.1.2", "app=web")
	w.Pod("a/client", "10.32.1.3", "app=client")
	w.Remote("a/far", "10.32.2.3", "app=far")
	w.ClusterPolicy("guard", `{tier: Admin, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: client}}}},
egress: [{action: Accept, to: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 81}}}]}]}`)
	evaluate := func(to string, port uint16) verdict.Verdict {
		f := verdict.Flow{From: netip.MustParseAddr("10.32.1.3"), To: netip.MustParseAddr(to),
			Service: flow.Service{Protocol: unix.IPPROTO_TCP, Port: port}}
		v, _ := w.Model.Evaluate(verdict.NoBound, f)
		return v
	}
	const out = `{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{}]}`
	const in = `{podSelector: {matchLabels: {app: web}}, ingress: [%s]}`
	const to80, to81 = `{ports: [{port: 80}]}`, `{ports: [{port: 81}]}`
	contents := map[string]bool{}
	for _, c := range []struct {
		rules, to string
		port      uint16
		want      string
		known     bool
	}{
		{to80, "10.32.1.2", 80, "a/out 1, a/in 1", false},
		{to80, "10.32.2.3", 80, "a/out 1,  0", true},
		{to80, "10.32.1.2", 82, " 0,  0", true},
		{to81 + "," + to80, "10.32.1.2", 80, "a/out 1, a/in 2", true},
		{to81 + "," + to80, "10.32.1.2", 81, "guard 1, a/in 1", false},
		{`{ports: [{port: 80, endPort: 81}]}`, "10.32.1.2", 80, "a/out 1, a/in 1", false},
	} {
		w.Policy("a/out", out)
		w.Policy("a/in", fmt.Sprintf(in, c.rules))
		w.Sync()
		v := evaluate(c.to, c.port)
		if got := fmt.Sprintf("%s %d, %s %d", v.By.Policy, v.By.Number, v.Also.Policy, v.Also.Number); got != c.want {
			t.Errorf("%s to %s, port %d: %s, want %s", c.rules, c.to, c.port, got, c.want)
		}
		if known := contents[v.Also.Content] || v.Also == (verdict.By{}); known != c.known || v.By.Policy != "" && v.By.Content == "" {
			t.Errorf("%s to %s, port %d: the rule was there before: %t", c.rules, c.to, c.port, known)
		}
		contents[v.Also.Content] = true
	}
}

// TestDeniedBy checks the name of the rule of a cluster network policy that denies a flow, with pods and with nodes as
// peers.
func TestDeniedBy(t *testing.T) {
	w := newHarness(t)
	w.Namespace("a", "team=a")
	w.Pod("a/web", "10.32.1.2", "app=web")
	w.Remote("a/db", "10.32.2.3", "app=db")
	w.Model.SetNode(npc.Node{Name: "node9", UID: "node9", Labels: map[string]string{"zone": "x"},
		Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.9")}})
	w.ClusterPolicy("pci", `{tier: Admin, priority: 1, subject: {namespaces: {}},
ingress: [{action: Deny, name: no-db, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}}]}],
egress: [{action: Accept, to: [{networks: [10.0.0.0/8]}]}, {action: Deny, to: [{nodes: {matchLabels: {zone: x}}}]}]}`)
	w.Sync()
	check := func(from, to string, d npc.Direction, want string) {
		t.Helper()
		f := verdict.Flow{From: netip.MustParseAddr(from), To: netip.MustParseAddr(to),
			Service: flow.Service{Protocol: unix.IPPROTO_TCP, Port: 80}}
		if got := w.Model.DeniedBy(f, d); got != want {
			t.Errorf("%s > %s, %s: %q, want %q", from, to, d, got, want)
		}
	}
	check("10.32.2.3", "10.32.1.2", npc.Ingress, "Admin policy pci/rule 1 'no-db'")
	check("10.32.1.2", "192.0.2.9", npc.Egress, "Admin policy pci/rule 2")
	check("10.32.1.2", "10.32.2.3", npc.Egress, "")
	check("192.0.2.9", "10.32.1.2", npc.Ingress, "")
	w.Model.DeleteNode("node9", "node9")
	w.Again(false)
	check("10.32.1.2", "192.0.2.9", npc.Egress, "")
	w.Model.DeleteClusterPolicy("pci", types.UID("pci"))
	w.Again(false)
	check("10.32.2.3", "10.32.1.2", npc.Ingress, "")
}

// TestS96_PacketsOfEndedConnections are dropped wherever they come from, and those of others are not.
func TestS96_PacketsOfEndedConnections(t *testing.T) {
	for _, jump := range []bool{true, false} {
		w := newHarness(t, func(c *enforce.Config) { c.TerminateMark, c.ForwardJump = 0x2000, jump })
		w.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
		w.Sync()
		endedPackets(t, w, jump, false)
	}
}

// TestS115_PacketsOfConnectionsThatEndedLate are dropped from when some are to end: there are no rules for it before.
func TestS115_PacketsOfConnectionsThatEndedLate(t *testing.T) {
	onEveryKernel(t, func(t *testing.T, start starter) {
		for _, jump := range []bool{true, false} {
			w := start(t, func(c *enforce.Config) { c.LateMark, c.ForwardJump = 0x2000, jump })
			w.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
			w.Sync()
			endedPackets(t, w, jump, true)
			w.Model.EndLate()
			w.Again(false)
			endedPackets(t, w, jump, false)
		}
		w := start(t, func(c *enforce.Config) { c.LateMark = 0x2000 })
		w.Namespace("a")
		w.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
		w.ClusterPolicy("c", `{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, to: [{networks: [198.51.100.0/24]}]}]}`)
		w.Sync()
		jumps := func(want int) {
			t.Helper()
			got := 0
			for _, chain := range []string{"INPUT", "OUTPUT"} {
				got += strings.Count(strings.Join(w.Kernels[npc.IPv4].Chains[chain], "\n"), "-j WEAVE-NPC")
			}
			if got != want {
				t.Errorf("%d jumps, not %d: %q", got, want, w.Kernels[npc.IPv4].Chains)
			}
		}
		jumps(1) // to the policies alone
		w.Model.EndLate()
		w.Again(false)
		jumps(4)
	})
}

// endedPackets sends packets whose connections have marks. With passes, no mark ends a connection.
func endedPackets(t *testing.T, w *harness, jump, passes bool) {
	t.Helper()
	for _, ends := range [][2]string{{"10.32.1.2", "198.51.100.7"}, {"198.51.100.7", "10.32.1.2"}, {"fd32:1::2", "2001:db8::7"}, {"2001:db8::7", "fd32:1::2"}} {
		src, dst := netip.MustParseAddr(ends[0]), netip.MustParseAddr(ends[1])
		k := w.Kernels[npc.FamilyOf(src)]
		if !jump {
			k.Chains["FORWARD"] = []string{"-i cni0 -j WEAVE-NPC-EGRESS", "-o cni0 -j WEAVE-NPC"}
		}
		for mark, want := range map[uint32]bool{0: true, 0x2000: passes, 0x2004: passes, 0x4004: true} {
			p := simulate.Packet{Src: src, Dst: dst, Protocol: unix.IPPROTO_TCP, DstPort: 80, State: "ESTABLISHED", Mark: mark}
			if p.In = "cni0"; !w.Model.IsLocal(src) {
				p.In, p.Out = "", "cni0"
			}
			v, err := k.Simulate(p)
			if err != nil || v.Accepted != want {
				t.Errorf("forward jump %t, %s to %s, mark %#x: accepted = %t by %q, %v", jump, src, dst, mark, v.Accepted, v.By, err)
			}
		}
	}
}

// TestARuleIsNamedOnce for all pods and changes: its name is a hash of all that it matches, and everybody's connections
// wait for it.
func TestARuleIsNamedOnce(t *testing.T) {
	const pods, excepts = 20, 2000
	w := newHarness(t)
	w.Namespace("a", "team=a")
	var flows []verdict.Flow
	for i := range pods {
		addr := fmt.Sprintf("10.32.1.%d", 100+i)
		w.Pod(fmt.Sprintf("a/p%d", i), addr, "app=web")
		flows = append(flows, verdict.Flow{From: netip.MustParseAddr("203.0.113.7"), To: netip.MustParseAddr(addr),
			Service: flow.Service{Protocol: unix.IPPROTO_TCP, Port: 80}})
	}
	var block strings.Builder
	for i := range excepts {
		fmt.Fprintf(&block, "100.64.%d.%d/32, ", i>>7, i&127*2)
	}
	w.Policy("a/p", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [`+block.String()+`]}}]}]}`)
	w.Sync()
	labels := []string{"app=b", "app=c"}
	allocated := testing.AllocsPerRun(4, func() {
		labels[0], labels[1] = labels[1], labels[0]
		w.Relabel("a/p0", labels[0])
		w.Again(false)
		for _, f := range flows {
			if v, _ := w.Model.Evaluate(verdict.NoBound, f); !v.Allowed || v.By.Content == "" {
				t.Fatalf("a flow is decided by %+v", v)
			}
		}
	})
	if allocated >= excepts {
		t.Errorf("a change and the verdicts after it take %v allocations, as if a rule of %d addresses were named anew",
			allocated, excepts)
	}
}
