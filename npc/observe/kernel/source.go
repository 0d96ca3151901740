package kernel

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables/ports"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// unbound returns why others than the pod can send with an address. It is empty if they cannot, or if the address is
// not that of a pod of this node.
func (s *State) unbound(a netip.Addr) string {
	if !s.isLocal(a) {
		return ""
	}
	switch {
	case s.portsErr != nil:
		return fmt.Sprintf("the tables of bound sources cannot be read: %v", s.portsErr)
	case s.ports.Mode == ports.Off:
		return "this node binds no sources to ports"
	case s.ports.Mode == ports.Audit:
		return "this node only audits sources"
	}
	for source := range s.ports.Sources {
		if source.Addr == a {
			return ""
		}
	}
	return "it is not bound to the pod's port"
}

// isLocal reports whether an address is in the set of this node's pods.
func (s *State) isLocal(a netip.Addr) bool {
	name := naming.FixedSet(npc.FamilyOf(a), naming.LocalPods)
	for _, l := range s.sets {
		if l.Name == name {
			return slices.ContainsFunc(l.Members, func(m ipset.Element) bool { return m.Prefix.Addr().Unmap() == a })
		}
	}
	return false
}
