package kernel

import (
	"net/netip"
	"strings"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// Check returns an error if the state is not that of a running weave-npc, or is another node's: then every answer from
// it would mislead.
func (s *State) Check(node string) error {
	chains, marked := 0, false
	for _, t := range s.tables {
		for name := range t.Chains {
			chains++
			marked = marked || strings.HasPrefix(name, naming.ChainPrefix+"-LAYOUT-")
		}
	}
	switch {
	case chains == 0 && len(s.sets) == 0:
		return errors.Errorf("weave-npc does not run here: there are no chains of it in iptables (%s), and no sets",
			s.backend)
	case chains == 0:
		return errors.Errorf("there are sets of weave-npc here, and no chains of it in iptables (%s): "+
			"it does not run here, or --iptables-backend is another one", s.backend)
	case !marked:
		return errors.Errorf("the chains in iptables (%s) are not of this weave-npc: "+
			"they may be the original's, or of a removal that did not end", s.backend)
	case s.purpose.Cluster != nil:
		return s.checkNode(node)
	}
	return nil // without the objects, the node of the pods is unknown
}

// checkNode returns an error if the local pods belong to another node than the one with the given name.
func (s *State) checkNode(node string) error {
	owners := map[netip.Addr]*npc.Pod{}
	expected := 0
	for _, p := range s.purpose.Cluster.View().Pods {
		for _, a := range p.Claims() {
			if p.Node == node {
				expected++
			}
			if owners[a] == nil || p.Node == node {
				owners[a] = p
			}
		}
	}
	members, other := 0, ""
	for _, l := range s.sets {
		if !strings.HasPrefix(l.Name, naming.SetPrefix+"local-pods") {
			continue
		}
		for _, m := range l.Members {
			members++
			switch p := owners[m.Prefix.Addr().Unmap()]; {
			case p == nil:
			case p.Node == node:
				return nil
			case other == "" || p.Node < other:
				other = p.Node
			}
		}
	}
	switch {
	case other != "":
		return errors.Errorf("the pods of this node are those of %s, and not of %q: give the right --node-name",
			other, node)
	case members > 0 || expected > 0:
		return errors.Errorf("the set of local pods has %d addresses, and none of the %d of pods on node %q%s: "+
			"give the right --node-name, or weave-npc does not run here", members, expected, node, s.similarNode(node))
	}
	return nil
}

// similarNode returns the end of a sentence that suggests the nearest name of a node with pods.
func (s *State) similarNode(node string) string {
	nodes := map[string]bool{}
	for _, p := range s.purpose.Cluster.View().Pods {
		nodes[p.Node] = true
	}
	if nodes[node] {
		return ""
	}
	return spelling.DidYouMean(node, func(yield func(string) bool) {
		for name := range nodes {
			if name != "" && !yield(name) {
				return
			}
		}
	})
}
