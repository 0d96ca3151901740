package kernel

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/kernelview"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// shop returns a state with a chain of the policies of shop, the sets that its rules match, and the local pods.
func shop() *State {
	set := func(name string, kind ipset.Type, members ...ipset.Element) ipset.Listing {
		return ipset.Listing{Header: ipset.Header{Set: ipset.Set{Name: name, Type: kind}}, Members: members}
	}
	pod := func(addr, comment string) ipset.Element {
		return ipset.Element{Entry: ipset.Addr(netip.MustParseAddr(addr)), Attr: ipset.Attr{Comment: comment}}
	}
	return &State{
		families: []npc.Family{npc.IPv4},
		sets: []ipset.Listing{
			set("weave-web", ipset.HashIP, pod("10.32.1.3", "shop/web-2"), pod("10.32.1.2", "shop/web-1")),
			set("weave-local-pods", ipset.HashIP, pod("10.32.1.2", "6f1e shop/web-1")),
			set("weave-list", ipset.ListSet, ipset.Element{Entry: ipset.Entry{Set: "weave-ops"}}),
			set("weave-ops", ipset.HashIP),
		},
		tables: map[npc.Family]iptables.Seen{npc.IPv4: {Chains: map[string]iptables.SeenChain{
			"WEAVE-NPC-I-SHOP": {Text: []string{
				`-A WEAVE-NPC-I-SHOP -p tcp -m set --match-set weave-list src -m set --match-set weave-web dst -m comment --comment "id shop/p rule 1" -j ACCEPT`,
				`-A WEAVE-NPC-I-SHOP -m bpf --bytecode "4,48 0 0 0" -m comment --comment id -g WEAVE-NPC-DROP-I`,
			}},
			"WEAVE-NPC": {Text: []string{"-A WEAVE-NPC -j RETURN"}},
		}}},
	}
}

// described returns the same state with the purposes of sets and chains.
func described() *State {
	s := shop()
	s.Describe(Purpose{
		Sets: map[string]controller.SetUse{
			"weave-web":  {About: "pods with app=web in shop", Policies: []string{"shop/p", "shop/q"}},
			"weave-list": {About: "pods in namespaces with team=b", Policies: []string{"shop/p"}},
			"weave-ops":  {About: "pods in ops"},
		},
		Chain: func(name string) string {
			return map[string]string{"WEAVE-NPC-I-SHOP": "what policies of shop allow, ingress"}[name]
		},
	})
	return s
}

func TestSets(t *testing.T) {
	web := []kernelview.Member{{Entry: "10.32.1.2", Is: "shop/web-1"}, {Entry: "10.32.1.3", Is: "shop/web-2"}}
	local := kernelview.SetRow{Set: "weave-local-pods", Type: "hash:ip", Members: []kernelview.Member{{Entry: "10.32.1.2", Is: "shop/web-1"}}}
	for _, c := range []struct {
		name  string
		state *State
		want  []kernelview.SetRow
	}{
		{"policies by the comments of rules", shop(), []kernelview.SetRow{
			{Set: "weave-list", Type: "list:set", Policies: []string{"shop/p"}, Members: []kernelview.Member{{Entry: "weave-ops"}}},
			local,
			{Set: "weave-ops", Type: "hash:ip", Policies: []string{"shop/p"}, Members: []kernelview.Member{}},
			{Set: "weave-web", Type: "hash:ip", Policies: []string{"shop/p"}, Members: web},
		}},
		{"policies by the objects", described(), []kernelview.SetRow{
			{Set: "weave-list", Type: "list:set", About: "pods in namespaces with team=b", Policies: []string{"shop/p"},
				Members: []kernelview.Member{{Entry: "weave-ops", Is: "pods in ops"}}},
			local,
			{Set: "weave-ops", Type: "hash:ip", About: "pods in ops", Members: []kernelview.Member{}},
			{Set: "weave-web", Type: "hash:ip", About: "pods with app=web in shop", Policies: []string{"shop/p", "shop/q"}, Members: web},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, c.state.Sets()); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}

func TestRules(t *testing.T) {
	want := []kernelview.RuleRow{
		{Family: "IPv4", Chain: "WEAVE-NPC", Number: 1, Rule: "-j RETURN", Target: "RETURN"},
		{Family: "IPv4", Chain: "WEAVE-NPC-I-SHOP", Number: 1, About: "what policies of shop allow, ingress",
			Rule: `-p tcp -m set --match-set weave-list src -m set --match-set weave-web dst -m comment --comment "id shop/p rule 1" -j ACCEPT`,
			Sets: []string{"weave-list", "weave-web"}, Target: "ACCEPT", For: "shop/p rule 1",
			PolicyRules: []kernelview.PolicyRule{{Policy: "shop/p", Number: 1, Direction: npc.Ingress}},
			Match:       "-p tcp src in {pods in namespaces with team=b} dst in {pods with app=web in shop}"},
		{Family: "IPv4", Chain: "WEAVE-NPC-I-SHOP", Number: 2, About: "what policies of shop allow, ingress",
			Rule: `-m bpf --bytecode "4,48 0 0 0" -m comment --comment id -g WEAVE-NPC-DROP-I`, Target: "WEAVE-NPC-DROP-I",
			Match: "-m bpf --bytecode .."},
	}
	if diff := cmp.Diff(want, described().Rules()); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	if got, want := shop().Rules()[1].Match, "-p tcp src in weave-list dst in weave-web"; got != want {
		t.Errorf("without the objects, the rule matches %q, not %q", got, want)
	}
}

// TestNames are the elements of the sets that expire, in order, without the time that is for outages.
func TestNames(t *testing.T) {
	learned := func(addr, name string, seconds uint32) ipset.Element {
		return ipset.Element{Entry: ipset.Addr(netip.MustParseAddr(addr)), Attr: ipset.Attr{Comment: name, Timeout: seconds}}
	}
	s := described()
	s.sets = append(s.sets, ipset.Listing{Header: ipset.Header{Set: ipset.Set{Name: "weave-z", Type: ipset.HashIP, Timeout: 600}},
		Members: []ipset.Element{learned("203.0.113.2", "b.org", 599), learned("203.0.113.1", "b.org", 660), learned("203.0.113.2", "a.org", 900)}})
	s.sets = append(s.sets, ipset.Listing{Header: ipset.Header{Set: ipset.Set{Name: "weave-past", Type: ipset.HashIP,
		Timeout: naming.PastTimeout}}, Members: []ipset.Element{learned("203.0.113.3", "c.org", 999)}})
	s.purpose.Sets["weave-z"] = controller.SetUse{Policies: []string{"sandbox"}}
	addr := netip.MustParseAddr
	if diff := cmp.Diff([]kernelview.NameRow{{Name: "a.org", Addr: addr("203.0.113.2"), Seconds: 300, Set: "weave-z", Policies: []string{"sandbox"}},
		{Name: "b.org", Addr: addr("203.0.113.1"), Seconds: 60, Set: "weave-z", Policies: []string{"sandbox"}},
		{Name: "b.org", Addr: addr("203.0.113.2"), Set: "weave-z", Policies: []string{"sandbox"}}}, s.Names(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	got := s.Learned(map[string]string{"weave-z": "*.org"})
	want := map[string]map[netip.Addr][]cluster.LearnedName{"*.org": {addr("203.0.113.1"): {{Name: "b.org", Seconds: 60}},
		addr("203.0.113.2"): {{Name: "b.org"}, {Name: "a.org", Seconds: 300}}}}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}

// TestPolicyRules are what comments name, with the direction of the chain.
func TestPolicyRules(t *testing.T) {
	chains := map[string]iptables.SeenChain{
		"WEAVE-NPC-ADMIN-EGRESS": {Text: []string{`-A WEAVE-NPC-ADMIN-EGRESS -m set --match-set weave-x src -m comment --comment id -g WEAVE-NPC-A-abc`}},
		"WEAVE-NPC-A-abc":        {Text: []string{`-A WEAVE-NPC-A-abc -m comment --comment "id Admin policy pci rule 2 no / Admin policy pci rule 3" -j RETURN`}},
		"WEAVE-NPC-A-none":       {Text: []string{`-A WEAVE-NPC-A-none -m comment --comment "id Admin policy pci rule 2" -j RETURN`}},
		"WEAVE-NPC-E-x":          {Text: []string{`-A WEAVE-NPC-E-x -m comment --comment "id a/p rule 1 / a/q rule 12 / and 2 more" -j ACCEPT`}},
		"WEAVE-NPC-I-x":          {Text: []string{`-A WEAVE-NPC-I-x -m comment --comment "id isolated pods of a" -g WEAVE-NPC-I-y`}},
	}
	s := &State{families: []npc.Family{npc.IPv6}, tables: map[npc.Family]iptables.Seen{npc.IPv6: {Chains: chains}}}
	got := map[string]kernelview.RuleRow{}
	for _, r := range s.Rules() {
		got[r.Chain] = kernelview.RuleRow{PolicyRules: r.PolicyRules, Unnamed: r.Unnamed}
	}
	want := map[string]kernelview.RuleRow{"WEAVE-NPC-ADMIN-EGRESS": {}, "WEAVE-NPC-A-none": {}, "WEAVE-NPC-I-x": {},
		"WEAVE-NPC-A-abc": {PolicyRules: []kernelview.PolicyRule{{Tier: "Admin", Policy: "pci", Number: 2, Direction: npc.Egress},
			{Tier: "Admin", Policy: "pci", Number: 3, Direction: npc.Egress}}},
		"WEAVE-NPC-E-x": {PolicyRules: []kernelview.PolicyRule{{Policy: "a/p", Number: 1, Direction: npc.Egress},
			{Policy: "a/q", Number: 12, Direction: npc.Egress}}, Unnamed: true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}
