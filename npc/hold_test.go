package npc_test

import (
	"fmt"
	"math/rand"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/walk"
)

// restarted returns a world whose model knows nothing yet and whose kernel holds what w's does.
func (w *world) restarted(configure ...func(*npc.Config)) *world {
	next := newModelWorld(w.T, append(configure, toldByRange)...)
	next.kernels = w.kernels
	for name, addrs := range w.addrs {
		next.addrs[name] = addrs
	}
	next.adopt()
	return next
}

// toldByRange has local pods told by their addresses, so that remote ones may be behind any interface.
func toldByRange(c *npc.Config) { c.PodInterface = "" }

const (
	webFromAPI = `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: api}}}], ports: [{port: 80}]}]}`
	dbFromWeb  = `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`
	denyEgress = `{podSelector: {matchLabels: {app: db}}, policyTypes: [Egress]}`
)

// TestS74_WhatWasNotReadKeepsWhatTheKernelHolds restarts with parts of what was there.
func TestS74_WhatWasNotReadKeepsWhatTheKernelHolds(t *testing.T) {
	pods := func(w *world) {
		w.namespace("shop")
		w.pod("shop/web", "10.32.1.2,fd32:1::2", "app=web")
		w.pod("shop/db", "10.32.1.3,fd32:1::3", "app=db")
		w.pod("shop/free", "10.32.1.4,fd32:1::4", "app=free")
		w.remote("shop/api", "10.32.2.2,fd32:2::2", "app=api")
	}
	policies := func(w *world) {
		w.policy("shop/web", webFromAPI)
		w.policy("shop/db", dbFromWeb)
		w.policy("shop/egress", denyEgress)
	}
	const verdicts = `
		shop/api > shop/web tcp:80 = yes
		outside > shop/web tcp:80 = no
		shop/api > shop/db tcp:80 = no
		shop/web > shop/db tcp:80 = yes
		shop/db > outside tcp:80 = no
		outside > shop/free tcp:80 = yes`
	before := func(t *testing.T) *world {
		w := newWorld(t, toldByRange)
		pods(w)
		policies(w)
		w.sync()
		w.expect(verdicts)
		return w
	}

	t.Run("policies", func(t *testing.T) {
		w := before(t).restarted()
		pods(w)
		w.model.SetMissing(npc.ObjectsMissing)
		w.sync()
		w.tidyUp()
		w.expect(verdicts)
		// What others write meanwhile is enforced, and undone.
		w.policy("shop/free", `{podSelector: {matchLabels: {app: free}}, ingress: [{from: [{podSelector: {matchLabels: {app: api}}}]}]}`)
		w.again(true)
		w.expect(verdicts[:strings.LastIndex(verdicts, "outside")] + "outside > shop/free tcp:80 = no\nshop/api > shop/free tcp:80 = yes")
		w.policy("shop/free", `{podSelector: {matchLabels: {app: free}}, ingress: [{from: [{podSelector: {matchLabels: {app: db}}}]}]}`)
		w.again(true)
		w.tidyUp()
		w.expect("outside > shop/free tcp:80 = no\nshop/api > shop/free tcp:80 = no\nshop/api > shop/web tcp:80 = yes")
		w.policy("shop/more", `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 81}]}]}`)
		w.again(true)
		w.expect("outside > shop/web tcp:81 = yes\noutside > shop/web tcp:80 = no\nshop/api > shop/web tcp:80 = yes")
		w.deletePolicy("shop/more")
		w.deletePolicy("shop/free")
		w.again(true)
		w.tidyUp()
		w.expect(verdicts + "\noutside > shop/web tcp:81 = no")
		// The rest is read: it says less than before.
		w.policy("shop/db", dbFromWeb)
		w.model.SetMissing(npc.NothingMissing)
		w.again(true)
		w.tidyUp()
		w.expect("outside > shop/web tcp:80 = yes\nshop/web > shop/db tcp:80 = yes\nshop/api > shop/db tcp:80 = no\nshop/db > outside tcp:80 = yes")
	})

	t.Run("a policy that is read late", func(t *testing.T) {
		w := before(t).restarted()
		pods(w)
		w.model.SetMissing(npc.ObjectsMissing)
		w.sync()
		policies(w)
		w.again(true)
		w.expect(verdicts)
		for name, rules := range w.kernels[npc.IPv4].Chains {
			if len(slices.Compact(slices.Sorted(slices.Values(rules)))) < len(rules) {
				t.Errorf("%s has a rule twice: %q", name, rules)
			}
		}
		// From now on its rules are its own, though others are still missing.
		w.policy("shop/db", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: api}}}]}]}`)
		w.again(true)
		w.tidyUp()
		w.expect("shop/web > shop/db tcp:80 = no\nshop/api > shop/db tcp:80 = yes\nshop/api > shop/web tcp:80 = yes")
	})

	t.Run("pods", func(t *testing.T) {
		w := before(t).restarted()
		w.namespace("shop")
		policies(w)
		w.model.SetMissing(npc.ObjectsMissing)
		w.sync()
		w.tidyUp()
		w.expect(verdicts)
		pods(w)
		w.model.SetMissing(npc.NothingMissing)
		w.again(true)
		w.tidyUp()
		w.expect(verdicts)
	})

	t.Run("node", func(t *testing.T) {
		w := before(t).restarted(func(c *npc.Config) { c.NodeName = "node9" })
		pods(w)
		policies(w)
		w.model.SetMissing(npc.NodeMissing)
		w.sync()
		w.tidyUp()
		w.expect(verdicts)
		w.expect("outside > 10.32.1.77 tcp:80 = no")
		w = w.restarted()
		pods(w)
		policies(w)
		w.sync()
		w.tidyUp()
		w.expect(verdicts)
	})

	t.Run("an address of another pod", func(t *testing.T) {
		w := before(t).restarted()
		w.namespace("shop")
		w.pod("shop/other", "10.32.1.2,fd32:1::2", "app=other")
		w.model.SetMissing(npc.ObjectsMissing)
		w.sync()
		w.expect("shop/other > shop/db tcp:80 = no") // as shop/web it could
		w.pod("shop/db", "10.32.1.3,fd32:1::3", "app=db")
		w.again(true)
		w.expect("outside > shop/db tcp:80 = no")
		w.deletePod("shop/db")
		w.again(true)
		w.expect("outside > shop/db tcp:80 = no") // its container may still run
		w.pod("shop/next", "10.32.1.3,fd32:1::3", "app=next")
		w.again(true)
		w.expect("outside > shop/next tcp:80 = yes\nshop/next > outside tcp:80 = yes")
	})
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
		w := newWorld(t, toldByRange)
		for _, set := range objects {
			set(w)
		}
		w.sync()
		want := w.matrix(names)
		next := w.restarted()
		next.model.SetMissing(npc.ObjectsMissing)
		var missing []func(*world)
		for _, set := range objects {
			if random.Intn(2) == 0 {
				set(next)
			} else {
				missing = append(missing, set)
			}
		}
		next.sync()
		next.tidyUp()
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
		next.model.SetMissing(npc.NothingMissing)
		next.again(true)
		if got := next.matrix(names); got != want {
			t.Fatalf("seed %d: with all objects read the verdicts are\n%s\nnot\n%s", seed, got, want)
		}
		next.tidyUp()
		next.taken()
		again := next.restarted()
		for _, set := range objects {
			set(again)
		}
		again.sync()
		again.tidyUp()
		if left := again.taken(); left != "" {
			t.Fatalf("seed %d: what was kept is not tidied up:\n%s", seed, left)
		}
	}
}

// churn changes and deletes some of the objects that are known, one after the other.
func (w *world) churn(random *rand.Rand, names []string) {
	for range random.Intn(8) {
		name := names[random.Intn(len(names))]
		what := random.Intn(4)
		switch p, known := w.pods[name]; {
		case what < 2:
			w.deletePolicy(fmt.Sprintf("ns%d/policy%d", random.Intn(2), random.Intn(10)))
		case !known:
		case what == 2:
			w.deletePod(name)
		case p.UID != "":
			w.relabel(name, fmt.Sprintf("app=%d", random.Intn(3)))
		}
		w.again(random.Intn(2) == 0)
	}
}

// randomObjects returns what sets the objects of a cluster, and the names of its pods.
func randomObjects(random *rand.Rand) (objects []func(*world), names []string) {
	add := func(set func(*world)) { objects = append(objects, set) }
	for n := range 2 {
		ns := fmt.Sprintf("ns%d", n)
		add(func(w *world) { w.namespace(ns, "team="+ns) })
		for i := range 4 {
			name, app := fmt.Sprintf("%s/p%d", ns, i), fmt.Sprintf("app=%d", random.Intn(3))
			addrs := fmt.Sprintf("10.32.1.%d,fd32:1::%d", 10*(n+1)+i, 10*(n+1)+i)
			names = append(names, name)
			if i == 3 {
				addrs = fmt.Sprintf("10.32.2.%d,fd32:2::%d", 10+n, 10+n)
				add(func(w *world) { w.remote(name, addrs, app) })
				continue
			}
			add(func(w *world) { w.pod(name, addrs, app) })
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
			add(func(w *world) { w.policy(name, spec) })
		}
	}
	random.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
	return objects, names
}

// matrix returns the verdicts between the pods and an address outside, for two ports.
func (w *world) matrix(names []string) string {
	var b strings.Builder
	names = append([]string{"outside"}, names...)
	for _, from := range names {
		for _, to := range names {
			for _, port := range []uint16{80, 81} {
				for i, src := range w.addrs[from] {
					dst := w.addrs[to][i]
					v := w.judge(walk.Packet{Src: src, Dst: dst, Protocol: 6, DstPort: port, In: behind(src), Out: behind(dst)})
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
