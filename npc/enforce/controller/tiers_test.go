package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
)

const (
	denyWebFromDB = `{tier: Admin, priority: 1, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}},
ingress: [{action: Deny, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}}, {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: none}}}}]}]}`
	freeDeniesAll = `{tier: Baseline, priority: 1, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: free}}}},
egress: [{action: Accept, to: [{networks: [198.51.100.0/24, '2001:db8::/32']}]}, {action: Deny, to: [{networks: [0.0.0.0/0, '::/0']}]}]}`
)

func tieredPods(w *harness) {
	w.Namespace("shop")
	w.Pod("shop/web", "10.32.1.2,fd32:1::2", "app=web")
	w.Pod("shop/db", "10.32.1.3,fd32:1::3", "app=db")
	w.Pod("shop/free", "10.32.1.4,fd32:1::4", "app=free")
	w.Remote("shop/api", "10.32.2.2,fd32:2::2", "app=api")
}

const tieredVerdicts = `
	shop/db > shop/web tcp:80 = no
	shop/api > shop/web tcp:80 = yes
	shop/free > shop/api tcp:80 = no
	shop/db > shop/api tcp:80 = yes`

func tiered(t *testing.T) *harness {
	w := newHarness(t, identifiedByRange)
	tieredPods(w)
	w.ClusterPolicy("web", denyWebFromDB)
	w.ClusterPolicy("free", freeDeniesAll)
	w.Sync()
	w.Expect(tieredVerdicts)
	return w
}

// TestS94_ListsStayWhileClusterPoliciesCannotBeRead restarts without the cluster network policies that the kernel has
// the rules of. A policy of a namespace that comes meanwhile is enforced.
func TestS94_ListsStayWhileClusterPoliciesCannotBeRead(t *testing.T) {
	w := tiered(t).restarted()
	tieredPods(w)
	w.Model.SetMissing(npc.ClusterPoliciesMissing)
	w.Sync()
	w.CollectGarbage()
	w.Explained = false // from policies that were not read
	w.Expect(tieredVerdicts)
	w.Policy("shop/db", denyEgress)
	w.Again(true)
	w.CollectGarbage()
	w.Expect(strings.Replace(tieredVerdicts, "shop/db > shop/api tcp:80 = yes", "shop/db > shop/api tcp:80 = no", 1))
	if _, why := w.Model.Closed(npc.Ingress); why == "" {
		t.Error("the fail-closed filter is open")
	}
	w.DeletePolicy("shop/db")
	w.ClusterPolicy("web", denyWebFromDB) // the other one is gone
	w.Model.SetMissing(npc.NothingMissing)
	w.Again(true)
	w.CollectGarbage()
	w.Expect(strings.Replace(tieredVerdicts, "shop/free > shop/api tcp:80 = no", "shop/free > shop/api tcp:80 = yes", 1))
	if _, why := w.Model.Closed(npc.Ingress); why != "" {
		t.Errorf("the fail-closed filter drops packets: %s", why)
	}
}

// TestS94_NothingIsHeldWhereNothingWas starts without the cluster network policies on a node without rules of any.
func TestS94_NothingIsHeldWhereNothingWas(t *testing.T) {
	w := newHarness(t, identifiedByRange)
	tieredPods(w)
	w.Model.SetMissing(npc.ClusterPoliciesMissing)
	w.Sync()
	w.Expect("shop/db > shop/web tcp:80 = yes\nshop/free > shop/api tcp:80 = yes")
	if _, why := w.Model.Closed(npc.Ingress); why != "" {
		t.Errorf("the fail-closed filter drops packets: %s", why)
	}
}

// TestS94_ARestartChangesNothing as long as the same policies are read.
func TestS94_ARestartChangesNothing(t *testing.T) {
	w := tiered(t).restarted()
	tieredPods(w)
	w.ClusterPolicy("free", freeDeniesAll)
	w.ClusterPolicy("web", denyWebFromDB)
	w.Model.SetSynced()
	for _, tx := range w.Plan(true) {
		if !tx.Empty() {
			t.Errorf("to do:\n%s", tx)
		}
	}
}

// TestS59_ADeletedPodUnderAnAdminDenyIsRemembered over a restart, although no policy isolates it.
func TestS59_ADeletedPodUnderAnAdminDenyIsRemembered(t *testing.T) {
	w := tiered(t).restarted()
	tieredPods(w)
	w.DeletePod("shop/web")
	w.ClusterPolicy("web", denyWebFromDB)
	w.Sync()
	w.Expect("10.32.2.2 > 10.32.1.2 tcp:80 = no\nfd32:2::2 > fd32:1::2 tcp:80 = no")
}

// TestS89_RejectedRulesDeny everything for their subjects in their direction, unless they accept.
func TestS89_RejectedRulesDeny(t *testing.T) {
	for name, c := range map[string]struct {
		action, expect string
	}{
		"Deny":   {"Deny", "shop/api > shop/web tcp:80 = no\nshop/db > shop/web tcp:80 = no\nshop/web > shop/api tcp:80 = yes\nshop/api > shop/db tcp:80 = yes"},
		"Pass":   {"Pass", "shop/api > shop/web tcp:80 = no\nshop/db > shop/web tcp:80 = no\nshop/web > shop/api tcp:80 = yes\nshop/api > shop/db tcp:80 = yes"},
		"Accept": {"Accept", "shop/api > shop/web tcp:80 = yes\nshop/db > shop/web tcp:80 = yes"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHarness(t, identifiedByRange)
			w.Explained = false // as the kernel takes all
			tieredPods(w)
			w.ClusterPolicy("web", strings.Replace(denyWebFromDB, "Deny", c.action, 1))
			w.Model.SetSynced()
			rejecting(w)
			w.Again(false)
			w.Expect(c.expect)
			refused := w.Model.Rejected()
			if len(refused) != 1 || !refused[0].Cluster || refused[0].Name != "web" {
				t.Errorf("rejected: %+v", refused)
			}
		})
	}
}

// rejecting carries out a plan on kernels that take no rule of a policy of a tier.
func rejecting(w *harness) {
	for f, tx := range w.Plan(false) {
		r := tx.Taken()
		r.RejectedRules = map[string]string{}
		ofPolicy := func(r iptables.Rule) bool { return strings.Contains(r.Comment, "policy web rule") && r.Match != "" }
		for _, c := range tx.Rules.Replace {
			for _, rule := range c.Rules {
				if ofPolicy(rule) {
					r.RejectedRules[rule.ID()] = "no such match"
				}
			}
		}
		taken := tx
		taken.Rules = tx.Rules.Without(ofPolicy)
		if err := w.Kernels[f].Apply(taken); err != nil {
			w.Fatal(err)
		}
		r.Written = []iptables.Update{tx.Rules}
		w.Model.Commit(tx, r)
	}
	w.Model.Resume()
}

// TestS89_RejectedSetsDeny what their rules would have asked for, and leave all else as it is.
func TestS89_RejectedSetsDeny(t *testing.T) {
	w := newHarness(t, identifiedByRange)
	w.Explained = false
	tieredPods(w)
	w.ClusterPolicy("web", denyWebFromDB)
	w.Model.SetSynced()
	for f, tx := range w.Plan(false) {
		rejected, kept := map[string]string{}, dataplane.Result{Asked: true}
		asked := map[string]bool{}
		for _, c := range tx.Rules.Replace {
			for _, rule := range c.Rules {
				for _, name := range rule.Sets() {
					asked[name] = asked[name] || strings.Contains(rule.Comment, "policy web rule")
				}
			}
		}
		peers := func(op ipset.Op) bool { return asked[op.Set.Name] }
		taken := tx
		taken.Close, taken.AddMembers = nil, nil
		for _, op := range tx.Close {
			if peers(op) {
				rejected[op.Set.Name] = "no memory"
				continue
			}
			taken.Close = append(taken.Close, op)
		}
		for _, op := range tx.AddMembers {
			if rejected[op.Set.Name] == "" {
				taken.AddMembers = append(taken.AddMembers, op)
			}
		}
		lacking := func(r iptables.Rule) bool {
			for _, name := range r.Sets() {
				if rejected[name] != "" {
					return true
				}
			}
			return false
		}
		taken.Rules = tx.Rules.Without(lacking)
		if err := w.Kernels[f].Apply(taken); err != nil {
			t.Fatal(err)
		}
		kept.RejectedSets, kept.Written, kept.AllWritten = rejected, []iptables.Update{taken.Rules}, true
		w.Model.Commit(tx, kept)
		if len(rejected) != 1 {
			t.Errorf("rejected: %v", rejected)
		}
	}
	w.Model.Resume()
	w.Again(false)
	w.Expect("shop/api > shop/web tcp:80 = no\nshop/db > shop/web tcp:80 = no\nshop/web > shop/api tcp:80 = yes\nshop/api > shop/db tcp:80 = yes")
}

// TestS81_RulesSideBySideAreOne in the kernel, if they do the same with the same ports: a packet is compared with a
// list of their peers' sets once.
func TestS81_RulesSideBySideAreOne(t *testing.T) {
	peer := func(app string) string {
		return `{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: ` + app + `}}}}`
	}
	rule := func(action, peers, protocols string) string {
		return `{action: ` + action + `, from: [` + peers + `], protocols: [` + protocols + `]}`
	}
	const tcp80, tcp81 = `{tcp: {destinationPort: {number: 80}}}`, `{tcp: {destinationPort: {number: 81}}}`
	w := newHarness(t, identifiedByRange)
	w.Namespace("shop")
	w.Pod("shop/web", "10.32.1.2,fd32:1::2", "app=web")
	for i, app := range []string{"a", "b", "c", "d", "e"} {
		w.Remote("shop/"+app, fmt.Sprintf("10.32.2.%d,fd32:2::%d", i+2, i+2), "app="+app)
	}
	policy := func(name string, priority int, rules ...string) {
		w.ClusterPolicy(name, fmt.Sprintf(`{tier: Admin, priority: %d, subject: {namespaces: {}}, ingress: [%s]}`, priority, strings.Join(rules, ", ")))
	}
	policy("first", 1, rule("Deny", peer("a"), tcp80), rule("Deny", peer("b")+", "+peer("c"), tcp81+", "+tcp80))
	policy("second", 2, rule("Deny", peer("d"), tcp80), rule("Accept", peer("e"), tcp80), rule("Deny", peer("e"), tcp80))
	w.Sync()
	var got []string
	for name, texts := range w.Kernels[npc.IPv4].Chains {
		if strings.HasPrefix(name, "WEAVE-NPC-A-") {
			for _, text := range texts {
				_, about, _ := strings.Cut(text, "Admin policy")
				got = append(got, about)
			}
		}
	}
	if want := []string{` first rule 1 / Admin policy second rule 1" -g WEAVE-NPC-DROP-INGRESS`, ` first rule 2" -g WEAVE-NPC-DROP-INGRESS`,
		` second rule 2" -j ACCEPT`, ` second rule 3" -g WEAVE-NPC-DROP-INGRESS`, ` decides" -g WEAVE-NPC-DEFAULT`}; !slices.Equal(got, want) {
		t.Errorf("the rules are:\n%s", strings.Join(got, "\n"))
	}
	w.Expect(`
		shop/a > shop/web tcp:80 = no
		shop/a > shop/web tcp:81 = yes
		shop/b > shop/web tcp:80 = no
		shop/c > shop/web tcp:81 = no
		shop/d > shop/web tcp:80 = no
		shop/d > shop/web tcp:81 = yes
		shop/e > shop/web tcp:80 = yes`)
}

// TestS80_ManyCombinations has more combinations of policies choose local pods than there are lists: 15 have lists of
// their own, all others share one. What each pod gets stays the same while policies come and go, and which have their
// own follows from the policies alone.
func TestS80_ManyCombinations(t *testing.T) {
	const combinations = 20
	w := newHarness(t, identifiedByRange)
	w.Namespace("shop")
	w.Remote("shop/db", "10.32.2.2", "app=db")
	w.Remote("shop/api", "10.32.2.3", "app=api")
	spec := func(i int) string {
		return fmt.Sprintf(`{tier: Admin, priority: 1, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {number: '%d'}}}},
ingress: [{action: Deny, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}}]}]}`, i)
	}
	for i := range combinations {
		w.Pod(fmt.Sprintf("shop/p%d", i), fmt.Sprintf("10.32.1.%d", 10+i), fmt.Sprintf("number=%d", i))
		w.ClusterPolicy(fmt.Sprintf("p%02d", i), spec(i))
	}
	w.Sync()
	check := func(there, lists int) {
		t.Helper()
		for i := range combinations {
			db := "no"
			if i >= there {
				db = "yes"
			}
			w.Expect(fmt.Sprintf("shop/db > shop/p%d tcp:80 = %s\nshop/api > shop/p%d tcp:80 = yes", i, db, i))
		}
		n := 0
		for name := range w.Kernels[npc.IPv4].Chains {
			if strings.HasPrefix(name, "WEAVE-NPC-A-") {
				n++
			}
		}
		if n != lists {
			t.Errorf("there are %d lists, want %d", n, lists)
		}
	}
	check(combinations, 16)
	for there := combinations - 1; there >= 14; there-- {
		p := fmt.Sprintf("p%02d", there)
		w.Model.DeleteClusterPolicy(p, types.UID(p))
		w.Again(true)
		w.CollectGarbage()
		check(there, min(there, 16))
	}
	for i := 14; i < combinations; i++ {
		w.ClusterPolicy(fmt.Sprintf("p%02d", i), spec(i))
		w.Again(true)
	}
	w.CollectGarbage()
	check(combinations, 16)
}
