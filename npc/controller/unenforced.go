package controller

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
)

const (
	// clusterPolicies is the kind of ClusterNetworkPolicies, as SetConnected names it.
	clusterPolicies = "clusternetworkpolicies"
	// maxUnenforced limits the ClusterNetworkPolicies that are reported within unenforcedEvery. The others are reported later.
	maxUnenforced   = 20
	unenforcedEvery = time.Minute
)

// unenforced has the names of the ClusterNetworkPolicies, which are reported, each once, and not enforced.
type unenforced struct {
	all map[string]types.UID // name -> UID
	// unreported are those that were not taken yet.
	unreported map[string]types.UID
	since      time.Time // when the first of those was taken that count towards the limit
	taken      int       // since then
}

func newUnenforced() unenforced {
	return unenforced{all: map[string]types.UID{}, unreported: map[string]types.UID{}}
}

// SetClusterPolicy records that there is a ClusterNetworkPolicy, to report that it is not enforced.
func (c *Controller) SetClusterPolicy(p *v1alpha2.ClusterNetworkPolicy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unenforced.set(p.Name, p.UID) {
		c.wakeUp()
	}
}

// DeleteClusterPolicy records that a ClusterNetworkPolicy is gone. An empty UID stands for whichever is there.
func (c *Controller) DeleteClusterPolicy(name string, uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unenforced.delete(name, uid)
}

// set records a policy, and reports whether it is new.
func (u *unenforced) set(name string, uid types.UID) (isNew bool) {
	if known, ok := u.all[name]; ok && known == uid {
		return false
	}
	u.all[name], u.unreported[name] = uid, uid
	return true
}

func (u *unenforced) delete(name string, uid types.UID) {
	if known, ok := u.all[name]; ok && (uid == "" || uid == known) {
		delete(u.all, name)
		delete(u.unreported, name)
	}
}

// take returns policies that were not returned before, in the order of their names, as many as may be reported now.
func (u *unenforced) take(now time.Time) (out []npc.InvalidPolicy) {
	if len(u.unreported) == 0 {
		return nil
	}
	if now.Sub(u.since) >= unenforcedEvery {
		u.since, u.taken = now, 0
	}
	names := slices.Sorted(maps.Keys(u.unreported))
	for _, name := range names[:min(len(names), maxUnenforced-u.taken)] {
		out = append(out, npc.InvalidPolicy{Name: name, UID: u.unreported[name], Unenforced: true,
			Reason: "this version of weave-npc does not enforce ClusterNetworkPolicies"})
		delete(u.unreported, name)
		u.taken++
	}
	return out
}
