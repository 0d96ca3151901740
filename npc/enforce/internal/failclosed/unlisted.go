package failclosed

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
)

// maxUnlisted is how many addresses of a pod are closed that no object lists.
const maxUnlisted = 16

// unlisted are addresses that the kernel has behind the ports of local pods, and that may be in no object.
type unlisted struct {
	pods  map[netip.Addr]types.UID
	byPod map[types.UID][]netip.Addr // in order
}

// SetUnlisted replaces the addresses that the kernel has behind the ports of local pods -> the pod's UID. Those that
// are an isolated pod's and that no object lists are closed. The filter keeps the map.
func (g *Filter) SetUnlisted(addrs map[netip.Addr]types.UID) {
	if maps.Equal(addrs, g.unlisted.pods) {
		return
	}
	g.unlisted, g.stale = unlisted{addrs, map[types.UID][]netip.Addr{}}, true
	for _, a := range slices.SortedFunc(maps.Keys(addrs), netip.Addr.Compare) {
		g.unlisted.byPod[addrs[a]] = append(g.unlisted.byPod[addrs[a]], a)
	}
}

// closable yields the addresses of a pod that are closed if it is isolated, because no object lists them. The node's own
// are not among them, whatever a pod gives itself.
func (g *Filter) closable(p *index.Pod) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		count, x := 0, g.index.Addresses
		for _, a := range g.unlisted.byPod[p.UID] {
			if count == maxUnlisted || x.Owner(a) != nil || x.IsOfNode(a) || !a.IsGlobalUnicast() {
				continue
			}
			if count++; !yield(a) {
				return
			}
		}
	}
}

// closedUnlisted returns the addresses that are closed in a direction because no object lists them -> the comment.
func (g *Filter) closedUnlisted(d npc.Direction) map[netip.Addr]string {
	closed := map[netip.Addr]string{}
	if len(g.unlisted.pods) == 0 {
		return closed
	}
	for p, isolated := range g.isolated {
		if !isolated[d] {
			continue
		}
		for a := range g.closable(p) {
			closed[a] = p.String() + " has it and no object lists it"
		}
	}
	return closed
}

// VanishUnlisted closes the addresses that no object lists of an isolated pod that goes without having finished, as
// Vanish closes those that its object lists.
func (g *Filter) VanishUnlisted(p *index.Pod, isolated [len(npc.Directions)]bool, now time.Time) {
	for a := range g.closable(p) {
		g.deletedPods.put(a, p.String(), isolated, now)
		g.stale = true
	}
}

// Unlisted is an address of an isolated pod that no object lists.
type Unlisted struct {
	Addr netip.Addr
	Pod  string // namespace/name
}

// Unlisted returns the addresses that are closed in some direction because no object lists them, in order.
func (g *Filter) Unlisted() (out []Unlisted) {
	if g.mode == enforce.FailClosedNever || len(g.unlisted.pods) == 0 {
		return nil
	}
	for p := range g.isolated {
		for a := range g.closable(p) {
			out = append(out, Unlisted{a, p.String()})
		}
	}
	slices.SortFunc(out, func(a, b Unlisted) int { return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Pod, b.Pod)) })
	return out
}
