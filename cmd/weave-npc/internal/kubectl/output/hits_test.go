package output

import (
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/analysis/kernelview"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// local replaces times as JSON has them by those that tables have here.
func local(text string) string {
	for hour := range 6 {
		at := noon.Add(time.Duration(hour) * time.Hour)
		text = strings.ReplaceAll(text, at.Format(time.RFC3339), at.Local().Format(time.DateTime))
	}
	return text
}

func hit(tier, policy, direction string, number int, content string, count uint64, hour int) flowlog.Hit {
	return flowlog.Hit{Applied: flowlog.Applied{RuleRef: flowlog.RuleRef{Tier: tier, Policy: policy, Number: number, Direction: direction}, Content: content},
		Verdict: flowlog.Allowed, Count: count, First: noon.Add(time.Hour), Last: noon.Add(time.Duration(hour) * time.Hour)}
}

// someHits are hits of a rule, of the one that had its place before, of one that is moved, of a policy of a tier, and
// of a policy that is gone.
func someHits() *flowlog.Hits {
	return &flowlog.Hits{Since: noon, Complete: noon, Rules: []flowlog.Hit{
		hit("", "shop/db", "ingress", 1, "old", 900, 1), hit("", "shop/gone", "ingress", 1, "x", 7, 2), hit("", "shop/db", "ingress", 1, "a", 5, 3),
		hit("", "shop/db", "egress", 3, "d", 1, 4), hit("Admin", "pci", "egress", 2, "n", 12, 4)}}
}

func policies() []explain.PolicyRow {
	priority := int32(10)
	return []explain.PolicyRow{
		{Tier: "Admin", Priority: &priority, Policy: "pci", Selects: "all pods", Types: []networkingv1.PolicyType{}, Egress: []string{"Pass: a", "Deny: b"},
			Contents: [len(npc.Directions)][]string{npc.Egress: {"", "n"}}},
		{Policy: "shop/db", Types: []networkingv1.PolicyType{"Ingress", "Egress"}, Ingress: []string{"tcp/5432", "udp"}, Egress: []string{"dns"},
			Contents: [len(npc.Directions)][]string{npc.Ingress: {"a", "b"}, npc.Egress: {"d"}}},
		{Policy: "shop/deny", Types: []networkingv1.PolicyType{"Ingress"}},
	}
}

// TestPoliciesWithHits shows the hits of the rules that are there, by what they match: not those of a former rule, nor
// of a policy that is gone.
func TestPoliciesWithHits(t *testing.T) {
	check(t, func(out *strings.Builder) error { return Policies(out, "table", policies(), nil, someHits()) }, local(`
Admin tier, asked first:
POLICY  PRIORITY  SELECTS          HITS  LAST-HIT             DECIDES
pci     10        all pods (none)  -     -                    egress 1: Pass: a
                                   12    2026-05-01T16:00:00Z  egress 2: Deny: b

NetworkPolicies, asked about the pods that they isolate:
POLICY     TYPES           ISOLATES         HITS  LAST-HIT             ALLOWS
shop/db    Ingress,Egress  all pods (none)  5     2026-05-01T15:00:00Z  ingress 1: tcp/5432
                                            0     never                ingress 2: udp
                                            1     2026-05-01T16:00:00Z  egress 1: dns
shop/deny  Ingress         all pods (none)  -     -                    nothing

Hits are counted since 2026-05-01T12:00:00Z.
`))
	later := someHits()
	later.Complete = noon.Add(time.Hour)
	check(t, func(out *strings.Builder) error { return Policies(out, "table", nil, nil, later) }, local(`
POLICY  TYPES  ISOLATES  HITS  LAST-HIT  ALLOWS

Hits are counted since 2026-05-01T12:00:00Z, of all rules since 2026-05-01T13:00:00Z.
`))
	check(t, func(out *strings.Builder) error { return Policies(out, "json", policies()[:1], nil, someHits()) }, `
[
  {
    "tier": "Admin",
    "priority": 10,
    "policy": "pci",
    "selects": "all pods",
    "types": [],
    "pods": null,
    "egress": [
      "Pass: a",
      "Deny: b"
    ],
    "hits": {
      "since": "2026-05-01T12:00:00Z",
      "complete_since": "2026-05-01T12:00:00Z",
      "egress": [
        null,
        {
          "count": 12,
          "first": "2026-05-01T13:00:00Z",
          "last": "2026-05-01T16:00:00Z"
        }
      ]
    }
  }
]
`)
}

// TestRulesWithHits shows the hits of the rules of policies that rules in the kernel enforce: without the policies, by
// the numbers alone.
func TestRulesWithHits(t *testing.T) {
	of := func(policy string, number int, d npc.Direction) kernelview.PolicyRule {
		return kernelview.PolicyRule{Policy: policy, Number: number, Direction: d}
	}
	rows := []kernelview.RuleRow{
		{Family: "IPv4", Chain: "WEAVE-NPC", Number: 1, Target: "RETURN"},
		{Family: "IPv4", Chain: "WEAVE-NPC-I-x", Number: 1, Target: "ACCEPT", For: "shop/db rule 1",
			PolicyRules: []kernelview.PolicyRule{of("shop/db", 1, npc.Ingress)}},
		{Family: "IPv4", Chain: "WEAVE-NPC-I-x", Number: 2, Target: "ACCEPT", For: "shop/db rule 2",
			PolicyRules: []kernelview.PolicyRule{of("shop/db", 2, npc.Ingress)}},
		{Family: "IPv4", Chain: "WEAVE-NPC-E-x", Number: 1, Target: "ACCEPT", For: "a / b / and 1 more", Unnamed: true,
			PolicyRules: []kernelview.PolicyRule{of("shop/db", 1, npc.Egress), {Tier: "Admin", Policy: "pci", Number: 2, Direction: npc.Egress}}},
	}
	check(t, func(out *strings.Builder) error { return Rules(out, "table", rows, someHits(), policies()) }, local(`
RULE  TARGET  FOR  HITS  LAST-HIT  MATCHES
IPv4 WEAVE-NPC
  1  RETURN    -  -  everything
IPv4 WEAVE-NPC-I-x
  1  ACCEPT  shop/db rule 1  5  2026-05-01T15:00:00Z  everything
  2  ACCEPT  shop/db rule 2  0  never                everything
IPv4 WEAVE-NPC-E-x
  1  ACCEPT  a / b / and 1 more  13+  2026-05-01T16:00:00Z  everything

Hits are counted since 2026-05-01T12:00:00Z.
`))
	stale := someHits()
	stale.Rules = stale.Rules[:1]
	for want, policies := range map[string][]explain.PolicyRow{"  1  ACCEPT  shop/db rule 1  0  never  ": policies(),
		"  1  ACCEPT  shop/db rule 1  900  2026": nil} {
		var out strings.Builder
		if err := Rules(&out, "table", rows[1:2], stale, policies); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%v, no %q in\n%s", err, want, out.String())
		}
	}
	check(t, func(out *strings.Builder) error { return Rules(out, "json", rows[:2], someHits(), policies()) }, `
[
  {
    "family": "IPv4",
    "chain": "WEAVE-NPC",
    "number": 1,
    "rule": "",
    "target": "RETURN"
  },
  {
    "family": "IPv4",
    "chain": "WEAVE-NPC-I-x",
    "number": 1,
    "rule": "",
    "target": "ACCEPT",
    "for": "shop/db rule 1",
    "hits": {
      "count": 5,
      "first": "2026-05-01T13:00:00Z",
      "last": "2026-05-01T15:00:00Z"
    }
  }
]
`)
}
