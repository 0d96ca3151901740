package controller_test

import (
	"fmt"
	"math/rand"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/observe/kernel/simulate"
	"github.com/weave-npc/weave-npc/test/cluster"
)

// restarted returns a harness whose controller has no objects yet and whose kernel holds what w's does.
func (w *harness) restarted(configure ...func(*enforce.Config)) *harness {
	next := &harness{cluster.NewUnsynced(w.T, append(configure, identifiedByRange)...)}
	next.Kernels = w.Kernels
	for name, addrs := range w.Addrs {
		next.Addrs[name] = addrs
	}
	next.Load()
	return next
}

// identifiedByRange has local pods identified by their addresses, so that remote ones may be behind any interface.
func identifiedByRange(c *enforce.Config) { c.PodInterface = "" }

const (
	webFromAPI = `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: api}}}], ports: [{port: 80}]}]}`
	dbFromWeb  = `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`
	denyEgress = `{podSelector: {matchLabels: {app: db}}, policyTypes: [Egress]}`
)

// TestS74_WhatWasNotReadKeepsWhatTheKernelHolds restarts with parts of what was there.
func TestS74_WhatWasNotReadKeepsWhatTheKernelHolds(t *testing.T) {
	pods := func(w *harness) {
		w.Namespace("shop")
		w.Pod("shop/web", "10.32.1.2,fd32:1::2", "app=web")
		w.Pod("shop/db", "10.32.1.3,fd32:1::3", "app=db")
		w.Pod("shop/free", "10.32.1.4,fd32:1::4", "app=free")
		w.Remote("shop/api", "10.32.2.2,fd32:2::2", "app=api")
	}
	policies := func(w *harness) {
		w.Policy("shop/web", webFromAPI)
		w.Policy("shop/db", dbFromWeb)
		w.Policy("shop/egress", denyEgress)
	}
	const verdicts = `
		shop/api > shop/web tcp:80 = yes
		outside > shop/web tcp:80 = no
		shop/api > shop/db tcp:80 = no
		shop/web > shop/db tcp:80 = yes
		shop/db > outside tcp:80 = no
		outside > shop/free tcp:80 = yes`
	before := func(t *testing.T) *harness {
		w := newHarness(t, identifiedByRange)
		pods(w)
		policies(w)
		w.Sync()
		w.Expect(verdicts)
		return w
	}

	t.Run("policies", func(t *testing.T) {
		w := before(t).restarted()
		pods(w)
		w.Model.SetMissing(npc.ObjectsMissing)
		w.Sync()
		w.CollectGarbage()
		w.Expect(verdicts)
		// What others write meanwhile is enforced, and undone.
		w.Policy("shop/free", `{podSelector: {matchLabels: {app: free}}, ingress: [{from: [{podSelector: {matchLabels: {app: api}}}]}]}`)
		w.Again(true)
		w.Expect(verdicts[:strings.LastIndex(verdicts, "outside")] + "outside > shop/free tcp:80 = no\nshop/api > shop/free tcp:80 = yes")
		w.Policy("shop/free", `{podSelector: {matchLabels: {app: free}}, ingress: [{from: [{podSelector: {matchLabels: {app: db}}}]}]}`)
		w.Again(true)
		w.CollectGarbage()
		w.Expect("outside > shop/free tcp:80 = no\nshop/api > shop/free tcp:80 = no\nshop/api > shop/web tcp:80 = yes")
		w.Policy("shop/more", `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 81}]}]}`)
		w.Again(true)
		w.Expect("outside > shop/web tcp:81 = yes\noutside > shop/web tcp:80 = no\nshop/api > shop/web tcp:80 = yes")
		w.DeletePolicy("shop/more")
		w.DeletePolicy("shop/free")
		w.Again(true)
		w.CollectGarbage()
		w.Expect(verdicts + "\noutside > shop/web tcp:81 = no")
		// The rest is read: it has fewer objects than before.
		w.Policy("shop/db", dbFromWeb)
		w.Model.SetMissing(npc.NothingMissing)
		w.Again(true)
		w.CollectGarbage()
		w.Expect("outside > shop/web tcp:80 = yes\nshop/web > shop/db tcp:80 = yes\nshop/api > shop/db tcp:80 = no\nshop/db > outside tcp:80 = yes")
	})

	t.Run("a policy that is read late", func(t *testing.T) {
		w := before(t).restarted()
		pods(w)
		w.Model.SetMissing(npc.ObjectsMissing)
		w.Sync()
		policies(w)
		w.Again(true)
		w.Expect(verdicts)
		for name, rules := range w.Kernels[npc.IPv4].Chains {
			if len(slices.Compact(slices.Sorted(slices.Values(rules)))) < len(rules) {
				t.Errorf("%s has a rule twice: %q", name, rules)
			}
		}
		// From now on its rules are its own, though others are still missing.
		w.Policy("shop/db", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: api}}}]}]}`)
		w.Again(true)
		w.CollectGarbage()
		w.Expect("shop/web > shop/db tcp:80 = no\nshop/api > shop/db tcp:80 = yes\nshop/api > shop/web tcp:80 = yes")
	})

	t.Run("pods", func(t *testing.T) {
		w := before(t).restarted()
		w.Namespace("shop")
		policies(w)
		w.Model.SetMissing(npc.ObjectsMissing)
		w.Sync()
		w.CollectGarbage()
		w.Expect(verdicts)
		pods(w)
		w.Model.SetMissing(npc.NothingMissing)
		w.Again(true)
		w.CollectGarbage()
		w.Expect(verdicts)
	})

	t.Run("node", func(t *testing.T) {
		w := before(t).restarted(func(c *enforce.Config) { c.NodeName = "node9" })
		pods(w)
		policies(w)
		w.Model.SetMissing(npc.NodeMissing)
		w.Sync()
		w.CollectGarbage()
		w.Expect(verdicts)
		w.Expect("outside > 10.32.1.77 tcp:80 = no")
		w = w.restarted()
		pods(w)
		policies(w)
		w.Sync()
		w.CollectGarbage()
		w.Expect(verdicts)
	})

	t.Run("an address of another pod", func(t *testing.T) { otherOwnerWhileMissing(before(t).restarted()) })
}

// otherOwnerWhileMissing has addresses change their pods while objects are missing.
func otherOwnerWhileMissing(w *harness) {
	w.Namespace("shop")
	w.Pod("shop/other", "10.32.1.2,fd32:1::2", "app=other")
	w.Model.SetMissing(npc.ObjectsMissing)
	w.Sync()
	w.Expect("shop/other > shop/db tcp:80 = no") // as shop/web it could
	w.Pod("shop/db", "10.32.1.3,fd32:1::3", "app=db")
	w.Again(true)
	w.Expect("outside > shop/db tcp:80 = no")
	w.DeletePod("shop/db")
	w.Again(true)
	w.Expect("outside > shop/db tcp:80 = no") // its container may still run
	w.Pod("shop/next", "10.32.1.3,fd32:1::3", "app=next")
	w.Again(true)
	w.Expect("outside > shop/next tcp:80 = yes\nshop/next > outside tcp:80 = yes")
}

// TestS74_AnyPartOfTheObjectsCanBeMissing restarts random clusters with random parts of their objects.
func TestS74_AnyPartOfTheObjectsCanBeMissing(t *testing.T) {
	rounds := 150
	if testing.Short() {
		rounds = 15
	}
	for seed := range rounds {
		random := rand.New(rand.NewSource(int64(seed)))
		objects, names := randomObjects(random)
		w := newHarness(t, identifiedByRange)
		for _, set := range objects {
			set(w)
		}
		w.Sync()
		want := w.matrix(names)
		next := w.restarted()
		next.Model.SetMissing(npc.ObjectsMissing)
		var missing []func(*harness)
		for _, set := range objects {
			if random.Intn(2) == 0 {
				set(next)
			} else {
				missing = append(missing, set)
			}
		}
		next.Sync()
		next.CollectGarbage()
		if got := next.matrix(names); got != want {
			t.Fatalf("seed %d: with %d of %d objects missing the verdicts are\n%s\nnot\n%s", seed, len(missing), len(objects), got, want)
		}
		next.churn(random, names)
		for _, set := range missing {
			set(next)
		}
		for _, set := range objects {
			set(next)
		}
		next.Model.SetMissing(npc.NothingMissing)
		next.Again(true)
		if got := next.matrix(names); got != want {
			t.Fatalf("seed %d: with all objects read the verdicts are\n%s\nnot\n%s", seed, got, want)
		}
		next.CollectGarbage()
		next.Applied()
		again := next.restarted()
		for _, set := range objects {
			set(again)
		}
		again.Sync()
		again.CollectGarbage()
		if left := again.Applied(); left != "" {
			t.Fatalf("seed %d: what was kept is not tidied up:\n%s", seed, left)
		}
	}
}

// churn changes and deletes some of the objects that are known, one after the other.
func (w *harness) churn(random *rand.Rand, names []string) {
	for range random.Intn(8) {
		name := names[random.Intn(len(names))]
		what := random.Intn(4)
		switch p, known := w.Pods[name]; {
		case what < 2:
			w.DeletePolicy(fmt.Sprintf("ns%d/policy%d", random.Intn(2), random.Intn(10)))
		case !known:
		case what == 2:
			w.DeletePod(name)
		case p.UID != "":
			w.Relabel(name, fmt.Sprintf("app=%d", random.Intn(3)))
		}
		w.Again(random.Intn(2) == 0)
	}
}

// randomObjects returns what sets the objects of a cluster, and the names of its pods.
func randomObjects(random *rand.Rand) (objects []func(*harness), names []string) {
	add := func(set func(*harness)) { objects = append(objects, set) }
	for n := range 2 {
		ns := fmt.Sprintf("ns%d", n)
		add(func(w *harness) { w.Namespace(ns, "team="+ns) })
		for i := range 4 {
			name, app := fmt.Sprintf("%s/p%d", ns, i), fmt.Sprintf("app=%d", random.Intn(3))
			addrs := fmt.Sprintf("10.32.1.%d,fd32:1::%d", 10*(n+1)+i, 10*(n+1)+i)
			names = append(names, name)
			if i == 3 {
				addrs = fmt.Sprintf("10.32.2.%d,fd32:2::%d", 10+n, 10+n)
				add(func(w *harness) { w.Remote(name, addrs, app) })
				continue
			}
			add(func(w *harness) { w.Pod(name, addrs, app) })
		}
		for i := range random.Intn(20) {
			name := fmt.Sprintf("%s/policy%d", ns, i)
			target := fmt.Sprintf("{matchLabels: {app: %q}}", fmt.Sprint(random.Intn(3)))
			if random.Intn(3) == 0 {
				target = fmt.Sprintf("{matchExpressions: [{key: app, operator: NotIn, values: [%q, x%d]}]}", fmt.Sprint(random.Intn(3)), i)
			}
			peer := []string{
				fmt.Sprintf("podSelector: {matchLabels: {app: %q}}", fmt.Sprint(random.Intn(3))),
				fmt.Sprintf("namespaceSelector: {matchLabels: {team: ns%d}}", random.Intn(2)),
				"ipBlock: {cidr: 198.51.100.0/24}",
			}[random.Intn(3)]
			rules := ""
			if random.Intn(3) > 0 {
				rules = fmt.Sprintf("{from: [{%s}], ports: [{port: %d}]}", peer, 80+random.Intn(2))
			}
			spec := fmt.Sprintf("{podSelector: %s, ingress: [%s]}", target, rules)
			if random.Intn(3) == 0 {
				spec = fmt.Sprintf("{podSelector: %s, policyTypes: [Egress], egress: [%s]}", target, strings.ReplaceAll(rules, "from:", "to:"))
			}
			add(func(w *harness) { w.Policy(name, spec) })
		}
	}
	random.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
	return objects, names
}

// matrix returns the verdicts between the pods and an address outside, for two ports.
func (w *harness) matrix(names []string) string {
	var b strings.Builder
	names = append([]string{"outside"}, names...)
	for _, from := range names {
		for _, to := range names {
			for _, port := range []uint16{80, 81} {
				for i, src := range w.Addrs[from] {
					dst := w.Addrs[to][i]
					v := w.Evaluate(simulate.Packet{Src: src, Dst: dst, Protocol: 6, DstPort: port, In: behind(src), Out: behind(dst)})
					fmt.Fprintf(&b, "%s > %s:%d %t\n", src, dst, port, v.Accepted)
				}
			}
		}
	}
	return b.String()
}

// behind returns the interface that an address is behind.
func behind(a netip.Addr) string {
	if netip.MustParsePrefix("10.32.1.0/24").Contains(a) || netip.MustParsePrefix("fd32:1::/64").Contains(a) {
		return "cni0"
	}
	return "eth0"
}

// TestS74_ARuleThatStaysLeadsToAChain: a policy is read late and deleted while other input is missing. The rule that
// led to its chain stays, for it was found, and so the chain has to.
func TestS74_ARuleThatStaysLeadsToAChain(t *testing.T) {
	w := newHarness(t, identifiedByRange)
	w.Namespace("shop")
	w.Pod("shop/web", "10.32.1.2,fd32:1::2", "app=web")
	w.Remote("shop/api", "10.32.2.2,fd32:2::2", "app=api")
	w.Policy("shop/web", webFromAPI)
	w.Sync()
	next := w.restarted()
	next.Namespace("shop")
	next.Pod("shop/web", "10.32.1.2,fd32:1::2", "app=web")
	next.Remote("shop/api", "10.32.2.2,fd32:2::2", "app=api")
	next.Model.SetMissing(npc.ObjectsMissing)
	next.Sync()
	next.Policy("shop/web", webFromAPI)
	next.Again(true)
	next.Expect("shop/api > shop/web tcp:80 = yes\noutside > shop/web tcp:80 = no")
	next.DeletePolicy("shop/web")
	for range 3 {
		next.CollectGarbage()
	}
	next.Expect("shop/api > shop/web tcp:80 = no\noutside > shop/web tcp:80 = no") // another policy may isolate it
	next.Model.SetMissing(npc.NothingMissing)
	next.Again(true)
	next.CollectGarbage()
	next.Expect("outside > shop/web tcp:80 = yes")
	for _, k := range next.Kernels {
		for name := range k.Chains {
			if strings.HasPrefix(name, "WEAVE-NPC-I-") {
				t.Errorf("chain %s is left", name)
			}
		}
	}
}
