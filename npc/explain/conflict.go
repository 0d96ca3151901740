package explain

import (
	"fmt"
	"net/netip"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/claims"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// conflict is what contradicts a pod's claim to an address.
type conflict struct {
	// text describes it; empty if there is none.
	text string
	// closes is the reason for which nothing is allowed; empty if the policies decide.
	closes Reason
}

// conflictOf returns what contradicts that an end's pod has the end's address.
func conflictOf(c *cluster.View, own end, d traffic.Direction) conflict {
	p, a := own.pod, own.Addr
	var found conflict
	switch {
	case !a.IsValid():
		return found
	case p.StaleAddrs:
		found.text = staleText(c, p, a)
	case c.ClaimsNodes(p, a):
		found.text = claims.Conflict{Addr: a, Kind: claims.OfNode, Pod: ref(p)}.Message()
	default:
		return contestedBy(c, own, d)
	}
	if _, isolated := c.Isolating(p, d); isolated {
		found.closes = waiting
	}
	return found
}

// staleText describes the address of a pod that was reported before a restart.
func staleText(c *cluster.View, p *npc.Pod, a netip.Addr) string {
	text := fmt.Sprintf("%s of pod %s was reported before the pod or its node was restarted: the pod counts as waiting for its address", a, podName(p))
	if owner := c.Owner(a, p.Node); owner != nil {
		text += fmt.Sprintf(", and the address belongs to pod %s", podName(owner))
	}
	return text
}

// contestedBy returns the conflict with the other pods of the node that claim the address. Nothing is allowed in a direction that one of them is
// isolated in. While a pod is being replaced by the next one with its address, one of them is terminating: that is mentioned only if it
// matters.
func contestedBy(c *cluster.View, own end, d traffic.Direction) (found conflict) {
	for _, rival := range c.Rivals(own.Addr, own.pod) {
		_, closes := c.Isolating(rival, d)
		asked := own.Pod == podName(rival)
		if !closes && !asked && (rival.Deleting || own.pod.Deleting || found.text != "") {
			continue
		}
		found.text = claims.Conflict{Addr: own.Addr, Kind: claims.LocalPod, Pod: ref(own.pod), Other: ref(rival)}.Message()
		if closes {
			found.closes = contested
			return found
		}
	}
	return found
}

// waitingAt returns a pod whose status has an address from before a restart, and which is isolated: the address is closed as long as nobody
// owns it. It returns nil if there is none.
func waitingAt(c *cluster.View, e flow.End, node string, d traffic.Direction) *npc.Pod {
	for _, p := range c.Stale(e.Addr, node) {
		if _, isolated := c.Isolating(p, d); isolated {
			return p
		}
	}
	return nil
}

func ref(p *npc.Pod) claims.Ref { return claims.Ref{Namespace: p.Namespace, Name: p.Name, UID: p.UID} }
