package controller_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
)

// expectLines fails if a list is not that of the lines of a text, in whatever order.
func expectLines(t *testing.T, about, want string, got []string) {
	t.Helper()
	var lines []string
	for line := range strings.SplitSeq(want, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	slices.Sort(got)
	if diff := cmp.Diff(lines, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", about, diff)
	}
}

// TestUses shows what is reported of each set of IPv4, and which policies use it.
func TestUses(t *testing.T) {
	w := newHarness(t)
	w.Namespace("a", "team=a")
	w.Pod("a/web", "10.32.1.2", "app=web")
	w.Policy("a/p", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}, {ipBlock: {cidr: 10.0.0.0/8}}]}]}`)
	w.Policy("a/q", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {}}]}]}`)
	w.Policy("a/quiet", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: db}}}]}]}`)
	w.Sync()
	var got []string
	for name, use := range w.Model.Uses() {
		if w.Kernels[npc.IPv4].Sets[name] != nil && !strings.HasSuffix(name, "-v6") {
			got = append(got, use.About+": "+strings.Join(use.Policies, " "))
		}
	}
	expectLines(t, "sets", `
		10.0.0.0/8: a/p
		every address while broadcast is dropped:
		every address while weave-npc runs:
		local pods in a that policies isolate, ingress: a/p a/q
		local pods that no policy isolates, egress:
		local pods that no policy isolates, ingress:
		local pods with app=web in a: a/p a/q
		local pods:
		pods in a: a/p a/q
		pods in all namespaces: a/q
		the node's range of pod addresses:
		unknown addresses that are dropped while weave-npc does not run:
		unknown addresses that are dropped, egress:
		unknown addresses that are dropped, ingress:`, trimAll(got))
	got = nil
	for name := range w.Kernels[npc.IPv4].Chains {
		got = append(got, strings.TrimPrefix(name, "WEAVE-NPC")+": "+w.Model.ChainUse(name))
	}
	expectLines(t, "chains", `
		: packets to local pods
		-BROADCAST: broadcast that is dropped
		-DEFAULT: local pods that are not isolated, ingress
		-DROP-EGRESS: report and drop, egress
		-DROP-INGRESS: report and drop, ingress
		-EGRESS: packets from local pods
		-EGRESS-CUSTOM: the way to the rules of isolated pods, egress
		-EGRESS-DEFAULT: local pods that are not isolated, egress
		-EGRESS-REPLIES: what opens no connection, egress
		-FORWARD: what passes this node
		-I-7sm5l5u3gwnli4oo: what policies of a allow, ingress
		-INGRESS: the way to the rules of isolated pods, ingress
		-INPUT: packets from local pods to this node
		FORWARD:
		INPUT:
		OUTPUT:
		-LAYOUT-1: which layout of sets and chains this is
		-REPLIES: what opens no connection, ingress`, trimAll(got))
	if about := w.Model.ChainUse("KUBE-FORWARD"); about != "" {
		t.Errorf("a foreign chain is for %s", about)
	}
}

func trimAll(lines []string) []string {
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return lines
}

// TestAddressesOfPods shows which addresses are taken for those of local pods, and which pods are reported because
// theirs are not.
func TestAddressesOfPods(t *testing.T) {
	w := newHarness(t, func(c *enforce.Config) { c.PodInterface = "" })
	w.Pod("a/web", "10.32.1.2")
	w.Remote("a/far", "10.32.2.9")
	for _, name := range []string{"d", "b", "c", "a"} {
		w.Pod("out/"+name, "10.99.1."+fmt.Sprint(name[0]))
	}
	w.Sync()
	for _, c := range []struct {
		addr           string
		local, inRange bool
	}{{"10.32.1.2", true, true}, {"10.32.1.3", false, true}, {"10.32.2.9", false, false}, {"10.99.1.97", true, false}} {
		a := netip.MustParseAddr(c.addr)
		if w.Model.IsLocal(a) != c.local || w.Model.InRange(a) != c.inRange {
			t.Errorf("%s is a local pod's: %t, in the range: %t", a, w.Model.IsLocal(a), w.Model.InRange(a))
		}
	}
	if got := w.Model.OutOfRangePods(); !slices.Equal(got, []string{"out/a", "out/b", "out/c"}) {
		t.Errorf("out of the range: %q", got)
	}
	if mode := w.Model.FailClosedMode(); mode != enforce.FailClosedAuto {
		t.Errorf("the fail-closed mode is %s", mode)
	}
}

// TestRejectedReports shows that the reason is reported why dropped packets are not reported.
func TestRejectedReports(t *testing.T) {
	w := newHarness(t)
	w.Pod("a/web", "10.32.1.2")
	w.Model.SetSynced()
	tx := w.Model.Plan(false, allKnown())[npc.IPv4]
	r := tx.Taken()
	r.RejectedRules = map[string]string{}
	for _, c := range tx.Rules.Replace {
		for _, rule := range c.Rules {
			if strings.Contains(rule.Target, "-j NFLOG") {
				r.RejectedRules[rule.ID()] = "no such target"
			}
		}
	}
	if why := w.Model.LoggingRejected(); why != "" {
		t.Errorf("before anything was tried: %s", why)
	}
	if _, rules := w.Model.Commit(tx, r); len(rules) > 0 {
		t.Errorf("cannot be left out: %q", rules)
	}
	if why := w.Model.LoggingRejected(); why != "no such target" {
		t.Errorf("packets are not reported because %q", why)
	}
}

// TestAnnotatedNamespace shows that a namespace that begins to ask for isolation, as in Kubernetes 1.6, gets it at
// once.
func TestAnnotatedNamespace(t *testing.T) {
	w := newHarness(t, func(c *enforce.Config) { c.LegacyNetpol = true })
	w.Namespace("a")
	w.Pod("a/web", "10.32.1.2,fd32:1::2")
	w.Sync()
	w.Expect("outside > a/web tcp:80 = yes")
	for _, isolates := range []bool{true, false} {
		w.Model.SetNamespace(npc.Namespace{Name: "a", UID: "ns-a", DefaultDeny: isolates})
		w.Again(false)
		w.Expect("outside > a/web tcp:80 = " + map[bool]string{true: "no", false: "yes"}[isolates])
	}
}
