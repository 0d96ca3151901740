package staging

import (
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/quota"
	"github.com/weave-npc/weave-npc/npc/policy/staged"
	"github.com/weave-npc/weave-npc/npc/source"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// enforced takes the policies that are enforced.
type enforced struct {
	source.Sink // takes what else a sink can be told, which nobody asks for
	to          *snapshot.Objects
}

// SetPolicy implements source.Sink.
func (e enforced) SetPolicy(o *networkingv1.NetworkPolicy) { e.to.Policies = append(e.to.Policies, o) }

// SetClusterPolicy implements source.Sink.
func (e enforced) SetClusterPolicy(o *v1alpha2.ClusterNetworkPolicy) {
	e.to.ClusterPolicies = append(e.to.ClusterPolicies, o)
}

// stage takes the policies that are staged.
type stage struct {
	policies map[staged.Key]*Policy
	problems map[staged.Key]Notice
	rest     *cluster.Cluster
}

func newStage() *stage {
	return &stage{policies: map[staged.Key]*Policy{}, problems: map[staged.Key]Notice{}, rest: cluster.New()}
}

// StagePolicy implements staging.Stage.
func (s *stage) StagePolicy(key staged.Key, c staged.Change, o *networkingv1.NetworkPolicy) {
	s.policies[key] = &Policy{Change: c, Key: key, namespace: o}
}

// StageClusterPolicy implements staging.Stage.
func (s *stage) StageClusterPolicy(key staged.Key, c staged.Change, o *v1alpha2.ClusterNetworkPolicy) {
	s.policies[key] = &Policy{Change: c, Key: key, cluster: o}
}

// Unstage implements staging.Stage.
func (s *stage) Unstage(key staged.Key) { delete(s.policies, key) }

// Faults implements staging.Stage.
func (s *stage) Faults(namespace string) map[staged.Key]string {
	faults := map[staged.Key]string{}
	for key, p := range s.policies {
		if key.Namespace != namespace {
			continue
		}
		if _, fault := p.effect(); fault != "" {
			faults[key] = fault
		}
	}
	return faults
}

// hear keeps what is wrong with a policy.
func (s *stage) hear(n Notice) {
	if n.Wrong {
		s.problems[n.Key] = n
	}
}

// effect returns whether a policy does anything to its world, and what is wrong with its rules.
func (p *Policy) effect() (effect bool, fault string) {
	if p.cluster != nil {
		compiled := policy.CompileCluster(p.cluster)
		return p.Effect(compiled.Invalid, compiled.Inert)
	}
	return p.Effect(policy.Compile(p.namespace, quota.Default()).Invalid, true)
}
