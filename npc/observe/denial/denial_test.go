package denial_test

import (
	"net/netip"
	"testing"

	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/observe/denial"
	"github.com/weave-npc/weave-npc/ulogd"
)

// TestDeniedBy names the rule for which a packet was dropped, of a policy that names pods and of one that names nodes.
func TestDeniedBy(t *testing.T) {
	m := controller.New(enforce.Config{NodeName: "node1", ForwardJump: true, MaxListSize: 8})
	f := denial.NewFinder(m.Lookup(), "node1", false)
	sink := f.Tee(m)
	sink.SetNamespace(npc.Namespace{Name: "shop", UID: "shop"})
	web, db := netip.MustParseAddr("10.32.1.2"), netip.MustParseAddr("10.32.2.3")
	for name, p := range map[string]npc.Pod{
		"web": {Node: "node1", Addrs: []netip.Addr{web}}, "db": {Node: "node2", Addrs: []netip.Addr{db}, Labels: map[string]string{"app": "db"}},
	} {
		p.Namespace, p.Name, p.UID = "shop", name, "uid"
		sink.SetPod(p)
	}
	node := netip.MustParseAddr("192.0.2.9")
	sink.SetNode(npc.Node{Name: "node9", UID: "node9", Labels: map[string]string{"zone": "x"}, Addrs: []netip.Addr{node}})
	p := &v1alpha2.ClusterNetworkPolicy{}
	if err := yaml.UnmarshalStrict([]byte(`{tier: Admin, priority: 1, subject: {namespaces: {}},
ingress: [{action: Deny, name: no-db, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}}]}],
egress: [{action: Accept, to: [{networks: [10.0.0.0/8]}]}, {action: Deny, to: [{nodes: {matchLabels: {zone: x}}}]}]}`), &p.Spec); err != nil {
		t.Fatal(err)
	}
	p.Name, p.UID = "pci", "pci"
	sink.SetClusterPolicy(p)
	sink.SetSynced()
	for _, c := range []struct {
		src, dst netip.Addr
		d        npc.Direction
		want     string
	}{
		{db, web, npc.Ingress, "Admin policy pci/rule 1 'no-db'"},
		{web, node, npc.Egress, "Admin policy pci/rule 2"},
		{web, db, npc.Egress, ""},
		{node, web, npc.Ingress, ""},
	} {
		if got := f.DeniedBy(ulogd.Packet{Src: c.src, Dst: c.dst, Protocol: 6, DstPort: 80}, c.d); got != c.want {
			t.Errorf("%s > %s, %s: %q, want %q", c.src, c.dst, c.d, got, c.want)
		}
	}
	sink.DeleteNode("node9", "node9")
	if got := f.DeniedBy(ulogd.Packet{Src: web, Dst: node, Protocol: 6, DstPort: 80}, npc.Egress); got != "" {
		t.Errorf("after the node is gone: %q", got)
	}
	sink.DeleteClusterPolicy("pci", "pci")
	if got := f.DeniedBy(ulogd.Packet{Src: db, Dst: web, Protocol: 6, DstPort: 80}, npc.Ingress); got != "" {
		t.Errorf("after the policy is gone: %q", got)
	}
}
