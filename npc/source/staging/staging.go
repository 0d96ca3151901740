// Package staging separates staged policies from those that are enforced, on their way from a source.
//
//	s := staging.New(enforced, staging.Config{Mode: staged.Namespaces, Stage: controller, Report: report})
//	go src.Run(ctx, s, log)                     // staged policies go to the Stage, all else to enforced
//	go fromDirectory.Run(ctx, s.Apart(), log)   // all policies of another source are staged
//
//	all := staging.Read(objects, staged.Namespaces) // the same for objects that were read once (groups)
//	all.Enforced                                    // the objects without staged policies
//	would, err := all.In("rollout")                 // as if the staged policies of a group were applied
//
// It does not know what the policies mean, only whether they are valid. That a policy is staged, or is not as its
// annotations ask, is reported once.
package staging

import (
	"sync"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc/policy/staged"
	"github.com/weave-npc/weave-npc/npc/source"
)

// Stage takes the staged policies.
type Stage interface {
	// StagePolicy and StageClusterPolicy take a policy as it now is, which must not be changed afterwards.
	StagePolicy(staged.Key, staged.Operation, *networkingv1.NetworkPolicy)
	StageClusterPolicy(staged.Key, staged.Operation, *v1alpha2.ClusterNetworkPolicy)
	Unstage(staged.Key)
	// Faults returns what is wrong with the staged policies of a namespace; those of ClusterNetworkPolicies have none.
	Faults(namespace string) map[staged.Key]string
}

// Config is what a Sink depends on.
type Config struct {
	Mode  staged.Mode
	Stage Stage
	// Report hears of policies that are staged or should be. It is called with a lock held and must not call the Sink.
	Report func(Notice)
}

// Notice is a message about a policy.
type Notice struct {
	Key staged.Key
	UID types.UID
	// Wrong is set if the policy is not what its annotations ask for.
	Wrong bool
	Text  string
}

// Sink is a sink of sources.
type Sink struct {
	source.Sink // takes what is enforced
	config      Config

	mu     sync.Mutex // guards the fields below; held while policies are passed on
	synced bool
	// enforced are the policies that are, and annotated are the others and those that should be staged.
	enforced map[staged.Key]types.UID
	// By namespace, so that what one of them does costs others nothing.
	annotated map[string]map[staged.Key]*object
}

// object is a policy that is staged, or should be.
type object struct {
	staged.Status
	uid      types.UID
	implicit bool   // whether it takes the place of the enforced policy of its name, if there is one
	reported string // what was reported last
}

// New returns a Sink that has policies enforced by another one.
func New(enforced source.Sink, c Config) *Sink {
	return &Sink{Sink: enforced, config: c, enforced: map[staged.Key]types.UID{},
		annotated: map[string]map[staged.Key]*object{}}
}

// Counts are numbers of policies.
type Counts struct {
	// Staged are the staged policies, and Faulty those of them that are not evaluated as they are written. Refused are
	// those that are not staged although they ask for it.
	Staged, Faulty, Refused int
}

// Counts returns them.
func (s *Sink) Counts() (c Counts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.annotated {
		for _, p := range of {
			switch {
			case !p.Staged:
				c.Refused++
				continue
			case p.reported != "":
				c.Faulty++
			}
			c.Staged++
		}
	}
	return c
}
