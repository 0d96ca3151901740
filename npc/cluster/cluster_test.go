package cluster_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// shop has a pod with two addresses, one that has finished, one on the network of its node, and one without an address.
func shop(t *testing.T) *cluster.Cluster {
	c := cluster.New()
	c.SetNamespace(fixture.Namespace("ops"))
	c.SetNode(fixture.Node("node1 172.31.0.1 fd31::1"))
	for _, facts := range []string{
		"shop/web node1 10.32.1.2 fd32:1::2 http:8080",
		"shop/job Finished 10.32.1.3",
		"shop/agent node1@172.31.0.1 node1@172.31.0.9 HostNetwork 172.31.0.1 DaemonSet/agent",
		"shop/new",
	} {
		c.SetPod(fixture.Pod(facts))
	}
	c.SetPolicy(fixture.Policy(t, "shop/web", `{podSelector: {}}`))
	return c
}

func TestFind(t *testing.T) {
	v := shop(t).View()
	for text, want := range map[string]string{
		"shop/web":    "[shop/web (10.32.1.2) shop/web (fd32:1::2)]",
		"shop/agent":  "[172.31.0.1 172.31.0.9]",
		"shop/new":    "[shop/new]",
		"10.32.1.2":   "[10.32.1.2]",
		"shop/job":    "pod shop/job has finished: nothing reaches it, nor does it reach anything",
		"shop/wbe":    "there is no pod shop/wbe; did you mean shop/web?",
		"web":         `"web" is neither an address nor a pod as NAMESPACE/NAME; did you mean shop/web?`,
		"ops/web":     "there is no pod ops/web; did you mean shop/web?",
		"shpo/x":      "there is no namespace shpo; did you mean shop?",
		"10.32.0.0/8": "10.32.0.0/8 is a range; ask about one of its addresses, such as 10.32.0.0, or about a pod as NAMESPACE/NAME",
		"a/b/c":       `there is no namespace a`,

		"default/x":               "there is no pod default/x",
		"default/DaemonSet/agent": "there is no pod of DaemonSet default/agent; did you mean shop/DaemonSet/agent?",
		"default/DaemonSet/db":    "there is no pod of DaemonSet default/db",
		"shop/Job/agent":          "there is no pod of Job shop/agent; did you mean shop/DaemonSet/agent?",
		"node/node1":              "[172.31.0.1 fd31::1]",
		"no/node2":                "no address of node node2 is known: give one of its addresses",
	} {
		ends, err := v.Find(text)
		got := fmt.Sprint(ends)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s\nwant %s", text, got, want)
		}
	}
	if got := strings.Join(v.PodNames("shop"), " "); got != "shop/new shop/web" {
		t.Errorf("pods that can be ends: %s", got)
	}
}

// TestPortsByName shows that a port may be given by the name that the destination has for it.
func TestPortsByName(t *testing.T) {
	v := shop(t).View()
	for _, c := range []struct{ to, text, want string }{
		{"shop/web", "http", "tcp/8080"},
		{"10.32.1.2", "tcp/http", "tcp/8080"},
		{"shop/web", "53", "tcp/53"},
		{"shop/web", "tpc/80", `"tpc/80" is no port such as tcp/80, udp/53 or sctp/80, nor icmp; did you mean tcp/80?`},
		{"shop/web", "udp/http", "shop/web (10.32.1.2) has no udp port of the name http; did you mean tcp/http?"},
		{"shop/web", "htpt", "shop/web (10.32.1.2) has no tcp port of the name htpt; it has tcp/http"},
		{"shop/new", "http", "shop/new has no tcp port of the name http; give its number"},
		{"192.0.2.1", "http", `"http" is the name of a port, and 192.0.2.1 is no pod that could have one`},
	} {
		to, err := v.Find(c.to)
		if err != nil {
			t.Fatal(err)
		}
		s, err := v.Service(c.text, to)
		got := s.String()
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s of %s: %s, want %s", c.text, c.to, got, c.want)
		}
	}
}

// TestViewsDoNotChange shows that neither a view nor a clone changes with the cluster.
func TestViewsDoNotChange(t *testing.T) {
	c := shop(t)
	v, clone := c.View(), c.Clone()
	c.DeletePod("shop", "web", "")
	c.DeletePolicy("shop", "web", "")
	c.DeleteNamespace("ops", "")
	for name, of := range map[string]*cluster.View{"view": v, "clone": clone.View()} {
		if len(of.Pods) != 4 || len(of.Policies) != 1 || len(of.Namespaces) != 1 || of.Owner(netip.MustParseAddr("10.32.1.2"), "") == nil {
			t.Errorf("%s: %d pods, %d policies, %d namespaces", name, len(of.Pods), len(of.Policies), len(of.Namespaces))
		}
	}
	now := c.View()
	if len(now.Pods) != 3 || len(now.Policies) != 0 || len(now.Namespaces) != 0 {
		t.Errorf("now: %d pods, %d policies, %d namespaces", len(now.Pods), len(now.Policies), len(now.Namespaces))
	}
	if now.CheckNamespace("ops") == nil || now.CheckNamespace("shop") != nil || now.CheckNamespace("") != nil {
		t.Error("namespaces are known by their objects and by those in them")
	}
}

// TestAnother shows what a workload stands for next to its first pod.
func TestAnother(t *testing.T) {
	for _, test := range []struct {
		name, text string
		pods       []string
		want       string
	}{
		{"two", "shop/Deployment/web", []string{"shop/web-2 10.1.0.2 Deployment/web", "shop/web-1 10.1.0.1 Deployment/web"}, "shop/web-2 10.1.0.2"},
		{"one", "shop/Deployment/web", []string{"shop/web 10.1.0.1 fd00::1 Deployment/web", "shop/db 10.1.0.2"}, "shop/web.2 10.1.0.3 fd00::2 made"},
		{"one_is_left", "shop/Job/web", []string{"shop/web 10.1.0.1 Job/web Finished", "shop/web-2 10.1.0.2 Job/web", "shop/web-2.2 node1"},
			"shop/web-2.2.2 10.1.0.3 made"},
		{"next_to_a_node", "shop/Deployment/web", []string{"shop/web 10.1.0.1 Deployment/web", "shop/db node1@10.1.0.2"}, "shop/web.2 10.1.0.3 made"},
		{"without_an_address", "shop/Deployment/web", []string{"shop/web Deployment/web"}, "shop/web.2 made"},
		{"on_the_network_of_its_node", "shop/DaemonSet/web", []string{"shop/web HostNetwork node1@10.1.0.1 DaemonSet/web"}, "shop/DaemonSet/web"},
		{"by_the_pod_that_stands_for_it", "shop/web", []string{"shop/web 10.1.0.1 Deployment/web"}, "shop/web.2 10.1.0.2 made"},
		{"by_its_address", "10.1.0.1", []string{"shop/web 10.1.0.1 Deployment/web"}, "shop/web.2 10.1.0.2 made"},
		{"by_the_address_of_one_of_its_pods", "10.1.0.1", []string{"shop/web-1 10.1.0.1 Deployment/web"}, "10.1.0.1"},
		{"by_one_of_its_pods", "shop/web-1", []string{"shop/web-1 10.1.0.1 Deployment/web"}, "shop/web-1 10.1.0.1"},
		{"in_the_same_blocks", "shop/web", []string{"shop/web 10.1.1.4 Deployment/web"}, "shop/web.2 10.1.1.6 made"},
		{"alone_in_its_block", "shop/web", []string{"shop/web 10.1.1.5 Deployment/web"}, "shop/web.2 10.1.1.6 made"},
		{"a_pod", "shop/web", []string{"shop/web 10.1.0.1"}, "shop/web 10.1.0.1"},
		{"none", "shop/Deployment/web", nil, "shop/Deployment/web"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := cluster.New()
			c.SetPolicy(fixture.Policy(t, "shop/one", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.1.1.5/32}}]}]}`))
			for _, p := range test.pods {
				c.SetPod(fixture.Pod(p))
			}
			got, made := c.Another(test.text)
			if p := c.View().Pods[got]; p != nil {
				for _, a := range p.Addrs {
					got += " " + a.String()
				}
			}
			if made {
				got += " made"
			}
			if got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// TestImagine shows which addresses and ports a pod has that is described by its labels, and what describes none.
func TestImagine(t *testing.T) {
	pods := []string{"shop/db 10.1.0.9 fd00::9 role=db sql:5432", "shop/web 10.1.0.1 role=web tier=a http:80", "ops/mon 10.2.0.1 role=mon"}
	for _, test := range []struct {
		name, text string
		pods       []string
		want       string
	}{
		{"with_the_labels_of_a_pod", "shop/[role=web]", pods, "shop/new-pod 10.1.0.2 http"},
		{"with_others", "shop/[role=web,tier=b]", pods, "shop/new-pod 10.1.0.10 fd00::a"},
		{"with_none", "shop/[]", pods, "shop/new-pod 10.1.0.10 fd00::a"},
		{"in_another_namespace", "ops/[role=web]", pods, "ops/new-pod 10.2.0.2"},
		{"in_an_empty_namespace", "default/[app.kubernetes.io/name=web]", pods, "default/new-pod 10.2.0.2"},
		{"next_to_nothing", "default/[a=b]", []string{"shop/web role=web"}, "default/new-pod 10.254.0.1"},
		{"next_to_its_name", "shop/[a=b]", []string{"shop/new-pod 10.1.0.1"}, "shop/new-pod.2 10.1.0.2"},
		{"a_key_alone", "shop/[role]", pods, `"shop/[role]" describes no pod by its labels: give NAMESPACE/[KEY=VALUE,...]`},
		{"an_invalid_value", "shop/[role=a b]", pods, `"shop/[role=a b]" describes no pod by its labels: give NAMESPACE/[KEY=VALUE,...]`},
		{"not_closed", "shop/[role=web", pods, `"shop/[role=web" describes no pod by its labels: give NAMESPACE/[KEY=VALUE,...]`},
		{"no_namespace", "/[role=web]", pods, `"/[role=web]" describes no pod by its labels: give NAMESPACE/[KEY=VALUE,...]`},
		{"an_unknown_namespace", "shpo/[role=web]", pods, "there is no namespace shpo; did you mean shop?"},
		{"a_pod", "shop/web", pods, "shop/web as it is"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := cluster.New()
			for _, p := range test.pods {
				c.SetPod(fixture.Pod(p))
			}
			got, made, err := c.Imagine(test.text)
			switch p := c.View().Pods[got]; {
			case err != nil:
				got = err.Error()
			case !made:
				got += " as it is"
			default:
				for _, a := range p.Addrs {
					got += " " + a.String()
				}
				for _, port := range p.Ports {
					got += " " + port.Name
				}
			}
			if got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// TestDeletesOfFormerObjects shows that the deletion of an object with another UID is ignored.
func TestDeletesOfFormerObjects(t *testing.T) {
	c := shop(t)
	c.DeletePod("shop", "web", "former")
	c.DeletePolicy("shop", "web", "former")
	c.DeleteNamespace("ops", "former")
	if v := c.View(); len(v.Pods) != 4 || len(v.Policies) != 1 || len(v.Namespaces) != 1 {
		t.Errorf("%d pods, %d policies, %d namespaces", len(v.Pods), len(v.Policies), len(v.Namespaces))
	}
}

// TestOwnersByNode shows that other objects take no address from a pod of the node itself, but from pods of other
// nodes.
func TestOwnersByNode(t *testing.T) {
	c := shop(t)
	c.SetPod(fixture.Pod("shop/liar node3@10.32.1.2"))
	a := netip.MustParseAddr("10.32.1.2")
	if c.View().Owner(a, "node1") == nil || c.View().Owner(a, "node2") != nil {
		t.Error("the status of another pod takes the address from a local pod, or not from a remote one")
	}
	c.SetNodeAddrs("node1", fixture.Addrs("10.32.1.2"))
	if c.View().Owner(a, "node1") != nil || !c.View().IsNodes(a) || !c.View().NodeHas("node1", a) || c.View().NodeHas("node2", a) {
		t.Error("a pod owns an address of its node")
	}
	if ends := c.View().OwnedEnds("shop/web"); len(ends) != 1 || !ends[0].Addr.Is6() {
		t.Errorf("the pod owns %v", ends)
	}
}

// names returns pods by name.
func names(pods []*npc.Pod) string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Namespace+"/"+p.Name)
	}
	return strings.Join(out, " ")
}

// TestStatusesFromBeforeABoot shows that a pod has no address while its status is older than its node's start, and that
// the address is still known as one that it may have.
func TestStatusesFromBeforeABoot(t *testing.T) {
	c := shop(t)
	boot, a := time.Unix(10_000, 0), netip.MustParseAddr("10.32.1.9")
	for node, at := range map[string]time.Time{"node1": boot, "node2": {}} { // when node2 was started is not known
		p := fixture.Pod(fmt.Sprintf("shop/of-%[1]s %[1]s 10.32.1.9", node))
		p.LastStart = boot.Add(-time.Hour)
		c.SetPod(p)
		if !at.IsZero() {
			c.SetBooted(node, at)
		}
	}
	v := c.View()
	if got := names(v.Stale(a, "")); got != "shop/of-node1" || len(v.Stale(a, "node2")) > 0 {
		t.Errorf("stale: %s", got)
	}
	if owner := v.Owner(a, "node1"); owner == nil || owner.Name != "of-node2" {
		t.Errorf("it belongs to %v", owner)
	}
	if got := v.OwnedEnds("shop/of-node1"); len(got) > 0 {
		t.Errorf("the pod owns %v", got)
	}
	if got := v.OwnedEnds("shop/missing"); len(got) > 0 {
		t.Errorf("a pod that does not exist owns %v", got)
	}
}

// TestConflictingPods shows which pods of the same node claim an address, and which one owns it.
func TestConflictingPods(t *testing.T) {
	c := shop(t)
	a := netip.MustParseAddr("10.32.1.9")
	for i, facts := range []string{"shop/b node1", "shop/a node1", "shop/c node1", "shop/far node2"} {
		p := fixture.Pod(facts + " 10.32.1.9")
		p.Started = time.Unix(int64(i), 0)
		c.SetPod(p)
	}
	v := c.View()
	owner := v.Owner(a, "node1")
	if owner == nil || owner.Name != "c" || names(v.ConflictingPods(a, owner)) != "shop/a shop/b" {
		t.Errorf("%v owns it, conflicting pods are %s", owner, names(v.ConflictingPods(a, owner)))
	}
}

// TestIsolating shows which policies count for a pod in each direction, and what the Kubernetes 1.6 annotation changes.
func TestIsolating(t *testing.T) {
	for _, c := range []struct {
		name            string
		legacy, deny    bool
		ingress, egress string
	}{
		{"policies isolate", false, false, "shop/both shop/in true", "shop/both true"},
		{"the annotation does not, without the option", false, true, "shop/both shop/in true", "shop/both true"},
		{"policies only allow, with it", true, false, "shop/both shop/in false", "shop/both false"},
		{"the annotation isolates, with it", true, true, "shop/both shop/in true", "shop/both false"},
	} {
		x := cluster.New()
		x.LegacyNetpol = c.legacy
		x.SetNamespace(npc.Namespace{Name: "shop", DefaultDeny: c.deny})
		x.SetPod(fixture.Pod("shop/web app=web"))
		x.SetPolicy(fixture.Policy(t, "shop/in", `{podSelector: {matchLabels: {app: web}}}`))
		x.SetPolicy(fixture.Policy(t, "shop/both", `{podSelector: {}, policyTypes: [Ingress, Egress]}`))
		x.SetPolicy(fixture.Policy(t, "shop/others", `{podSelector: {matchLabels: {app: db}}}`))
		x.SetPolicy(fixture.Policy(t, "ops/others", `{podSelector: {}}`))
		v := x.View()
		for d, want := range map[npc.Direction]string{npc.Ingress: c.ingress, npc.Egress: c.egress} {
			policies, isolated := v.Isolating(v.Pods["shop/web"], d)
			var keys []string
			for _, p := range policies {
				keys = append(keys, p.Key())
			}
			if got := fmt.Sprint(strings.Join(keys, " "), " ", isolated); got != want {
				t.Errorf("%s: %s: %s, want %s", c.name, d, got, want)
			}
		}
	}
}

// TestS84_NodesAreFoundByTheirAddresses shows that two nodes may have the same address.
func TestS84_NodesAreFoundByTheirAddresses(t *testing.T) {
	c := cluster.New()
	addr := netip.MustParseAddr("192.0.2.1")
	c.SetNode(fixture.Node("b 192.0.2.1"))
	c.SetNode(fixture.Node("a 2001:db8::1 192.0.2.1 zone=x"))
	names := func(c *cluster.Cluster, a netip.Addr) (out string) {
		for _, n := range c.View().NodesAt(a) {
			out += n.Name + n.Labels["zone"] + " "
		}
		return out
	}
	before := c.Clone()
	if got := names(c, addr); got != "ax b " {
		t.Errorf("found %q", got)
	}
	c.DeleteNode("a", "another")
	c.DeleteNode("b", "b")
	if got := names(c, addr); got != "ax " {
		t.Errorf("found %q", got)
	}
	c.DeleteNode("a", "")
	if got := names(c, addr) + names(before, netip.MustParseAddr("2001:db8::1")); got != "ax " || c.View().IsNodes(addr) {
		t.Errorf("found %q", got)
	}
}
