package explain

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
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
	// namespaceUnreadable: the peer selects namespaces by labels, and those of the pod's namespace could not be read.
	// podUnreadable: the peer selects pods, and the end may be one that could not be read. Both may match.
	namespaceUnreadable Mismatch = "namespace unreadable"
	podUnreadable       Mismatch = "pod unreadable"
	// NamespaceLabels and PodLabels: the namespace, or the pod, does not have the labels that the peer requires.
	NamespaceLabels Mismatch = "namespace labels"
	PodLabels       Mismatch = "pod labels"
	// noAddress: the peer is a block, and the pod has no address yet.
	noAddress Mismatch = "no address"
	// outsideBlock: the address is not in the block. excepted: it is in a range that is excepted from the block.
	outsideBlock Mismatch = "outside block"
	excepted     Mismatch = "excepted"
	// notANode: the peer selects nodes, and the address is no Node's. nodeLabels: the Node does not have the labels
	// that the peer requires.
	notANode   Mismatch = "not a node"
	nodeLabels Mismatch = "node labels"
	// nameUnknown: the peer is a domain name. Its addresses are those that resolvers give, and which a node has learned.
	// notNamed: it is not among those that the node learned, or it is a pod's.
	nameUnknown Mismatch = "domain name"
	notNamed    Mismatch = "not named"
	// unknownKind: the peer is of an unknown kind, which matches no pod.
	unknownKind Mismatch = "unknown kind"
)

// PeerFits reports whether a peer matches an end: an address of a pod, or of no pod if pod is nil.
func PeerFits(c *cluster.View, p policy.Peer, a netip.Addr, pod *npc.Pod) bool {
	return mismatch(c, p, end{flow.End{Addr: a, Outside: true}, pod}) == fits
}

func mismatch(c *cluster.View, p policy.Peer, e end) Mismatch {
	hidden := e.pod == nil && !e.Addr.IsValid() // a pod that could not be read, whose address is not known either
	switch {
	case hidden && (p.Block != nil || p.Nodes != nil || p.Name != ""):
		return podUnreadable
	case p.Block != nil:
		return blockMismatch(p, e.Addr)
	case p.Nodes != nil:
		return nodeMismatch(c.NodesAt(e.Addr), *p.Nodes)
	case p.Name != "":
		return nameMismatch(c, p, e)
	case p.IsUnknown():
		return unknownKind
	case e.pod == nil:
		return unreadableMismatch(c, p, e.End)
	case p.Namespaces == nil && e.pod.Namespace != p.Namespace:
		return otherNamespace
	}
	found := fits
	if p.Namespaces != nil {
		found = namespaceMismatch(c, *p.Namespaces, e.pod.Namespace)
	}
	if (found == fits || found == namespaceUnreadable) && p.Pods != nil && !p.Pods.SelectsPod(e.pod) {
		return PodLabels
	}
	return found
}

// nameMismatch returns why an end has none of the addresses of a domain name.
func nameMismatch(c *cluster.View, p policy.Peer, e end) Mismatch {
	switch {
	case cluster.NameAt(c, p, e.Addr).Name != "":
		return fits
	case c.Learned != nil || e.pod != nil:
		return notNamed
	}
	return nameUnknown
}

// namespaceMismatch returns why a selector does not match a namespace.
func namespaceMismatch(c *cluster.View, choose policy.Selector, namespace string) Mismatch {
	_, known := c.Namespaces[namespace]
	switch cluster.NamespaceFits(c, choose, namespace) {
	case policy.Always:
		return fits
	case policy.Maybe:
		return namespaceUnreadable
	}
	if !known && !c.Unreadable.Namespaces.Lacks(namespace) {
		return namespaceUnknown
	}
	return NamespaceLabels
}

// unreadableMismatch returns why a peer that selects pods does not match an end that is no pod that was read. A pod
// that is known by its name alone is taken for one that is not on the network of its node.
func unreadableMismatch(c *cluster.View, p policy.Peer, e flow.End) Mismatch {
	namespace, _, isPod := strings.Cut(e.Pod, "/")
	found := fits
	switch {
	case cluster.UnreadablePod(c, e) == "", p.Namespaces == nil && !isPod && !c.Unreadable.Pods.Lacks(p.Namespace):
		return notAPod
	case !isPod:
		return podUnreadable
	case p.Namespaces != nil:
		found = namespaceMismatch(c, *p.Namespaces, namespace)
	case namespace != p.Namespace:
		found = otherNamespace
	}
	if found == fits && p.Pods != nil {
		return podUnreadable
	}
	return found
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

// nodeMismatch returns why none of the Nodes that an address belongs to is selected.
func nodeMismatch(nodes []npc.Node, choose policy.Selector) Mismatch {
	switch {
	case len(nodes) == 0:
		return notANode
	case slices.ContainsFunc(nodes, func(n npc.Node) bool { return choose.Matches(n.Labels) }):
		return fits
	}
	return nodeLabels
}

// PeerReason is whether one peer of a rule matches, and if not, why.
type PeerReason struct {
	Mismatch Mismatch `json:"miss,omitempty"`
	// Wants is what the peer requires and does not find, Has what it finds instead, Of whose that is. Of a peer that
	// matches, Has is the domain name that does.
	Wants string `json:"wants,omitempty"`
	Has   string `json:"has,omitempty"`
	Of    string `json:"of,omitempty"`
	// Seconds is how long the address still has that domain name; 0 if that is not known.
	Seconds int `json:"seconds,omitempty"`
}

// peerReason returns the reason why PeerFits holds or does not.
func peerReason(c *cluster.View, p policy.Peer, e end) PeerReason {
	r := PeerReason{Mismatch: mismatch(c, p, e), Of: e.String()}
	if p.Block != nil {
		r.Wants = p.Block.CIDR.String()
	}
	switch r.Mismatch {
	case unknownKind:
		r.Of = ""
	case nameUnknown, notNamed:
		r.Wants = p.Name
	case fits:
		learned := cluster.NameAt(c, p, e.Addr)
		r.Has, r.Seconds = learned.Name, learned.Seconds
	case otherNamespace:
		r.Wants, r.Has = p.Namespace, e.namespace()
	case namespaceUnknown:
		r.Of = e.namespace()
	case namespaceUnreadable:
		r.Wants, r.Of = p.Namespaces.String(), e.namespace()
	case NamespaceLabels:
		if c.Unreadable.Namespaces.Lacks(e.namespace()) { // its name is wrong, and nothing else is known
			r.Wants, r.Has = p.Namespaces.String(), corev1.LabelMetadataName+"="+e.namespace()
		} else {
			r.Wants, r.Has = missing(*p.Namespaces, c.Namespaces[e.namespace()].Labels)
		}
		r.Wants, r.Of = "with "+r.Wants, "namespace "+e.namespace()
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
		switch {
		case r.Seconds > 0:
			return fmt.Sprintf("%s is an address of %s, for %v", r.Of, r.Has, time.Duration(r.Seconds)*time.Second)
		case r.Has != "":
			return fmt.Sprintf("%s is an address of %s", r.Of, r.Has)
		}
		return "peer fits " + r.Of
	case notAPod:
		return fmt.Sprintf("peer wants pods, %s is none", r.Of)
	case nameUnknown:
		return fmt.Sprintf("not known: peer wants addresses of %s, which nodes learn", r.Wants)
	case notNamed:
		return fmt.Sprintf("peer wants addresses of %s, no answer gave %s", r.Wants, r.Of)
	case notANode:
		return fmt.Sprintf("peer wants nodes, %s is no address of one", r.Of)
	case nodeLabels:
		return fmt.Sprintf("peer wants nodes with %s, %s has %s", r.Wants, r.Of, r.Has)
	case otherNamespace, NamespaceLabels:
		return fmt.Sprintf("peer wants namespace %s, %s has %s", r.Wants, r.Of, r.Has)
	case namespaceUnknown:
		return fmt.Sprintf("peer wants a namespace's labels, namespace %s has no object", r.Of)
	case namespaceUnreadable:
		return fmt.Sprintf("not known: peer wants a namespace with %s, the labels of namespace %s could not be read",
			r.Wants, r.Of)
	case podUnreadable:
		return fmt.Sprintf("not known: peer wants pods, %s may be one, which could not be read", r.Of)
	case PodLabels:
		return fmt.Sprintf("peer wants %s, %s has %s", r.Wants, r.Of, r.Has)
	case noAddress:
		return fmt.Sprintf("peer wants addresses in %s, %s has none yet", r.Wants, r.Of)
	case outsideBlock:
		return fmt.Sprintf("peer wants addresses in %s, %s is not there", r.Wants, r.Of)
	case excepted:
		return fmt.Sprintf("peer wants addresses in %s, %s is excepted by %s", r.Wants, r.Of, r.Has)
	}
	return "peer is of an unknown kind, which matches no pod"
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
		return "a value that no label can have", spelling.List(all)
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
	return spelling.List(wanted), spelling.List(slices.Compact(present))
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
