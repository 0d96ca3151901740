package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/policy/quota"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// compiled returns a policy that allows ingress from peers to ports; each is a list in YAML.
func compiled(t *testing.T, limits quota.Limits, peers, ports string) Policy {
	t.Helper()
	spec := fmt.Sprintf(`{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [%s], ports: [%s]}]}`, peers, ports)
	return Compile(fixture.Policy(t, "shop/p", spec), limits)
}

// numbered returns n items of a list, with their number in place of %d.
func numbered(n int, format string) string {
	var items []string
	for i := range n {
		items = append(items, fmt.Sprintf(format, i))
	}
	return strings.Join(items, ", ")
}

// TestCost shows what the rules of a policy need, and when many peers become one list.
func TestCost(t *testing.T) {
	const peer, named = `{podSelector: {matchLabels: {app: "a%d"}}}`, `{port: p%d}`
	for _, c := range []struct {
		name, peers, ports string
		cost               quota.Cost
		crosses            bool
	}{
		{"everybody to every port", "", "", quota.Cost{Rules: 1, Sets: 1}, false},
		{"three peers to two named ports", numbered(3, peer), numbered(2, named), quota.Cost{Rules: 6, Sets: 10}, false},
		{"a named port and a number", numbered(3, peer), `{port: http}, {port: 80}`, quota.Cost{Rules: 6, Sets: 7}, false},
		{"a block", `{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}`, `{port: 80}`, quota.Cost{Rules: 1, Sets: 2, Entries: 2}, false},
		{"as many as are crossed", numbered(128, peer), numbered(2, named), quota.Cost{Rules: 256, Sets: 385}, false},
		{"so many that a list is shorter", numbered(129, peer), numbered(2, named), quota.Cost{Rules: 2, Sets: 133, Entries: 129}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := compiled(t, quota.Default(), c.peers, c.ports)
			if p.Invalid != nil {
				t.Fatal(p.Invalid)
			}
			if p.Cost != c.cost {
				t.Errorf("it costs %+v, want %+v", p.Cost, c.cost)
			}
			r := p.Merged[npc.Ingress][0]
			if r.Crosses() != c.crosses {
				t.Errorf("its peers become a list: %t", r.Crosses())
			}
		})
	}
}

// TestAPeerOfSeveralRulesCostsOneSet in each direction.
func TestAPeerOfSeveralRulesCostsOneSet(t *testing.T) {
	peers := numbered(3, `{podSelector: {matchLabels: {app: "a%d"}}}`)
	spec := fmt.Sprintf(`{podSelector: {}, ingress: [{from: [%s], ports: [{port: 80}]}, {from: [%[1]s], ports: [{port: http}]}], egress: [{to: [%[1]s]}]}`, peers)
	if cost, want := Compile(fixture.Policy(t, "shop/p", spec), quota.Default()).Cost, (quota.Cost{Rules: 9, Sets: 10}); cost != want {
		t.Errorf("it costs %+v, want %+v", cost, want)
	}
}

// TestOverTheLimits shows that a policy which needs too much isolates, allows nothing and costs nothing but its target.
func TestOverTheLimits(t *testing.T) {
	limits := quota.Default()
	limits.Rules.Policy = 3
	p := compiled(t, limits, numbered(4, `{podSelector: {matchLabels: {app: "a%d"}}}`), "")
	if p.Invalid == nil || !strings.HasPrefix(p.Invalid.Error(), "spec: ") || !strings.Contains(p.Invalid.Error(), "4") {
		t.Errorf("its error is %v", p.Invalid)
	}
	if !p.Isolates[npc.Ingress] || len(p.Merged[npc.Ingress]) > 0 || p.Cost != (quota.Cost{Sets: 1}) {
		t.Errorf("it is not closed, or costs %+v", p.Cost)
	}
}

// TestIncludes shows which packets an item of ports matches by number.
func TestIncludes(t *testing.T) {
	const tcp, udp = 6, 17
	for _, c := range []struct {
		name string
		port Port
		want string // of tcp/79, tcp/80, tcp/90, tcp/91 and udp/80
	}{
		{"one port", Port{Protocol: tcp, First: 80, Last: 80}, ".+..."},
		{"a range, with both ends", Port{Protocol: tcp, First: 80, Last: 90}, ".++.."},
		{"all of a protocol", Port{Protocol: tcp}, "++++."},
		{"another protocol", Port{Protocol: udp}, "....+"},
		{"a name, whose number depends on the pod", Port{Protocol: tcp, Name: "http"}, "....."},
	} {
		got := ""
		for _, asked := range []struct {
			protocol uint8
			port     uint16
		}{{tcp, 79}, {tcp, 80}, {tcp, 90}, {tcp, 91}, {udp, 80}} {
			sign := "."
			if c.port.Includes(asked.protocol, asked.port) {
				sign = "+"
			}
			got += sign
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
