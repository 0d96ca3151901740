package tiers

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// flip is an event that changes a state, and one that changes it back.
type flip struct {
	name      string
	state     e2e.Change
	red, blue e2e.Change
	// both are flows, as e2e.Wants has them, that are denied in one direction in both states: they must be among those that
	// are opened.
	both string
	// drops is set where S93 lets what both states allow be dropped for a moment, and where an event ends or begins a
	// pod.
	drops bool
	// owned leaves of the second state the pods that have their addresses, where two claim one; nil for all.
	owned e2e.Change
	says  string
}

// flips are events under policies whose last rule accepts everything: what leaves one set before it is in the next is
// accepted.
func flips() []flip {
	acceptIn, acceptOut := e2e.ClusterPolicy("z", e2e.Admin("9", e2e.AllPods,
		e2e.Ingress("Accept", e2e.AllPods))), e2e.ClusterPolicy("z", e2e.Admin("9", e2e.AllPods,
		e2e.Egress("Accept", e2e.AllPods)))
	deny, allow := "ingress: [{action: Deny, from: [{namespaces: {}}]}]", "ingress: [{action: Pass, from: [{namespaces: {}}]}]"
	paint := func(name, colour string) e2e.Change {
		return e2e.Pod(name, e2e.Labelled("app="+e2e.OwnName(name)+",colour="+colour))
	}
	return []flip{
		{name: "a_peer_moves_between_rules", state: e2e.Do(acceptIn,
			e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone, e2e.Ingress("Deny", e2e.Colour("red")))),
			e2e.ClusterPolicy("b", e2e.Admin("2", e2e.WebAlone, e2e.Ingress("Deny", e2e.Colour("blue"))))),
			red: paint("shop/db", "red"), blue: paint("shop/db", "blue"), both: "-db>web"},
		{name: "a_peer_of_another_node_moves_to_Baseline", drops: true, state: e2e.Do(acceptIn,
			e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone,
				`ingress: [{action: Pass, from: [`+e2e.Colour("blue")+`]}, {action: Deny, from: [`+e2e.Colour("red")+`]}]`)),
			e2e.ClusterPolicy("b", e2e.Baseline("1", e2e.WebAlone, e2e.Ingress("Deny", e2e.Colour("blue"))))),
			red: paint("ops/copy", "red"), blue: paint("ops/copy", "blue"), both: "-copy>web"},
		{name: "a_destination_moves_to_a_v1_policy", drops: true, state: e2e.Do(acceptOut,
			e2e.ClusterPolicy("a", e2e.Admin("1", e2e.ShopPods,
				`egress: [{action: Pass, to: [`+e2e.Colour("blue")+`]}, {action: Deny, to: [`+e2e.Colour("red")+`]}]`)),
			e2e.Policy("shop/p", `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {team: a}}}]}]}`)),
			red: paint("ops/mon", "red"), blue: paint("ops/mon", "blue"), both: "-web>mon -api>mon"},
		{name: "a_namespace_of_peers_is_relabelled", drops: true,
			state: e2e.Do(acceptIn, e2e.ClusterPolicy("a", e2e.Admin("1", e2e.ShopPods, `ingress: [
{action: Pass, from: [{namespaces: {matchLabels: {zone: blue}}}]}, {action: Deny, from: [{namespaces: {matchLabels: {zone: red}}}]}]`)),
				e2e.ClusterPolicy("b", e2e.Baseline("1", e2e.ShopPods,
					e2e.Ingress("Deny", `{namespaces: {matchLabels: {zone: blue}}}`)))),
			red: e2e.Namespace("ops", "team=b,zone=red"), blue: e2e.Namespace("ops",
				"team=b,zone=blue"), both: "-mon>web -copy>web -copy>api -mon>api"},
		{name: "a_subject_moves_from_Admin_to_Baseline", drops: true, state: e2e.Do(acceptIn,
			e2e.ClusterPolicy("a", e2e.Admin("1", e2e.Colour("red"), deny)), e2e.ClusterPolicy("b",
				e2e.Admin("2", e2e.Colour("blue"), allow)),
			e2e.ClusterPolicy("c", e2e.Baseline("1", e2e.Colour("blue"), deny))),
			red: paint("shop/web", "red"), blue: paint("shop/web", "blue"), both: "-db>web -copy>web"},
		{name: "a_subject_moves_from_Admin_to_a_v1_policy", drops: true, state: e2e.Do(
			e2e.ClusterPolicy("a", e2e.Admin("1", e2e.Colour("red"), deny)),
			e2e.Policy("shop/p", `{podSelector: {matchLabels: {colour: blue}}}`)),
			red: paint("shop/web", "red"), blue: paint("shop/web", "blue"), both: "-db>web -copy>web"},
		{name: "a_subject_moves_between_lists", state: e2e.Do(e2e.ClusterPolicy("a", e2e.Admin("1", e2e.Colour("red"),
			deny)),
			e2e.ClusterPolicy("b", e2e.Admin("2", e2e.Colour("blue"), deny)), e2e.ClusterPolicy("c",
				e2e.Admin("3", e2e.AllPods, e2e.Ingress("Accept", e2e.MonAlone)))),
			red: paint("shop/web", "red"), blue: paint("shop/web", "blue"), both: "-db>web -copy>web"},
		{name: "a_namespace_of_subjects_and_peers_is_relabelled", drops: true, state: e2e.Do(
			e2e.ClusterPolicy("a", e2e.Admin("1", `{namespaces: {matchLabels: {zone: red}}}`,
				`ingress: [{action: Deny, from: [{namespaces: {matchLabels: {zone: red}}}]}]`)),
			e2e.ClusterPolicy("b", e2e.Baseline("1", `{namespaces: {matchLabels: {zone: blue}}}`,
				`ingress: [{action: Deny, from: [{namespaces: {matchLabels: {zone: blue}}}]}]`)),
			e2e.ClusterPolicy("y", e2e.Admin("8", `{namespaces: {matchLabels: {zone: blue}}}`,
				e2e.Ingress("Pass", `{namespaces: {matchLabels: {zone: blue}}}`))),
			acceptIn),
			red: e2e.Namespace("shop", "team=a,zone=red"), blue: e2e.Namespace("shop",
				"team=a,zone=blue"), both: "-db>web -api>web -web>api"},
		{name: "a_pod_is_replaced", drops: true, state: e2e.Do(acceptIn,
			e2e.ClusterPolicy("a", e2e.Admin("1", e2e.Colour("red"), deny)),
			e2e.ClusterPolicy("b", e2e.Admin("2", e2e.Colour("blue"), allow)), e2e.ClusterPolicy("c",
				e2e.Baseline("1", e2e.Colour("blue"), deny)),
			e2e.ClusterPolicy("d", e2e.Admin("1", e2e.MonAlone,
				e2e.Ingress("Deny", e2e.Colour("red")))),
			e2e.ClusterPolicy("e", e2e.Admin("2", e2e.MonAlone, e2e.Ingress("Deny", e2e.Colour("blue"))))),
			red: e2e.Pod("shop/web", e2e.UID("red"), e2e.Labelled("app=web,colour=red")),
			blue: e2e.Pod("shop/web", e2e.UID("blue"),
				e2e.Labelled("app=web,colour=blue")), both: "-db>web -copy>web -web>mon"},
		{name: "an_address_moves_to_another_pod", drops: true, says: e2e.Conflict,
			state: e2e.Do(acceptIn, e2e.ClusterPolicy("a", e2e.Admin("1", e2e.Colour("red"), deny)),
				e2e.ClusterPolicy("b", e2e.Admin("2", e2e.Colour("blue"), allow)), e2e.ClusterPolicy("c",
					e2e.Baseline("1", e2e.Colour("blue"), deny))),
			red: e2e.Do(e2e.Without("ops/next"), e2e.Pod("shop/web", e2e.UID("red"),
				e2e.Labelled("app=web,colour=red"))),
			blue: e2e.Do(e2e.Without("shop/web"), e2e.Pod("ops/next", e2e.At("web"), e2e.UID("blue"),
				e2e.Labelled("app=web,colour=blue"))), both: "-db>web -copy>web"},
		{name: "a_remote_address_moves", drops: true, state: e2e.Do(acceptIn,
			e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone,
				`ingress: [{action: Pass, from: [`+e2e.Colour("blue")+`]}, {action: Deny, from: [`+e2e.Colour("red")+`]}]`)),
			e2e.ClusterPolicy("b", e2e.Baseline("1", e2e.WebAlone, e2e.Ingress("Deny", e2e.Colour("blue"))))),
			says: e2e.Conflict,
			red:  e2e.Do(e2e.Without("ops/next"), paint("ops/copy", "red")), blue: e2e.Pod("ops/next", e2e.At("copy"),
				e2e.Started, e2e.Labelled("colour=blue")),
			owned: e2e.Without("ops/copy"), both: "-copy>web"},
	}
}

// TestS93_NothingThatBothStatesDenyIsAccepted changes what rules and lists pods are in, at short intervals, while new
// connections are opened all the time.
func TestS93_NothingThatBothStatesDenyIsAccepted(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.StartSlow(t, backend)
		for _, f := range flips() {
			t.Run(f.name, func(t *testing.T) {
				for _, d := range w.Daemons {
					if f.says != "" {
						d.Log.Expect(f.says)
					}
				}
				f.run(t, w)
			})
		}
	})
}

func (f flip) run(t *testing.T, w *e2e.Cluster) {
	red, blue := w.Objects(e2e.Do(e2e.Base(), f.state, f.red)), w.Objects(e2e.Do(e2e.Base(), f.state, f.red, f.blue))
	seen := blue.Clone()
	if f.owned != nil {
		f.owned(w, seen)
	}
	flows := w.Streamed(red.Evaluated(t, w), seen.Evaluated(t, w), !f.drops)
	w.Includes(t, flows, f.both)
	w.Apply(t, red)
	stream, err := lab.NewStream(e2e.StreamRate, flows)
	if err != nil {
		t.Fatal(err)
	}
	const times = 15
	for i := range times {
		w.Source.Write(t, blue)
		time.Sleep(20*time.Millisecond + rand.N(100*time.Millisecond))
		w.Source.Write(t, red)
		time.Sleep(20*time.Millisecond + rand.N(100*time.Millisecond))
		if i%10 == 0 { // every now and then everybody is seen to follow
			w.Apply(t, blue)
			w.Apply(t, red)
		}
	}
	w.Finish(t, stream, flows)
}
