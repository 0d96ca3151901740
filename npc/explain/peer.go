package explain

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// Mismatch is why a peer of a rule does not match an end.
type Mismatch string

// The mismatches. Scripts read them in JSON.
const (
	fits Mismatch = ""
	// notAPod: the peer selects pods, and the end is none.
	notAPod Mismatch = "not a pod"
	// otherNamespace: the peer selects pods of the policy's own namespace, and the pod is in another one.
	otherNamespace Mismatch = "other namespace"
	// namespaceUnknown: the peer selects namespaces by labels, and the pod's namespace has no object.
	namespaceUnknown Mismatch = "namespace unknown"
	// NamespaceLabels and PodLabels: the namespace, or the pod, does not have the labels that the peer requires.
	NamespaceLabels Mismatch = "namespace labels"
	PodLabels       Mismatch = "pod labels"
	// noAddress: the peer is a block, and the pod has no address yet.
	noAddress Mismatch = "no address"
	// outsideBlock: the address is not in the block. excepted: it is in a range that is excepted from the block.
	outsideBlock Mismatch = "outside block"
	excepted     Mismatch = "excepted"
	// notANode: the peer chooses nodes, and the address is no Node's. nodeLabels: the Node does not have the labels that the peer requires.
	notANode   Mismatch = "not a node"
	nodeLabels Mismatch = "node labels"
	// unknownKind: the peer is of an unknown kind, which matches nobody.
	unknownKind Mismatch = "unknown kind"
)

// PeerFits reports whether a peer matches an end: an address of a pod, or of no pod if pod is nil.
func PeerFits(c *cluster.View, p policy.Peer, a netip.Addr, pod *npc.Pod) bool {
	return mismatch(c, p, a, pod) == fits
}

func mismatch(c *cluster.View, p policy.Peer, a netip.Addr, pod *npc.Pod) Mismatch {
	switch {
	case p.Block != nil:
		return blockMismatch(p, a)
	case p.Nodes != nil:
		return nodeMismatch(c.NodesAt(a), *p.Nodes)
	case p.IsUnknown():
		return unknownKind
	case pod == nil:
		return notAPod
	case p.Namespaces == nil && pod.Namespace != p.Namespace:
		return otherNamespace
	case p.Namespaces != nil:
		if ns, known := c.Namespaces[pod.Namespace]; !known {
			return namespaceUnknown
		} else if !p.Namespaces.Matches(ns.Labels) {
			return NamespaceLabels
		}
	}
	if p.Pods != nil && !p.Pods.Matches(pod.Labels) {
		return PodLabels
	}
	return fits
}

func blockMismatch(p policy.Peer, a netip.Addr) Mismatch {
	in, except := p.Block.Contains(a)
	switch {
	case !a.IsValid():
		return noAddress
	case in:
		return fits
	case except.IsValid():
		return excepted
	}
	return outsideBlock
}

// nodeMismatch returns why none of the Nodes that an address belongs to is chosen.
func nodeMismatch(nodes []npc.Node, choose policy.Selector) Mismatch {
	switch {
	case len(nodes) == 0:
		return notANode
	case slices.ContainsFunc(nodes, func(n npc.Node) bool { return choose.Matches(n.Labels) }):
		return fits
	}
	return nodeLabels
}

// PeerReason tells of one peer of a rule whether it matches, and if not, why.
type PeerReason struct {
	Mismatch Mismatch `json:"miss,omitempty"`
	// Wants is what the peer requires and does not find, Has what there is instead, Of whose that is.
	Wants string `json:"wants,omitempty"`
	Has   string `json:"has,omitempty"`
	Of    string `json:"of,omitempty"`
}

// peerReason returns the reason for which PeerFits holds or does not.
func peerReason(c *cluster.View, p policy.Peer, e end) PeerReason {
	r := PeerReason{Mismatch: mismatch(c, p, e.Addr, e.pod), Of: e.String()}
	if p.Block != nil {
		r.Wants = p.Block.CIDR.String()
	}
	switch r.Mismatch {
	case unknownKind:
		r.Of = ""
	case otherNamespace:
		r.Wants, r.Has = p.Namespace, e.pod.Namespace
	case namespaceUnknown:
		r.Of = e.pod.Namespace
	case NamespaceLabels:
		r.Wants, r.Has = missing(*p.Namespaces, c.Namespaces[e.pod.Namespace].Labels)
		r.Wants, r.Of = "with "+r.Wants, "namespace "+e.pod.Namespace
	case PodLabels:
		r.Wants, r.Has = missing(*p.Pods, e.pod.Labels)
	case nodeLabels:
		node := c.NodesAt(e.Addr)[0] // one of them is enough to see what is missing
		r.Wants, r.Has = missing(*p.Nodes, node.Labels)
		r.Of = "node " + node.Name
	case excepted:
		_, except := p.Block.Contains(e.Addr)
		r.Has = except.String()
	}
	return r
}

// MarshalJSON adds the sentence.
func (r PeerReason) MarshalJSON() ([]byte, error) {
	type fields PeerReason
	return json.Marshal(struct {
		Fits bool   `json:"fits"`
		Text string `json:"text"`
		fields
	}{r.Mismatch == fits, r.String(), fields(r)})
}

// String returns the reason as one sentence.
func (r PeerReason) String() string {
	switch r.Mismatch {
	case fits:
		return "peer fits " + r.Of
	case notAPod:
		return fmt.Sprintf("peer wants pods, %s is none", r.Of)
	case notANode:
		return fmt.Sprintf("peer wants nodes, %s is no address of one", r.Of)
	case nodeLabels:
		return fmt.Sprintf("peer wants nodes with %s, %s has %s", r.Wants, r.Of, r.Has)
	case otherNamespace, NamespaceLabels:
		return fmt.Sprintf("peer wants namespace %s, %s has %s", r.Wants, r.Of, r.Has)
	case namespaceUnknown:
		return fmt.Sprintf("peer wants a namespace's labels, namespace %s has no object", r.Of)
	case PodLabels:
		return fmt.Sprintf("peer wants %s, %s has %s", r.Wants, r.Of, r.Has)
	case noAddress:
		return fmt.Sprintf("peer wants addresses in %s, %s has none yet", r.Wants, r.Of)
	case outsideBlock:
		return fmt.Sprintf("peer wants addresses in %s, %s is not there", r.Wants, r.Of)
	case excepted:
		return fmt.Sprintf("peer wants addresses in %s, %s is excepted by %s", r.Wants, r.Of, r.Has)
	}
	return "peer is of a kind that is not known, which matches nobody"
}

// missing returns the requirements that labels do not meet, and what the labels have for the same keys.
func missing(s policy.Selector, l map[string]string) (wants, has string) {
	unmet, possible := s.Unmet(l)
	if !possible {
		var all []string
		for k, v := range l {
			all = append(all, k+"="+v)
		}
		if slices.Sort(all); len(all) == 0 {
			all = []string{"no labels"}
		}
		return "a value that no label can have", list(all)
	}
	var wanted, present []string
	for _, r := range unmet {
		wanted = append(wanted, requirement(r))
		if v, ok := l[r.Key()]; ok {
			present = append(present, r.Key()+"="+v)
		} else {
			present = append(present, "no label "+r.Key())
		}
	}
	slices.Sort(present)
	return list(wanted), list(slices.Compact(present))
}

// requirement returns what a label must be.
func requirement(r labels.Requirement) string {
	switch r.Operator() {
	case selection.Exists:
		return "a label " + r.Key()
	case selection.DoesNotExist:
		return "no label " + r.Key()
	}
	return r.String()
}

// list joins words as a sentence does. There is at least one.
func list(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
