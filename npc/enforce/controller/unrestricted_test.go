package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/observe/kernel/simulate"
)

// restricted returns a node with pods that policies restrict in one direction, both or none, in either tier.
func restricted(t *testing.T, configure func(*enforce.Config)) *harness {
	w := wireHarness(t, configure)
	for i, name := range []string{"in", "out", "admin-in", "admin-out", "base", "free"} {
		w.Pod("a/"+name, fmt.Sprintf("10.32.1.%d,fd32:1::%x", 20+i, 20+i), "is="+name)
	}
	w.Addr("group", "224.0.0.251", "ff02::fb")
	w.Addr("link-local", "169.254.1.1", "fe80::1")
	w.Policy("a/in", `{podSelector: {matchLabels: {is: in}}, ingress: [{ports: [{port: 80}]}]}`)
	w.Policy("a/out", `{podSelector: {matchLabels: {is: out}}, policyTypes: [Egress], egress: [{ports: [{port: 80}]}]}`)
	subject := func(is string) string {
		return fmt.Sprintf(`subject: {pods: {podSelector: {matchLabels: {is: %s}}}}`, is)
	}
	w.ClusterPolicy("admin-in", `{tier: Admin, priority: 1, `+subject("admin-in")+
		`, ingress: [{action: Deny, from: [{namespaces: {}}]}]}`)
	w.ClusterPolicy("admin-out", `{tier: Admin, priority: 2, `+subject("admin-out")+
		`, egress: [{action: Deny, to: [{namespaces: {}}]}]}`)
	w.ClusterPolicy("base", `{tier: Baseline, priority: 3, `+subject("base")+
		`, ingress: [{action: Deny, from: [{namespaces: {}}]}], egress: [{action: Deny, to: [{namespaces: {}}]}]}`)
	w.Sync()
	return w
}

// ofUnrestricted reports whether a rule is one of those for pods that nothing restricts.
func ofUnrestricted(rule string) bool { return strings.Contains(rule, "nothing restricts") }

// TestTheFirstRulesChangeNoVerdict sends packets of all kinds through the chains as they are, and without the rules for
// pods that nothing restricts.
func TestTheFirstRulesChangeNoVerdict(t *testing.T) {
	for name, configure := range map[string]func(*enforce.Config){
		"by_range":          func(c *enforce.Config) { c.PodInterface = "" },
		"by_interface":      func(c *enforce.Config) { c.PodInterface = "cni0" },
		"without_multicast": func(c *enforce.Config) { c.AllowMcast = false },
		"return":            func(c *enforce.Config) { c.PodInterface, c.AllowAction = "cni0", "RETURN" },
		"closed":            func(c *enforce.Config) { c.FailClosed = enforce.FailClosedAlways },
	} {
		t.Run(name, func(t *testing.T) {
			w := restricted(t, configure)
			var without [len(npc.Families)]simulate.Table
			for f, k := range w.Kernels {
				without[f] = k.Table
				without[f].Chains = map[string][]string{}
				for chain, rules := range k.Chains {
					without[f].Chains[chain] = slices.DeleteFunc(slices.Clone(rules), ofUnrestricted)
				}
			}
			opened := w.Evaluate(simulate.Packet{Src: w.Addrs["a/free"][npc.IPv4], Dst: w.Addrs["a/client"][npc.IPv4],
				In: "cni0", Out: "cni0", Protocol: unix.IPPROTO_TCP, DstPort: 80})
			if !slices.ContainsFunc(opened.Trace, func(s simulate.Step) bool { return ofUnrestricted(s.Rule) }) {
				t.Errorf("a connection between pods that nothing restricts does not meet the rules: %v", opened.Trace)
			}
			rapid.Check(t, func(r *rapid.T) {
				p := anyPacket(r, w)
				f := npc.FamilyOf(p.Src)
				before, err := without[f].Simulate(p)
				if err != nil {
					r.Fatal(err)
				}
				got := w.Evaluate(p)
				if got.Accepted != before.Accepted {
					r.Errorf("%+v: accepted = %t by %q, without the rules %t by %q", p, got.Accepted, got.By, before.Accepted,
						before.By)
				}
			})
		})
	}
}

// anyPacket draws a packet between known and unknown addresses.
func anyPacket(r *rapid.T, w *harness) simulate.Packet {
	f := rapid.SampledFrom(npc.Families[:]).Draw(r, "family")
	var known []string
	for name, addrs := range w.Addrs {
		if len(addrs) > int(f) {
			known = append(known, name)
		}
	}
	slices.Sort(known)
	end := func(label string) string { return rapid.SampledFrom(known).Draw(r, label) }
	link := func(label string) string { return rapid.SampledFrom([]string{"cni0", "eth0"}).Draw(r, label) }
	port := rapid.SampledFrom([]string{"", "veth1", "vethwe-bridge"})
	p := simulate.Packet{Src: w.Addrs[end("from")][f], Dst: w.Addrs[end("to")][f], In: link("in"), Out: link("out"),
		Protocol: rapid.SampledFrom([]uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMPV6}).Draw(r, "protocol"),
		DstPort:  rapid.SampledFrom([]uint16{80, 81}).Draw(r, "port"),
		State:    rapid.SampledFrom([]string{"", "", "ESTABLISHED", "RELATED", "INVALID", "UNTRACKED"}).Draw(r, "state"),
		DNAT:     rapid.Bool().Draw(r, "translated"), PhysIn: port.Draw(r, "by"), PhysOut: port.Draw(r, "to port"),
		ICMPType: rapid.SampledFrom([]uint8{128, 134, 135}).Draw(r, "type"), HopLimit: 255}
	if p.Protocol == unix.IPPROTO_ICMPV6 && p.ICMPType != 128 {
		p.State = "UNTRACKED" // as the kernel has all neighbour discovery
	}
	switch rapid.IntRange(0, 5).Draw(r, "frame") {
	case 0:
		p.ToAll = true
	case 1:
		p.ToGroup = true
	}
	return p
}

// TestFewRulesForPodsThatNothingRestricts counts the rules that a packet is tried against that opens a connection.
func TestFewRulesForPodsThatNothingRestricts(t *testing.T) {
	for _, c := range []struct {
		from, to, in, out string
		tried             int
	}{
		{"a/free", "a/client", "cni0", "cni0", 4},
		{"outside", "a/free", "eth0", "cni0", 5},
		{"a/free", "outside", "cni0", "eth0", 6},
		{"b/other", "a/free", "eth0", "cni0", 5},
	} {
		for name, podInterface := range map[string]string{"by_range": "", "by_interface": "cni0"} {
			w := restricted(t, func(cfg *enforce.Config) { cfg.PodInterface = podInterface })
			for f := range w.Kernels {
				v := w.Evaluate(simulate.Packet{Src: w.Addrs[c.from][f], Dst: w.Addrs[c.to][f], Protocol: unix.IPPROTO_TCP,
					DstPort: 80, In: c.in, Out: c.out})
				last := v.Trace[len(v.Trace)-1]
				if !v.Accepted || last.Tried > c.tried {
					t.Errorf("%s, %s > %s: accepted = %t after %d rules, not %d: %s", name, c.from, c.to, v.Accepted, last.Tried,
						c.tried, last.Rule)
				}
			}
		}
	}
}
