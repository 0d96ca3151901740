package random

import (
	"maps"
	"os"
	"slices"

	"pgregory.net/rapid"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/tiers"
)

// tiersVariable is "no" for random states without cluster network policies.
const tiersVariable = "WEAVE_NPC_TEST_TIERS"

// DrawTiers mixes cluster network policies into a generator's states, unless $WEAVE_NPC_TEST_TIERS is "no". A few of
// them have domain names, of which no resolver gives addresses; where they may not be they fail closed.
func (g *Generator) DrawTiers() {
	if os.Getenv(tiersVariable) == "no" {
		return
	}
	for _, d := range g.Cluster.Daemons {
		d.Log.Expect("cluster network policy is invalid.*domainNames: only rules of the Admin tier")
	}
	u := g.universe()
	g.tiers = rapid.Custom(func(t *rapid.T) *v1alpha2.ClusterNetworkPolicy { return tiers.Draw(t, u) })
}

// universe has what NetworkPolicies are drawn from as well.
func (g *Generator) universe() tiers.Universe {
	u := tiers.Universe{
		Names: []string{"tier-a", "tier-b", "tier-c", "tier-d"},
		Namespaces: []map[string]string{nil, {"team": "a"}, {"team": "b"}, {"zone": "z"},
			{"kubernetes.io/metadata.name": "ops"}},
		Pods: []map[string]string{nil, {"app": "web"}, {"app": "db"}, {"app": "web", "tier": "x"}, {"tier": "y"}},
		CIDRs: []v1alpha2.CIDR{"10.32.0.0/16", "10.32.2.0/24", "0.0.0.0/0", "fd10:32:0:1::/64", "::/0",
			"172.31.0.0/24", "fd31::/64"},
		Ports:       []int32{53, 80, 81},
		PortNames:   []string{"web", "none"},
		DomainNames: []v1alpha2.DomainName{"*.example.com"},
	}
	for _, name := range []string{"web", "api", "n2", "out"} {
		for family, bits := range map[int]string{4: "/32", 6: "/128"} {
			u.CIDRs = append(u.CIDRs, v1alpha2.CIDR(g.Cluster.Hosts[name].Addr(family).String()+bits))
		}
	}
	slices.Sort(u.CIDRs)
	return u
}

// editTier adds, changes or removes a cluster network policy. Now and then all of them go.
func (g *Generator) editTier() {
	names := slices.Sorted(maps.Keys(g.Objects.Tiers))
	switch n := g.IntN(12); {
	case n < 2 && len(names) > 2:
		name := names[g.IntN(len(names))]
		g.Do("without "+name, e2e.Without(name))
		return
	case n == 2 && len(names) > 1:
		g.Do("without any cluster network policy", e2e.Without(names...))
		return
	}
	p := g.clusterPolicy()
	spec, err := yaml.Marshal(p.Spec)
	if err != nil {
		panic(err)
	}
	g.Do("cluster network policy "+p.Name+"\n"+string(spec), e2e.ClusterPolicy(p.Name, string(spec)))
}

// clusterPolicy draws one that manifests may have: not with named ports of networks, which only one definition of the
// kind admits.
func (g *Generator) clusterPolicy() *v1alpha2.ClusterNetworkPolicy {
	for {
		p := g.tiers.Example(g.Int())
		if !slices.ContainsFunc(p.Spec.Egress, func(r v1alpha2.ClusterNetworkPolicyEgressRule) bool {
			return slices.ContainsFunc(r.To, func(to v1alpha2.ClusterNetworkPolicyEgressPeer) bool { return to.Namespaces == nil && to.Pods == nil }) &&
				slices.ContainsFunc(r.Protocols, func(p v1alpha2.ClusterNetworkPolicyProtocol) bool { return p.DestinationNamedPort != "" })
		}) {
			return p
		}
	}
}
