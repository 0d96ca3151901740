// Package random makes clusters with few labels, ports and addresses, so that many pods are alike, some claim the same
// address, and some report a stale one.
package random

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/tiers"
)

// Pick returns one of some values.
func Pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// Cluster returns a cluster that has few labels, ports and addresses, so that many pods are alike, some claim the same
// address, and some report a stale one.
func Cluster(t *testing.T, r *rand.Rand) *cluster.Cluster {
	w := cluster.New()
	w.LegacyNetpol = r.IntN(8) == 0
	for _, ns := range []string{"a", "b", "c"} {
		if r.IntN(6) > 0 {
			n := fixture.Namespace(ns + " team=" + Pick(r, "x", "y"))
			n.DefaultDeny = r.IntN(2) == 0
			w.SetNamespace(n)
		}
	}
	for i := range 14 {
		node := r.IntN(2) + 1
		p := fixture.Pod(fmt.Sprintf("%s/p%d node%[3]d@172.31.0.%[3]d app=%[4]s of-no-policy=%[5]s",
			Pick(r, "a", "b", "c"), i, node, Pick(r, "web", "db"), Pick(r, "1", "2")))
		if r.IntN(3) > 0 {
			p.Labels["tier"] = Pick(r, "1", "2")
		}
		if r.IntN(5) > 0 {
			p.Addrs = append(p.Addrs, netip.AddrFrom4([4]byte{10, 32, byte(r.IntN(2)), byte(r.IntN(40))}))
		}
		if r.IntN(3) > 0 {
			p.Addrs = append(p.Addrs, netip.MustParseAddr(fmt.Sprintf("fd32::%d:%d", r.IntN(2), i)))
		}
		if r.IntN(2) == 0 {
			p.Ports = []npc.NamedPort{{Name: "http", Protocol: 6, Port: Pick[uint16](r, 80, 8080)}}
		}
		p.StaleAddrs = r.IntN(20) == 0
		w.SetPod(p)
	}
	for i := range r.IntN(6) {
		w.SetPolicy(fixture.Policy(t, Pick(r, "a", "b", "c")+"/"+fmt.Sprint("q", i), Spec(r)))
	}
	if r.IntN(2) == 0 {
		for i, a := range []string{"172.31.0.1", "10.32.0.9", "fd99::1"} { // pods may have addresses of Nodes too
			n := fixture.Node(fmt.Sprintf("node%d %s zone=%s", i+1, a, Pick(r, "x", "y")))
			for j := range 5 {
				n.Addrs = append(n.Addrs, netip.AddrFrom4([4]byte{10, 32, 1, byte(5*i + j)}))
			}
			w.SetNode(n)
		}
		for range r.IntN(5) {
			w.SetClusterPolicy(ClusterPolicy(r))
		}
	}
	return w
}

// ClusterPolicy returns one about the pods and namespaces of a random cluster.
func ClusterPolicy(r *rand.Rand) *v1alpha2.ClusterNetworkPolicy {
	return ClusterPolicyOf(r, Universe())
}

// Universe has the labels, addresses and ports of the ClusterNetworkPolicies of a random cluster.
func Universe() tiers.Universe {
	return tiers.Universe{Names: []string{"p", "q", "r", "s"},
		Namespaces: []map[string]string{{"team": "x"}, {"team": "y"}},
		Pods:       []map[string]string{{"app": "web"}, {"app": "db", "tier": "1"}, {"tier": "2"}},
		Nodes:      []map[string]string{{"zone": "x"}, {"zone": "y"}},
		CIDRs: []v1alpha2.CIDR{
			"0.0.0.0/0", "::/0", "10.32.0.0/17", "10.32.0.16/28", "172.31.0.0/16", "fd32::1:0/112",
		},
		Ports: []int32{80, 443, 8080}, PortNames: []string{"http"},
		DomainNames: []v1alpha2.DomainName{"*.example.com"}}
}

// ClusterPolicyOf returns one of a universe.
func ClusterPolicyOf(r *rand.Rand, u tiers.Universe) *v1alpha2.ClusterNetworkPolicy {
	return rapid.Custom(func(t *rapid.T) *v1alpha2.ClusterNetworkPolicy { return tiers.Draw(t, u) }).Example(r.Int())
}

// Spec returns the spec of a network policy about the pods of a random cluster.
func Spec(r *rand.Rand) string {
	selector := func() string {
		return Pick(r, "{}", "{matchLabels: {app: web}}", "{matchLabels: {app: db, tier: '1'}}",
			"{matchExpressions: [{key: tier, operator: DoesNotExist}]}",
			"{matchExpressions: [{key: app, operator: NotIn, values: [web]}]}")
	}
	peer := func() string {
		switch r.IntN(5) {
		case 0:
			return "{podSelector: " + selector() + "}"
		case 1:
			team := Pick(r, "x", "y")
			return "{namespaceSelector: {matchLabels: {team: " + team + "}}, podSelector: " + selector() + "}"
		case 2:
			return "{namespaceSelector: {}}"
		case 3:
			return "{ipBlock: {cidr: 10.32.0.0/16, except: [10.32." + Pick(r, "0.0/25", "0.16/28", "1.0/24") + "]}}"
		default:
			cidr := Pick(r, "0.0.0.0/0", "::/0", "10.32.0.8/29", "fd32::1:0/112", "172.31.0.0/16")
			return "{ipBlock: {cidr: '" + cidr + "'}}"
		}
	}
	rules := func(peers string) (text string) {
		for i := range r.IntN(3) {
			if i > 0 {
				text += ", "
			}
			switch r.IntN(3) {
			case 0:
				text += "{" + peers + ": [" + peer() + "]}"
			case 1:
				text += "{" + peers + ": [" + peer() + ", " + peer() + "], ports: [{port: http}, {port: 443}]}"
			default:
				text += "{ports: [{port: " + Pick(r, "80", "http", "443", "1, endPort: 100") + "}]}"
			}
		}
		return "[" + text + "]"
	}
	return fmt.Sprintf("{podSelector: %s, policyTypes: %s, ingress: %s, egress: %s}", selector(),
		Pick(r, "[Ingress]", "[Egress]", "[Ingress, Egress]"), rules("from"), rules("to"))
}
