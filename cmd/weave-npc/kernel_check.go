package main

import (
	"net/netip"
	"strings"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/explain"
	"github.com/weave-npc/weave-npc/npc/naming"
)

// check returns an error if what the kernel holds is not a running weave-npc's, or is another node's: whatever is read from it would mislead.
func (h *holdings) check(node string) error {
	chains, marked := 0, false
	for _, t := range h.tables {
		for name := range t.Chains {
			chains++
			marked = marked || strings.HasPrefix(name, naming.ChainPrefix+"-LAYOUT-")
		}
	}
	switch {
	case chains == 0 && len(h.sets) == 0:
		return errors.Errorf("weave-npc does not run here: there are no chains of it in iptables (%s), and no sets", h.backend)
	case chains == 0:
		return errors.Errorf("there are sets of weave-npc here, and no chains of it in iptables (%s): it does not run here, or --iptables-backend"+
			" is another one", h.backend)
	case !marked:
		return errors.Errorf("the chains in iptables (%s) are not of this weave-npc: they may be the original's, or of a removal that did not end",
			h.backend)
	case h.world != nil:
		return h.checkNode(node)
	}
	return nil // without the objects it cannot be told whose pods they are
}

// checkNode returns an error if the local pods are those of another node than the one that was named.
func (h *holdings) checkNode(node string) error {
	owners := map[netip.Addr]*npc.Pod{}
	expected := 0
	for _, p := range h.world.Objects().Pods {
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
	for _, l := range h.sets {
		if !strings.HasPrefix(l.Name, naming.SetPrefix+"local-pods") {
			continue
		}
		for _, m := range l.Members {
			members++
			switch p := owners[memberAddr(m)]; {
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
		return errors.Errorf("the pods of this node are those of %s, and not of %q: give the right --node-name", other, node)
	case members > 0 || expected > 0:
		return errors.Errorf("the set of local pods has %d addresses, and none of the %d of pods on node %q%s: give the right --node-name, "+
			"or weave-npc does not run here", members, expected, node, h.similarNode(node))
	}
	return nil
}

func memberAddr(m ipset.Element) netip.Addr { return m.Prefix.Addr().Unmap() }

// similarNode returns the end of a sentence that offers the nearest name of a node that has pods.
func (h *holdings) similarNode(node string) string {
	nodes := map[string]bool{}
	for _, p := range h.world.Objects().Pods {
		nodes[p.Node] = true
	}
	if nodes[node] {
		return ""
	}
	return explain.DidYouMean(node, func(yield func(string) bool) {
		for name := range nodes {
			if name != "" && !yield(name) {
				return
			}
		}
	})
}
