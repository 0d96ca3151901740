package controller_test

import (
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc/enforce"
)

// populate makes a namespace with two pods and a policy that needs sets of every kind.
func populate(w *harness) {
	w.Namespace("a", "team=a")
	w.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
	w.Pod("a/client", "10.32.1.3,fd32:1::3", "app=client")
	w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress], ingress: [
		{from: [{podSelector: {matchLabels: {app: client}}}, {namespaceSelector: {}}, {ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: 80}]}],
		egress: [{to: [{namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: client}}}]}]}`)
}

// TestLifecycle checks what is left behind, and what is written, as objects come and go.
func TestLifecycle(t *testing.T) {
	t.Run("S31_nothing_is_left", func(t *testing.T) {
		w := newHarness(t)
		w.Sync()
		sets, chains := len(w.Kernels[0].Sets), len(w.Kernels[0].Chains)
		populate(w)
		w.Again(false)
		if len(w.Kernels[0].Chains) != chains+2 {
			t.Errorf("there are %d chains, not two more than %d", len(w.Kernels[0].Chains), chains)
		}
		w.DeletePolicy("a/web")
		w.DeletePod("a/web")
		w.DeletePod("a/client")
		w.Model.DeleteNamespace("a", "ns-a")
		w.Again(false)
		w.CollectGarbage()
		if len(w.Kernels[0].Sets) != sets || len(w.Kernels[0].Chains) != chains {
			t.Errorf("left: %d sets and %d chains, not %d and %d", len(w.Kernels[0].Sets), len(w.Kernels[0].Chains), sets, chains)
		}
		if w.Model.HasGarbage() {
			t.Error("there is still something to tidy up")
		}
	})
	t.Run("S63_peers_that_come_back_are_followed", func(t *testing.T) {
		w := newHarness(t)
		w.Pod("a/web", "10.32.1.2", "app=web")
		w.Remote("a/gone", "10.32.2.3", "app=client")
		w.Remote("a/other", "10.32.2.4", "app=client")
		w.Sync()
		for _, app := range []string{"client", "nothing", "client"} {
			w.Policy("a/web", `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: `+app+`}}}]}]}`)
			w.Again(false)
		}
		w.Expect("a/gone > a/web tcp:80 = yes\n a/other > a/web tcp:80 = yes")
		w.DeletePod("a/gone")
		w.Relabel("a/other", "app=none")
		w.Again(false)
		w.Expect("10.32.2.3 > a/web tcp:80 = no\n a/other > a/web tcp:80 = no")
	})
	t.Run("pods_come_and_go_without_iptables", func(t *testing.T) {
		w := newHarness(t)
		populate(w)
		w.Sync()
		w.Applied()
		w.Pod("a/web2", "10.32.1.4,fd32:1::4", "app=web")
		w.Remote("a/client2", "10.32.2.4,fd32:2::4", "app=client")
		w.Again(false)
		w.Relabel("a/client", "app=none")
		w.Policy("a/deny", `{podSelector: {}}`)
		w.Again(false)
		w.DeletePod("a/web2")
		w.Again(false)
		if text := w.Applied(); text == "" || strings.Contains(text, "*filter") {
			t.Errorf("pods and deny-all policies ran iptables:\n%s", text)
		}
	})
	t.Run("deletes_of_another_object_of_that_name_are_late", func(t *testing.T) {
		w := newHarness(t)
		populate(w)
		w.Sync()
		w.Model.DeletePod("a", "web", "another")
		w.Model.DeletePolicy("a", "web", "another")
		w.Again(false)
		w.Expect("outside > a/web tcp:80 = no\n a/client > a/web tcp:80 = yes")
	})
	t.Run("drift_is_repaired", func(t *testing.T) {
		w := newHarness(t)
		populate(w)
		w.Sync()
		w.CollectGarbage()
		w.Applied()
		k := w.Kernels[0]
		k.Chains["FORWARD"] = append([]string{"-j ACCEPT"}, k.Chains["FORWARD"]...)
		k.Chains["WEAVE-NPC-INGRESS"] = nil
		clear(k.Sets["weave-local-pods"].Members)
		w.Expect("10.32.1.2 > 10.32.1.3 tcp:80 = yes")
		w.Load()
		w.Again(false)
		w.Expect("198.51.100.7 > 10.32.1.2 tcp:80 = no\n 10.32.1.3 > 10.32.1.2 tcp:80 = yes")
		if k.Chains["FORWARD"][1] != "-j ACCEPT" {
			t.Errorf("FORWARD is %q", k.Chains["FORWARD"])
		}
	})
	t.Run("many_namespaces_make_a_flat_set", func(t *testing.T) {
		w := newHarness(t, func(c *enforce.Config) { c.MaxListSize = 2 })
		populate(w)
		w.Sync()
		for _, name := range []string{"b", "c", "d"} {
			w.Namespace(name)
			w.Remote(name+"/x", "10.32.2."+map[string]string{"b": "1", "c": "2", "d": "3"}[name])
			w.Again(false)
			w.Expect(name + "/x > a/web tcp:80 = yes")
		}
		w.CollectGarbage()
		for _, s := range w.Kernels[0].Sets {
			if s.Type == "list:set" {
				t.Errorf("%s is a list of %d", s.Name, len(s.Members))
			}
		}
		w.Model.DeleteNamespace("d", "ns-d")
		w.Model.DeleteNamespace("c", "ns-c")
		w.Again(false)
		w.Expect("b/x > a/web tcp:80 = yes")
	})
}
