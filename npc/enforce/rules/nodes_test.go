package rules

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/npc"
)

// TestS84_PeersByNodes are one set of the rule's own in each family. With a named port the destination has to be a pod
// that has it.
func TestS84_PeersByNodes(t *testing.T) {
	many := func(n int, format string) string {
		var items []string
		for i := range n {
			items = append(items, fmt.Sprintf(format, i))
		}
		return strings.Join(items, ", ")
	}
	for _, c := range []struct{ name, rule, want string }{
		{"all", "{action: Deny, to: [{nodes: {}}]}", "S1 dst\nS1 is the addresses of nodes"},
		{"some", "{action: Deny, to: [{nodes: {matchLabels: {zone: x}}}], protocols: [{tcp: {destinationPort: {number: 22}}}]}",
			"-p tcp -m tcp --dport 22 S1 dst\nS1 is the addresses of nodes with zone=x"},
		{"a port that none can have", `{action: Deny, to: [{nodes: {}}], protocols: [{destinationNamedPort: "80"}]}`, "S1 is the addresses of nodes"},
		{"with pods", "{action: Accept, to: [{nodes: {}}, {namespaces: {}}]}",
			"S1 dst\nS2 dst\nS1 is the addresses of nodes\nS2 is a set across namespaces: pods in all namespaces"},
		{"a named port", "{action: Pass, to: [{nodes: {}}], protocols: [{tcp: {destinationPort: {number: 1}}}, {destinationNamedPort: http}]}",
			"-p tcp -m tcp --dport 1 S1 dst\n-p tcp S2 dst,dst S1 dst\n-p udp S3 dst,dst S1 dst\n-p sctp S4 dst,dst S1 dst\nS1 is the addresses of nodes\n" +
				"S2 is a set across namespaces: port http/tcp of pods in all namespaces\nS3 is a set across namespaces: port http/udp of pods in all namespaces\n" +
				"S4 is a set across namespaces: port http/sctp of pods in all namespaces"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := renderCluster(t, c.rule)
			var lines []string
			for _, rule := range r.Rules[npc.Egress] {
				if rule.Family == npc.IPv6 {
					lines = append(lines, strings.ReplaceAll(strings.ReplaceAll(numbers(r.Sets, rule.Family).Replace(rule.Match), "-m set --match-set ", ""), "  ", " "))
				}
			}
			for i, s := range r.Sets {
				lines = append(lines, fmt.Sprintf("S%d is %s", i+1, describe(r.Sets, s)))
			}
			if diff := cmp.Diff(c.want, strings.Join(lines, "\n")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	t.Run("so many peers and ports that they become a list", func(t *testing.T) {
		r := renderCluster(t, "{action: Deny, to: ["+many(140, "{nodes: {matchLabels: {zone: x%d}}}")+
			"], protocols: [{udp: {}}, {tcp: {destinationPort: {number: 1}}}]}")
		union, ok := r.Sets[len(r.Sets)-1].SetSpec.(UnionSpec)
		if len(r.Sets) != 141 || !ok || len(union.Members) != 140 || len(r.Rules[npc.Egress]) != 4 {
			t.Errorf("%d sets, %d rules", len(r.Sets), len(r.Rules[npc.Egress]))
		}
	})
	t.Run("of two rules", func(t *testing.T) {
		r := renderCluster(t, "{action: Deny, to: [{nodes: {}}]}, {action: Deny, to: [{nodes: {}}]}, {action: Accept, to: [{nodes: {}}]}")
		if len(r.Sets) != 3 || r.Sets[0].ID == r.Sets[1].ID || r.Sets[1].ID == r.Sets[2].ID {
			t.Errorf("rules share sets: %v", r.Sets)
		}
	})
}

// renderCluster renders a policy with some egress rules, in YAML.
func renderCluster(t *testing.T, rules string) Rendered {
	t.Helper()
	p := clusterPolicy(t, "Admin", "egress: ["+rules+"]")
	if p.Invalid != nil {
		t.Fatal(p.Invalid)
	}
	return RenderCluster(&p)
}
