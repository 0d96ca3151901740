package controller_test

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/networkpolicy"
	"github.com/weave-npc/weave-npc/test/cluster"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/refmodel"
)

// transition is one event, and what a cluster was before and after it.
type transition struct {
	kind          string
	before, after refmodel.State
}

// TestS93_BetweenTheSteps evaluates every packet after each step of the transactions of one event. In no direction is
// accepted what both the state before and the state after deny. What both allow is dropped only where the documented
// exceptions apply, which are counted. For packets of pods that come, go or change places, only wrong accepts are
// checked.
func TestS93_BetweenTheSteps(t *testing.T) {
	events, drops := map[string]int{}, map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		h := &generator{history: newHistory(t, rt), t: rt, tiers: moreSteps}
		h.maybeEdit()
		h.maybeDivide()
		h.reconcileTiers()
		for range rapid.IntRange(1, 8).Draw(h.t, "rounds") {
			kind := rapid.SampledFrom(slices.Sorted(maps.Keys(h.events()))).Draw(rt, "kind")
			events[kind]++
			h.between(kind, h.events()[kind], func(why string) { drops[kind+" "+why]++ })
			h.check()
		}
	})
	t.Logf("events: %v; allowed drops of packets, after steps: %v", events, drops)
}

// reconcileTiers has the kernel hold what some steps make, where the rest may be accepted.
func (h *generator) reconcileTiers() {
	for range rapid.IntRange(4, 16).Draw(h.t, "before") {
		h.step()
	}
	if h.chance(50, "the rest is accepted") {
		h.setClusterPolicy(acceptingTheRest(h.t))
	}
	if h.chance(10, "namespaces are peers and subjects") {
		h.namespacesAsPeersAndSubjects()
	}
	h.Sync()
}

// namespacesAsPeersAndSubjects has an Admin policy deny all to or from the pods of some namespaces, and a NetworkPolicy
// allow whole namespaces.
func (h *generator) namespacesAsPeersAndSubjects() {
	h.plain = true // there are many pods
	selector := func() string {
		return pick(h, []string{`{matchLabels: {x: "1"}}`, `{matchLabels: {x: "2"}}`, `{matchLabels: {"y": "1"}}`}, "selector")
	}
	d := pick(h, [][3]string{{"Ingress", "ingress", "from"}, {"Egress", "egress", "to"}}, "direction")
	h.setClusterPolicy(fixture.ClusterPolicy(h.t, "y", `{tier: Admin, priority: 0, subject: {namespaces: `+selector()+`},
		`+d[1]+`: [{action: Deny, `+d[2]+`: [{namespaces: {}}]}]}`))
	for i, n := range someNamespaces {
		for j, name := range []string{"m", "n"} {
			addrs := fixture.Addrs(fmt.Sprintf("10.32.1.%[1]d fd32:1::%[1]d", 2*i+j+1))
			h.setPod(npc.Pod{Namespace: n, Name: name, UID: types.UID(n + name), Node: cluster.Node, Addrs: addrs})
		}
		h.setPolicy(fixture.Policy(h.t, n+"/s", `{podSelector: {}, policyTypes: [`+d[0]+`], `+d[1]+`: [{`+d[2]+`: [{namespaceSelector: `+selector()+`}]}]}`))
	}
}

// acceptingTheRest returns a policy that accepts what no other Admin policy decides: what leaves one rule before it
// meets another one is accepted.
func acceptingTheRest(t fixture.TB) *v1alpha2.ClusterNetworkPolicy {
	return fixture.ClusterPolicy(t, "z", `{tier: Admin, priority: 1000, subject: {namespaces: {}},
		ingress: [{action: Accept, from: [{namespaces: {}}]}],
		egress: [{action: Accept, to: [{networks: [0.0.0.0/0, "::/0"]}]}]}`)
}

// events are the kinds of events that are drawn from.
func (h *generator) events() map[string]func() {
	return map[string]func(){
		"relabel": func() {
			if len(h.pods) > 0 {
				p := h.pods[pick(h, slices.Sorted(maps.Keys(h.pods)), "pod to relabel")]
				p.Labels = pick(h, someLabels, "labels")
				h.setPod(p)
			}
		},
		"namespace": func() { h.setNamespace(pick(h, someNamespaces, "namespace"), pick(h, someLabels, "labels")) },
		"pod":       h.somePod,
		"swap":      h.swap,
		"delete": func() {
			if len(h.pods) > 0 {
				h.deletePod(pick(h, slices.Sorted(maps.Keys(h.pods)), "pod to delete"))
			}
		},
		"cluster policy": h.someClusterPolicy,
		"cluster policy deleted": func() {
			if len(h.cluster) > 0 {
				h.deleteClusterPolicy(pick(h, slices.Sorted(maps.Keys(h.cluster)), "cluster policy to delete"))
			}
		},
		"policy": h.somePolicy,
		"node":   h.someNode,
	}
}

// between has an event happen, and evaluates every packet after each step of what follows. It calls dropped with the
// reason of each allowed drop.
func (h *history) between(kind string, event func(), dropped func(why string)) {
	was := h.begin(event)
	h.evaluateTransition(transition{kind: kind, before: was.evaluated(), after: h.state.evaluated()}, was.node, dropped)
}

// evaluateTransition has the kernel follow a transition from a state with some addresses of the node, and evaluates
// every packet after each step.
func (h *history) evaluateTransition(tr transition, node []netip.Addr, dropped func(why string)) {
	h.evaluateSteps(tr, node, false, func(p refmodel.Packet, by string) {
		why := tr.mayDrop(p)
		if why == "" {
			h.t.Fatalf("%s: %v: dropped in between, by %q\n%s", tr.kind, p, by, h.Applied())
		}
		dropped(why)
	})
}

// mayDrop returns why a packet may be dropped for the one transaction although both states allow it; empty if it may
// not.
func (tr transition) mayDrop(p refmodel.Packet) string {
	switch src, dst := tr.moves(p.Src), tr.moves(p.Dst); {
	case tr.kind == "pod", tr.kind == "swap", tr.kind == "delete":
		return "as pods come and go"
	case src && dst:
		return "(b) both ends move"
	case (src || dst) && tr.movesSeveral():
		// One end moves as a subject, while the other pods that the event moves do as its peers: it belongs to no list
		// until they have.
		return "(b) a subject moves with its peers"
	case tr.changesTiers(p.Src), tr.changesTiers(p.Dst):
		return "(a) a subject moves in the Admin tier and another"
	case (src || dst || tr.kind == "node") && tr.hasPass():
		return "(c) an Admin Pass rule matches another"
	}
	return ""
}

// moves reports whether an address has another pod, or its pod or its namespace other labels, after the event. A
// namespace that was not known and has no labels does: a selector that is empty matches it.
func (tr transition) moves(a netip.Addr) bool { return identity(tr.before, a) != identity(tr.after, a) }

// movesSeveral reports whether the event moves more than one pod.
func (tr transition) movesSeveral() bool {
	moved := map[string]bool{}
	for _, w := range []refmodel.State{tr.before, tr.after} {
		for _, p := range w.Pods {
			if tr.moves(p.Addrs[0]) {
				moved[p.Namespace+"/"+p.Name] = true
			}
		}
	}
	return len(moved) > 1
}

func identity(w refmodel.State, a netip.Addr) string {
	for _, p := range w.Pods {
		if slices.Contains(p.Addrs, a) {
			labels, known := w.Namespaces[p.Namespace]
			return fmt.Sprint(p, labels, known)
		}
	}
	return ""
}

// changesTiers reports whether the Admin policies that select the pod of an address change, and the rules that evaluate
// it after them too. If it had none before, or has none after, the edit of a policy is no reason to drop.
func (tr transition) changesTiers(a netip.Addr) bool {
	before, after := tr.before.Selected(a, v1alpha2.AdminTier), tr.after.Selected(a, v1alpha2.AdminTier)
	if strings.HasPrefix(tr.kind, "cluster policy") && (before == "" || after == "") {
		return false
	}
	return before != after &&
		(tr.before.Selected(a, v1alpha2.BaselineTier) != tr.after.Selected(a, v1alpha2.BaselineTier) ||
			!reflect.DeepEqual(tr.before.Isolating(a), tr.after.Isolating(a)))
}

// hasPass reports whether an Admin policy passes something.
func (tr transition) hasPass() bool {
	for _, p := range slices.Concat(tr.before.ClusterPolicies, tr.after.ClusterPolicies) {
		var actions []v1alpha2.ClusterNetworkPolicyRuleAction
		for _, r := range p.Spec.Ingress {
			actions = append(actions, r.Action)
		}
		for _, r := range p.Spec.Egress {
			actions = append(actions, r.Action)
		}
		if p.Spec.Tier == v1alpha2.AdminTier && slices.Contains(actions, v1alpha2.ClusterNetworkPolicyRuleActionPass) {
			return true
		}
	}
	return false
}

// TestS93_ANamespaceArrivesAfterItsPods has two pods become subjects and peers at once, which no selector could choose
// before: what one of them sends, to whomever, may be dropped until both are what they become, and nothing else.
func TestS93_ANamespaceArrivesAfterItsPods(t *testing.T) {
	h := newHistory(t, t)
	h.setNamespace("b", nil)
	h.setPod(fixture.Pod("b/other node1 10.32.1.2 fd32:1::2"))
	h.setPod(fixture.Pod("c/m node1 10.32.1.5 fd32:1::5"))
	h.setPod(fixture.Pod("c/n node1 10.32.1.1 fd32:1::1"))
	h.setClusterPolicy(acceptingTheRest(t))
	h.Sync()
	h.check()
	reasons := map[string]int{}
	h.between("namespace", func() { h.setNamespace("c", nil) }, func(why string) { reasons[why]++ })
	h.check()
	if len(reasons) == 0 {
		t.Error("nothing was dropped: the promise can be stronger")
	}
}

// TestS93_AnAddressMovesBetweenRules gives a peer's address to a pod that other rules deny, and back.
func TestS93_AnAddressMovesBetweenRules(t *testing.T) {
	h := newHistory(t, t)
	h.setNamespace("a", nil)
	peer := func(name, colour string, started int64) npc.Pod {
		p := fixture.Pod(fmt.Sprintf("a/%s other 10.32.1.2 colour=%s", name, colour))
		p.Started = time.Unix(started, 0)
		return p
	}
	h.setPod(fixture.Pod("a/web node1 10.32.1.3"))
	h.setPod(peer("old", "red", 1))
	for name, spec := range map[string]string{
		"first": `{tier: Admin, priority: 1, subject: {namespaces: {}}, ingress: [
{action: Deny, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {colour: red}}}}]},
{action: Pass, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {colour: blue}}}}]}]}`,
		"last": `{tier: Baseline, priority: 1, subject: {namespaces: {}}, ingress: [
{action: Deny, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {colour: blue}}}}]}]}`,
	} {
		h.setClusterPolicy(fixture.ClusterPolicy(t, name, spec))
	}
	h.setClusterPolicy(acceptingTheRest(t))
	h.Sync()
	h.check()
	for range 2 {
		h.between("pod", func() { h.setPod(peer("next", "blue", 2)) }, func(string) {})
		h.check()
		h.between("delete", func() { h.deletePod("a/next") }, func(string) {})
		h.check()
	}
}

// TestS62_APolicyChangesItsTier from Baseline to Admin and back, with or without NetworkPolicies and other policies of
// the Baseline tier: what both versions allow passes at any moment.
func TestS62_APolicyChangesItsTier(t *testing.T) {
	for _, others := range []string{"", "isolated", "baseline", "isolated, baseline"} {
		t.Run("others_"+others, func(t *testing.T) {
			h := newHistory(t, t)
			h.setNamespace("a", nil)
			for i, colour := range []string{"red", "blue", "green"} {
				const facts = "a/%[1]s node1 10.32.1.%[2]d fd32:1::%[2]d colour=%[1]s"
				h.setPod(fixture.Pod(fmt.Sprintf(facts, colour, i+2)))
			}
			if strings.Contains(others, "isolated") {
				h.setPolicy(fixture.Policy(t, "a/green", `{podSelector: {matchLabels: {colour: green}}, policyTypes: [Ingress, Egress],
					ingress: [{from: [{podSelector: {matchLabels: {colour: blue}}}]}], egress: [{to: [{podSelector: {matchLabels: {colour: red}}}]}]}`))
			}
			if strings.Contains(others, "baseline") {
				h.setClusterPolicy(fixture.ClusterPolicy(t, "other", `{tier: Baseline, priority: 9, subject: {namespaces: {}},
					ingress: [{action: Deny, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {colour: green}}}}]}],
					egress: [{action: Accept, to: [{namespaces: {}}]}]}`))
			}
			edit := func(tier string) func() {
				return func() {
					h.setClusterPolicy(fixture.ClusterPolicy(t, "edited", `{tier: `+tier+`, priority: 5, subject: {namespaces: {}}, ingress: [
						{action: Accept, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {colour: red}}}}]},
						{action: Deny, from: [{namespaces: {}}]}], egress: [
						{action: Deny, to: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {colour: blue}}}}]},
						{action: Accept, to: [{namespaces: {}}]}]}`))
				}
			}
			edit("Baseline")()
			h.Sync()
			h.check()
			for _, tier := range []string{"Admin", "Baseline", "Admin"} {
				h.between("cluster policy to "+tier, edit(tier), func(why string) { t.Errorf("to %s: dropped: %s", tier, why) })
				h.check()
			}
		})
	}
}

// TestS93_ARelabelledSubjectOfBothKinds leaves NetworkPolicies that allow it nothing for those that allow all, and is
// denied all by a policy of the Admin tier at the same time. Its pods stay together in one shard.
func TestS93_ARelabelledSubjectOfBothKinds(t *testing.T) {
	for _, known := range []bool{true, false} { // whether the other policies have rules before
		h := newHistory(t, t)
		h.shard(networkpolicy.DefaultSharding())
		h.setNamespace("a", nil)
		pod := func(name, colour, last string) npc.Pod {
			return fixture.Pod(fmt.Sprintf("a/%s node1 10.32.1.%[2]s fd32:1::%[2]s colour=%[3]s", name, last, colour))
		}
		h.setPod(pod("web", "red", "2"))
		if known {
			h.setPod(pod("other", "blue", "3"))
		}
		for name, spec := range map[string]string{
			"none": `{podSelector: {matchLabels: {colour: red}}, policyTypes: [Ingress, Egress]}`,
			"all":  `{podSelector: {matchLabels: {colour: blue}}, policyTypes: [Ingress, Egress], ingress: [{}], egress: [{}]}`,
		} {
			h.setPolicy(fixture.Policy(t, "a/"+name, spec))
		}
		h.setClusterPolicy(fixture.ClusterPolicy(t, "guard", `{tier: Admin, priority: 1, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {
			colour: blue}}}}, ingress: [{action: Deny, from: [{namespaces: {}}]}], egress: [{action: Deny, to: [{networks: [0.0.0.0/0, '::/0']}]}]}`))
		h.Sync()
		h.check()
		for _, colour := range []string{"blue", "red"} {
			h.between("relabel", func() { h.setPod(pod("web", colour, "2")) }, func(string) {})
			h.check()
		}
	}
}

// TestS81_TheIsolatedNeverMeetBaseline policies, whether these accept or deny what NetworkPolicies do not or do allow.
func TestS81_TheIsolatedNeverMeetBaseline(t *testing.T) {
	for _, action := range []string{"Accept", "Deny"} {
		t.Run(action, func(t *testing.T) {
			h := newHistory(t, t)
			h.setNamespace("a", nil)
			for i, name := range []string{"web", "client", "other"} {
				h.setPod(fixture.Pod(fmt.Sprintf("a/%[1]s node1 10.32.1.%[2]d fd32:1::%[2]d app=%[1]s", name, i+2)))
			}
			h.setPolicy(fixture.Policy(t, "a/web", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress],
				ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}], egress: [{to: [{podSelector: {matchLabels: {app: client}}}]}]}`))
			h.setClusterPolicy(fixture.ClusterPolicy(t, "base", `{tier: Baseline, priority: 1, subject: {namespaces: {}},
				ingress: [{action: `+action+`, from: [{namespaces: {}}]}], egress: [{action: `+action+`, to: [{namespaces: {}}]}]}`))
			h.Sync()
			h.check()
		})
	}
}
