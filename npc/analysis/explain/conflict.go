package explain

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/cluster/ipowner"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// conflict is what contradicts a pod's claim to an address.
type conflict struct {
	// text describes it; empty if there is none.
	text string
	// closes is the reason why nothing is allowed; empty if the policies decide.
	closes Reason
	// isolated reports whether a NetworkPolicy isolates the pod that causes this.
	isolated bool
}

// conflictOf returns what contradicts that an end's pod has the end's address. Exempt is why NetworkPolicies do not
// apply to the flow; empty if they do.
func conflictOf(c *cluster.View, own end, d npc.Direction, exempt Reason) conflict {
	p, a := own.pod, own.Addr
	var found conflict
	switch {
	case !a.IsValid():
		return found
	case p.StaleAddrs:
		found.text = staleText(c, p, a)
	case c.ClaimsNodes(p, a):
		found.text = ipowner.Conflict{Addr: a, Kind: ipowner.OfNode, Pod: ref(p)}.Message()
	default:
		return conflictingWith(c, own, d, exempt)
	}
	if restricted(c, p, d, exempt) {
		found.closes = waiting
		_, isolated := c.Isolating(p, d)
		found.isolated = isolated && exempt == ""
	}
	return found
}

// restricted reports whether policies may deny a pod something of what they apply to.
func restricted(c *cluster.View, p *npc.Pod, d npc.Direction, exempt Reason) bool {
	switch exempt {
	case "":
		return c.Restricted(p, d)
	case ownNode:
		return d == npc.Egress && c.RestrictedToNode(p)
	}
	return c.RestrictedByTiers(p, d)
}

// staleText describes the address of a pod that was reported before a restart.
func staleText(c *cluster.View, p *npc.Pod, a netip.Addr) string {
	text := fmt.Sprintf("%s of pod %s was reported before the pod or its node was restarted: "+
		"the pod counts as waiting for its address", a, p.Key())
	if owner := c.Owner(a, p.Node); owner != nil {
		text += fmt.Sprintf(", and the address belongs to pod %s", owner.Key())
	}
	return text
}

// conflictingWith returns the conflict with the other pods of the node that claim the address. Nothing is allowed in a
// direction if policies may deny one of them something in this direction. While a pod is being replaced by the next one
// with its address, one of them is terminating: that is mentioned only if it matters.
func conflictingWith(c *cluster.View, own end, d npc.Direction, exempt Reason) (found conflict) {
	conflictingPods := c.ConflictingPods(own.Addr, own.pod)
	for _, rival := range conflictingPods {
		closes := c.Restricted(rival, d)
		asked := own.Pod == rival.Key()
		if !closes && !asked && (rival.Deleting || own.pod.Deleting || found.text != "") {
			continue
		}
		found.text = ipowner.Conflict{Addr: own.Addr, Kind: ipowner.LocalPod, Pod: ref(own.pod),
			Other: ref(rival)}.Message()
		if closes {
			_, isolated := c.Isolating(rival, d)
			found.closes, found.isolated = conflicting, isolated && exempt == ""
			break
		}
	}
	asked := conflictingPods
	if exempt == ownNode {
		// Its own policies may deny it the node: what it sends cannot be attributed to one of the pods.
		asked = append(slices.Clone(conflictingPods), own.pod)
	}
	if exempt != "" && !slices.ContainsFunc(asked, func(p *npc.Pod) bool { return restricted(c, p, d, exempt) }) {
		found.closes = ""
	}
	return found
}

// waitingAt returns a pod whose status has an address from before a restart, and to which policies may deny something:
// the address is closed as long as no pod owns it. It returns nil if there is none.
func waitingAt(c *cluster.View, e flow.End, node string, d npc.Direction) *npc.Pod {
	for _, p := range c.Stale(e.Addr, node) {
		if c.Restricted(p, d) {
			return p
		}
	}
	return nil
}

func ref(p *npc.Pod) ipowner.Ref {
	return ipowner.Ref{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}
