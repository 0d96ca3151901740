package output

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/npc/analysis/advice"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/analysis/kernelview"
	"github.com/weave-npc/weave-npc/npc/analysis/query"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// check compares what a function writes, without the first newline of want.
func check(t *testing.T, write func(*strings.Builder) error, want string) {
	t.Helper()
	var out strings.Builder
	if err := write(&out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), out.String()); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}

func TestSets(t *testing.T) {
	sets := []kernelview.SetRow{
		{Set: "weave-b", Type: "hash:net", About: "10.0.0.0/8 without 10.1.0.0/16", Policies: []string{"shop/p", "shop/q"},
			Members: []kernelview.Member{{Entry: "10.0.0.0/8"}, {Entry: "10.1.0.0/16", NoMatch: true}, {Entry: "10.2.0.1", Is: "shop/web"}}},
		{Set: "weave-empty", Type: "hash:ip", Members: []kernelview.Member{}},
	}
	check(t, func(out *strings.Builder) error { return Sets(out, "table", sets) }, `
SET          TYPE      HOLDS                           USED-BY        MEMBERS
weave-b      hash:net  10.0.0.0/8 without 10.1.0.0/16  shop/p,shop/q  10.0.0.0/8
                                                                      not 10.1.0.0/16
                                                                      10.2.0.1 shop/web
weave-empty  hash:ip   ?                               -              -
`)
	check(t, func(out *strings.Builder) error { return Sets(out, "json", sets[1:]) }, `
[
  {
    "set": "weave-empty",
    "type": "hash:ip",
    "policies": null,
    "members": []
  }
]
`)
}

func TestRules(t *testing.T) {
	rules := []kernelview.RuleRow{
		{Family: "IPv4", Chain: "WEAVE-NPC", Number: 1, Target: "WEAVE-NPC-I", Match: "dst in {local pods}"},
		{Family: "IPv4", Chain: "WEAVE-NPC", Number: 2, Target: "RETURN"},
		{Family: "IPv6", Chain: "WEAVE-NPC", Number: 1, About: "every packet", Target: "ACCEPT", For: "shop/p rule 1", Match: "-p tcp"},
	}
	check(t, func(out *strings.Builder) error { return Rules(out, "table", rules, nil, nil) }, `
RULE  TARGET  FOR  MATCHES
IPv4 WEAVE-NPC
  1  WEAVE-NPC-I    dst in {local pods}
  2  RETURN         everything
IPv6 WEAVE-NPC: every packet
  1  ACCEPT  shop/p rule 1  -p tcp
`)
}

func TestKernelVerdicts(t *testing.T) {
	v4 := flow.Flow{From: flow.End{Addr: netip.MustParseAddr("10.32.1.2")}, To: flow.End{Addr: netip.MustParseAddr("10.32.1.3")}}
	v6 := flow.Flow{From: flow.End{Addr: netip.MustParseAddr("fd00::2")}, To: flow.End{Addr: netip.MustParseAddr("fd00::3")}}
	verdicts := []kernelview.FlowTrace{
		{Node: "node1", Flow: v4},
		{Node: "node1", Flow: v4, Asked: true, Accepted: true, Policies: true, At: "rule 2 of WEAVE-NPC: -j ACCEPT", Trace: []string{"FORWARD 1", "WEAVE-NPC 2"}},
		{Node: "node1", Flow: v6, Asked: true, Policies: true, Trace: []string{"FORWARD 1"}, ByOthers: true, PassedOver: []string{"FORWARD 2: -m u32"}},
		{Node: "node1", Flow: v4, Asked: true, ToNode: true, Trace: []string{"INPUT 1"},
			Unbound: "this node only audits sources"},
	}
	check(t, func(out *strings.Builder) error {
		return Explanation(out, "text", &query.Explanation{Kernel: verdicts})
	}, `
kernel of node1, IPv4: has no part in it: it forwards nothing of this from or to a pod of its own
kernel of node1, IPv4: lets it through
  at rule 2 of WEAVE-NPC: -j ACCEPT
  way: FORWARD 1, WEAVE-NPC 2
  as the policies say of this node's part
kernel of node1, IPv6: drops it
  way: FORWARD 1
  a rule that is not weave-npc's decides
  not evaluated: FORWARD 2: -m u32
  DIFFERS from the policies, which say of this node's part: allowed
kernel of node1, IPv4, to the node itself: drops it
  way: INPUT 1
  others can send with the address 10.32.1.2: this node only audits sources
  as the policies say of this node's part
`)
}

// TestChangesAsYAML checks that changes without objects, which are labels, are left out.
func TestChangesAsYAML(t *testing.T) {
	x := &query.Explanation{Nearest: []advice.Suggestion{{Apply: "kind: A\n"}, {Text: "label pod shop/web: role=api"}, {Apply: "kind: B\n"}}}
	check(t, func(out *strings.Builder) error { return Explanation(out, "yaml", x) }, "kind: A\n---\nkind: B\n")
}

// TestPodsAndPoliciesThatCannotBeRead are marked: a pod is not reported as not isolated, nor a policy as selecting none.
func TestPodsAndPoliciesThatCannotBeRead(t *testing.T) {
	pods := []explain.PodRow{{Pod: "shop/web", Ingress: []string{"shop/p"}}, {Pod: "pay/db", Unknown: "its network policies cannot be read", Note: "no address yet"}}
	check(t, func(out *strings.Builder) error { return Pods(out, "table", pods) }, `
POD       NODE  ADDRESSES  INGRESS-ISOLATED-BY  EGRESS-ISOLATED-BY  NOTE
shop/web  -     -          shop/p               -
pay/db    -     -          ?                    ?                   its network policies cannot be read; no address yet
`)
	policies := []explain.PolicyRow{{Policy: "pay/p", Unreadable: true}, {Policy: "shop/p", Pods: []string{}}}
	check(t, func(out *strings.Builder) error { return Policies(out, "table", policies, nil, nil) }, `
POLICY  TYPES  ISOLATES                                       ALLOWS
pay/p   -      all pods (perhaps others that cannot be read)  nothing
shop/p  -      all pods (none)                                nothing
`)
}
