package cluster_test

import (
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// TestNamespaceFits shows what is known about a namespace whose labels could not be read: its name.
func TestNamespaceFits(t *testing.T) {
	c := cluster.New()
	c.SetNamespace(fixture.Namespace("shop team=a"))
	c.SetUnreadable(npc.Unreadable{Namespaces: npc.Partly{Reason: "forbidden", Read: map[string]bool{"shop": true, "gone": true}}})
	v := c.View()
	for selector, want := range map[string][3]policy.Fit{ // of shop, of pay, of gone, which is read and is not there
		"{}":                            {policy.Always, policy.Always, policy.Never},
		"{matchLabels: {team: a}}":      {policy.Always, policy.Maybe, policy.Never},
		"{matchLabels: {team: b}}":      {policy.Never, policy.Maybe, policy.Never},
		"{matchLabels: {team: 'no b'}}": {policy.Never, policy.Never, policy.Never},
		"{matchExpressions: [{key: team, operator: DoesNotExist}]}":                                 {policy.Never, policy.Maybe, policy.Never},
		"{matchLabels: {kubernetes.io/metadata.name: pay}}":                                         {policy.Never, policy.Always, policy.Never},
		"{matchLabels: {kubernetes.io/metadata.name: shop, team: a}}":                               {policy.Always, policy.Never, policy.Never},
		"{matchLabels: {kubernetes.io/metadata.name: pay, team: a}}":                                {policy.Never, policy.Maybe, policy.Never},
		"{matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [shop]}]}": {policy.Never, policy.Always, policy.Never},
	} {
		s := selectorOf(t, selector)
		if got := [3]policy.Fit{cluster.NamespaceFits(v, s, "shop"), cluster.NamespaceFits(v, s, "pay"), cluster.NamespaceFits(v, s, "gone")}; got != want {
			t.Errorf("%s: %v, want %v", selector, got, want)
		}
	}
}

// selectorOf compiles a selector as the namespaceSelector of a peer.
func selectorOf(t *testing.T, selector string) policy.Selector {
	t.Helper()
	c := cluster.New()
	c.SetPolicy(fixture.Policy(t, "shop/p", "{podSelector: {}, ingress: [{from: [{namespaceSelector: "+selector+"}]}]}"))
	return *c.View().Policies[0].Rules[0][0].Peers[0].Namespaces
}

// TestFindsWorkloadsAndPodsThatCannotBeRead by their names.
func TestFindsWorkloadsAndPodsThatCannotBeRead(t *testing.T) {
	c := cluster.New()
	for _, facts := range []string{"shop/web-2 Deployment/web", "shop/web-1 Deployment/web",
		"shop/web-0 Deployment/web Finished", "shop/alone"} {
		c.SetPod(fixture.Pod(facts))
	}
	c.SetUnreadable(npc.Unreadable{Pods: npc.Partly{Reason: "forbidden", Read: map[string]bool{"shop": true}}})
	v := c.View()
	for text, want := range map[string]string{
		"shop/Deployment/web": "shop/web-1", "shop/Pod/alone": "shop/alone", "pay/db": "pay/db",
		"shop/Deployment/none": "there is no pod of Deployment shop/none", "shop/none": "there is no pod shop/none",
		"pay/": "is neither an address nor a pod", "/db": "is neither an address nor a pod", "pay/Deployment/no": "there is no namespace pay",
		"pay/Deployment/web": "there is no pod of Deployment pay/web; did you mean shop/Deployment/web?",
	} {
		ends, err := v.Find(text)
		switch {
		case err != nil && !strings.Contains(err.Error(), want):
			t.Errorf("%s: %v", text, err)
		case err == nil && (len(ends) != 1 || ends[0].Pod != want):
			t.Errorf("%s: %v, want %s", text, ends, want)
		}
	}
	if err := v.CheckNamespace("pay"); err == nil {
		t.Error("a namespace without an object passes, although namespaces were read")
	}
}
