package order_test

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/internal/members"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/order"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// entries returns the addresses 10.0.0.N as entries.
func entries(n ...byte) (out []ipset.Entry) {
	for _, i := range n {
		out = append(out, ipset.Addr(netip.AddrFrom4([4]byte{10, 0, 0, i})))
	}
	return out
}

// The sets of the cases. A rule has a rank; heights are those of lists and what leads to them.
func rule(action policy.Action, rank int) order.Set {
	return order.Set{Role: order.Role{Cluster: true, Action: action, Rank: rank}, Peers: true, Height: -1}
}

func baselineRule(action policy.Action) order.Set {
	s := rule(action, 9)
	s.Role.Baseline = true
	return s
}

func pods(j order.Evaluation, height int) order.Set {
	return order.Set{Evaluation: j, Direction: npc.Egress, Height: height}
}

func list(t policy.Tier) order.Set { return pods(order.ListOf(t), 1) }

// TestS93_WhatComesFirstAndLast shows what of the changes of one transaction comes before all else, what after it, and
// what is left for it.
func TestS93_WhatComesFirstAndLast(t *testing.T) {
	v1 := order.Set{Peers: true, Height: -1}
	change := func(name string, s order.Set, add, remove []ipset.Entry) *order.SetChange[string] {
		return &order.SetChange[string]{Of: name, Set: s, Add: add, Remove: remove}
	}
	for name, c := range map[string]struct {
		changes []*order.SetChange[string]
		want    string
	}{
		"without Pass peers are added and removed in the order of the rules": {
			[]*order.SetChange[string]{change("deny", rule(policy.Deny, 1), entries(1), nil), change("accept", rule(policy.Accept, 2), nil, entries(1))},
			"change: deny +1, accept -1"},
		"with Pass a peer is denied first, and accepted last": {
			[]*order.SetChange[string]{change("deny", rule(policy.Deny, 1), entries(1), entries(2)), change("pass", rule(policy.Pass, 2), entries(1, 2), nil),
				change("accept", rule(policy.Accept, 3), entries(2), entries(1)), change("v1", v1, nil, entries(1))},
			"close: deny +1, accept -1, v1 -1; change: pass +1 +2; open: accept +2, deny -2"},
		"who does not pass changes as without": {
			[]*order.SetChange[string]{change("deny", rule(policy.Deny, 1), entries(3), nil), change("pass", rule(policy.Pass, 2), entries(1), nil)},
			"change: deny +3, pass +1"},
		"Pass of the Baseline tier accepts": {
			[]*order.SetChange[string]{change("pass", rule(policy.Pass, 2), entries(1), nil), change("baseline", baselineRule(policy.Pass), entries(1), nil)},
			"change: pass +1; open: baseline +1"},
		"a list alone changes by additions, then removals": {
			[]*order.SetChange[string]{change("old", list(policy.Admin), nil, entries(1)), change("new", list(policy.Admin), entries(1), nil)},
			"change: old -1, new +1"},
		"a pod whose Admin list is replaced and whose tail changes leaves its tail": {
			[]*order.SetChange[string]{change("old", list(policy.Admin), nil, entries(1)), change("new", list(policy.Admin), entries(1), nil),
				change("tail", pods(order.Tail, -1), nil, entries(1)), change("baseline", list(policy.Baseline), entries(1), nil)},
			"close: closed +1, tail -1; change: old -1, new +1; open: baseline +1, closed -1"},
		"and a list that is emptied with it": {
			[]*order.SetChange[string]{change("old", list(policy.Admin), nil, entries(1)), change("new", list(policy.Admin), entries(1), nil),
				{Of: "baseline", Set: list(policy.Baseline), Flushed: entries(1)}, change("tail", pods(order.Tail, -1), entries(1), nil)},
			"close: closed +1, baseline -1; change: old -1, new +1; open: tail +1, closed -1"},
		"a pod that had no Admin list goes to its tail once it has one": {
			[]*order.SetChange[string]{change("admin", list(policy.Admin), entries(1), nil), change("tail", pods(order.Tail, -1), nil, entries(1)),
				change("baseline", list(policy.Baseline), entries(1), nil)},
			"change: admin +1, tail -1; enter: baseline +1"},
		"and leaves a list that is emptied by that": {
			[]*order.SetChange[string]{change("admin", list(policy.Admin), entries(1), nil),
				{Of: "baseline", Set: list(policy.Baseline), Flushed: entries(1)}, change("tail", pods(order.Tail, -1), entries(1), nil)},
			"change: admin +1; enter: tail +1"},
		"a pod that loses its Admin list is in its tail before": {
			[]*order.SetChange[string]{change("admin", list(policy.Admin), nil, entries(1)), change("root", pods(order.ListOf(policy.Admin), 2), nil, entries(1)),
				change("tail", pods(order.Tail, -1), nil, entries(1)), change("baseline", list(policy.Baseline), entries(1), nil)},
			"change: baseline +1; leave: tail -1, root -1, admin -1"},
		"also if the list is emptied": {
			[]*order.SetChange[string]{{Of: "admin", Set: list(policy.Admin), Flushed: entries(1)},
				change("tail", pods(order.Tail, -1), nil, entries(1)), change("baseline", list(policy.Baseline), entries(1), nil)},
			"change: baseline +1; leave: tail -1, admin -1"},
		"a pod whose list changes while another changes as a peer leaves both": {
			[]*order.SetChange[string]{change("old", list(policy.Admin), nil, entries(1)), change("new", list(policy.Admin), entries(1), nil),
				change("deny", rule(policy.Deny, 1), entries(7), nil)},
			"close: closed +1, held -1, old -1; change: deny +7; open: new +1, held +1, closed -1"},
		"also if the peer is a set that another is in": {
			[]*order.SetChange[string]{change("old", list(policy.Admin), nil, entries(1)), change("new", list(policy.Admin), entries(1), nil),
				change("spaces", v1, []ipset.Entry{{Set: "both"}}, nil)},
			"close: closed +1, held -1, old -1; change: spaces +both; open: new +1, held +1, closed -1"},
		"but not if it alone is in that set": {
			[]*order.SetChange[string]{change("old", list(policy.Admin), nil, entries(1)), change("new", list(policy.Admin), entries(1), nil),
				change("spaces", v1, []ipset.Entry{{Set: "own"}}, nil)},
			"change: old -1, new +1, spaces +own"},
		"an address whose Admin list was another pod's leaves its tail until a later plan": {
			[]*order.SetChange[string]{{Of: "admin", Set: list(policy.Admin), Stale: entries(1)}},
			"close: closed +1, held -1, admin -1"},
		"also if both pods have the same tail, with other comments": {
			[]*order.SetChange[string]{{Of: "admin", Set: list(policy.Admin), Stale: entries(1)},
				{Of: "held", Set: pods(order.Tail, -1), Recommented: entries(1, 2)}},
			"close: closed +1, held -1, admin -1; change: held +2"},
		"and one whose Baseline list was": {
			[]*order.SetChange[string]{{Of: "baseline", Set: list(policy.Baseline), Stale: entries(2)}},
			"close: closed +2, baseline -2"},
		"who is closed to the node is so before all else": {
			[]*order.SetChange[string]{change("closed", pods(order.ClosedToNode, -1), entries(1), entries(2)),
				change("old", list(policy.Admin), nil, entries(3))},
			"close: closed +1; change: old -3; open: closed -2"},
		"but not if it alone is the peer": {
			[]*order.SetChange[string]{change("old", list(policy.Admin), nil, entries(1)), change("new", list(policy.Admin), entries(1), nil),
				change("deny", rule(policy.Deny, 1), entries(1), nil)},
			"change: old -1, new +1, deny +1"},
	} {
		t.Run(name, func(t *testing.T) {
			never := func(ipset.Entry) members.State { return members.State{} }
			k := order.Kernel[string]{
				Tails: []order.HeldSet[string]{{Of: "held", Direction: npc.Egress, State: func(e ipset.Entry) members.State {
					is := slices.Contains(entries(1), e) // it stays in a tail that does not change
					return members.State{Exists: is, Wanted: is}
				}}},
				Closed: &order.HeldSet[string]{Of: "closed", Direction: npc.Egress, State: never},
				Members: func(name string) iter.Seq2[ipset.Entry, members.State] {
					return maps.All(map[string]map[ipset.Entry]members.State{"own": {entries(1)[0]: {}}, "both": {entries(1)[0]: {}, entries(7)[0]: {}}}[name])
				},
			}
			plan, ordered := order.Of(c.changes, func() order.Kernel[string] { return k })
			if !ordered {
				t.Fatal("the changes have no order")
			}
			var rest []string
			for _, c := range c.changes {
				rest = append(rest, texts(c.Of, "+", slices.Concat(c.Add, c.Recommented))...)
				rest = append(rest, texts(c.Of, "-", c.Remove)...)
			}
			var got []string
			for _, part := range [][2]string{{"close", ops(plan.Close)}, {"change", strings.Join(rest, ", ")}, {"enter", ops(plan.Enter)},
				{"leave", ops(plan.Leave)}, {"open", ops(plan.Open)}} {
				if part[1] != "" {
					got = append(got, part[0]+": "+part[1])
				}
			}
			if text := strings.Join(got, "; "); text != c.want {
				t.Errorf("%q, want %q", text, c.want)
			}
		})
	}
}

// texts returns entries as a text like: set +1 +2.
func texts(of, sign string, entries []ipset.Entry) []string {
	if len(entries) == 0 {
		return nil
	}
	text := of
	for _, e := range entries {
		if e.Set != "" {
			text += " " + sign + e.Set
			continue
		}
		text += fmt.Sprint(" ", sign, e.Prefix.Addr().As4()[3])
	}
	return []string{text}
}

func ops(all []order.Op[string]) string {
	var out []string
	for _, op := range all {
		out = append(out, texts(op.Of, map[ipset.OpKind]string{ipset.Add: "+", ipset.Delete: "-"}[op.Kind], op.Entries)...)
	}
	return strings.Join(out, ", ")
}

// TestNetworkPoliciesAloneHaveNoOrder of changes but that of additions and removals.
func TestNetworkPoliciesAloneHaveNoOrder(t *testing.T) {
	changes := []*order.SetChange[string]{{Of: "v1", Set: order.Set{Peers: true, Height: -1}, Add: entries(1)},
		{Of: "shard", Set: pods(order.Tail, 0), Remove: entries(1)}}
	if plan, ordered := order.Of(changes, nil); ordered || len(plan.Close)+len(plan.Open) > 0 {
		t.Errorf("the plan is %v", plan)
	}
}

// TestCompare orders Admin rules before those of NetworkPolicies, and these before Baseline rules; lists before what
// leads to them.
func TestCompare(t *testing.T) {
	in := []order.Set{rule(policy.Deny, 1), rule(policy.Accept, 2), {Height: -1}, baselineRule(policy.Deny), list(policy.Admin), pods(order.ListOf(policy.Admin), 2)}
	if !slices.IsSortedFunc(in, order.Compare) {
		t.Errorf("%v is not in order", in)
	}
}
