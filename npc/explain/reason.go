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
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// PeerMiss is why a peer does not fit.
type PeerMiss string

// The reasons of a peer.
const (
	PeerFits PeerMiss = ""
	// NotAPod: the peer names pods, and the other end is none.
	NotAPod PeerMiss = "not a pod"
	// OtherNamespace: the peer names pods of the policy's own namespace, and the pod is in another one.
	OtherNamespace PeerMiss = "other namespace"
	// NamespaceUnknown: the peer asks for a namespace's labels, and the pod's namespace has no object.
	NamespaceUnknown PeerMiss = "namespace unknown"
	// NamespaceLabels, PodLabels: the namespace, or the pod, has not the labels that the peer asks for.
	NamespaceLabels PeerMiss = "namespace labels"
	PodLabels       PeerMiss = "pod labels"
	// NoAddress: the peer is a block, and the pod has no address yet.
	NoAddress PeerMiss = "no address"
	// OutsideBlock: the address is not in the block. Excepted: it is, and is excepted from it.
	OutsideBlock PeerMiss = "outside block"
	Excepted     PeerMiss = "excepted"
	// UnknownKind: the peer is of a kind that is not known, which matches nobody.
	UnknownKind PeerMiss = "unknown kind"
)

// PeerReason says of one peer of a rule whether it fits, and if not, why.
type PeerReason struct {
	Miss PeerMiss `json:"miss,omitempty"`
	// Wants is what the peer asks for and does not get, Has what there is instead, Of whose it is.
	Wants string `json:"wants,omitempty"`
	Has   string `json:"has,omitempty"`
	Of    string `json:"of,omitempty"`
}

// MarshalJSON adds the sentence.
func (p PeerReason) MarshalJSON() ([]byte, error) {
	type fields PeerReason
	return json.Marshal(struct {
		Fits bool   `json:"fits"`
		Text string `json:"text"`
		fields
	}{p.Miss == PeerFits, p.String(), fields(p)})
}

// String is the reason as one sentence.
func (p PeerReason) String() string {
	switch p.Miss {
	case PeerFits:
		return "peer fits " + p.Of
	case NotAPod:
		return fmt.Sprintf("peer wants pods, %s is none", p.Of)
	case OtherNamespace, NamespaceLabels:
		return fmt.Sprintf("peer wants namespace %s, %s has %s", p.Wants, p.Of, p.Has)
	case NamespaceUnknown:
		return fmt.Sprintf("peer wants a namespace's labels, namespace %s has no object", p.Of)
	case PodLabels:
		return fmt.Sprintf("peer wants %s, %s has %s", p.Wants, p.Of, p.Has)
	case NoAddress:
		return fmt.Sprintf("peer wants addresses in %s, %s has none yet", p.Wants, p.Of)
	case OutsideBlock:
		return fmt.Sprintf("peer wants addresses in %s, %s is not there", p.Wants, p.Of)
	case Excepted:
		return fmt.Sprintf("peer wants addresses in %s, %s is excepted by %s", p.Wants, p.Of, p.Has)
	}
	return "peer is of a kind that is not known, which matches nobody"
}

// PortReason says of one item of a rule's ports whether it fits.
type PortReason struct {
	Fits bool `json:"fits"`
	// Wants is the item, Asked what the flow has.
	Wants string `json:"wants"`
	Asked string `json:"asked"`
	// Nobody says that the item is a port's name that the destination does not have.
	Nobody bool `json:"nobody,omitempty"`
	// Number is what the port's name means on the destination; 0 if the item is no name.
	Number uint16 `json:"number,omitempty"`
}

// MarshalJSON adds the sentence.
func (p PortReason) MarshalJSON() ([]byte, error) {
	type fields PortReason
	return json.Marshal(struct {
		Text string `json:"text"`
		fields
	}{p.String(), fields(p)})
}

// String is the reason as one sentence.
func (p PortReason) String() string {
	switch {
	case p.Fits:
		return "port fits " + p.Asked
	case p.Nobody:
		return fmt.Sprintf("port wants %s, the destination has no port of that name", p.Wants)
	case p.Number != 0:
		return fmt.Sprintf("port wants %s, which is %d there, asked for is %s", p.Wants, p.Number, p.Asked)
	}
	return fmt.Sprintf("port wants %s, asked for is %s", p.Wants, p.Asked)
}

func (w *World) askPeer(c policy.CompiledPeer, namespace string, q question) PeerReason {
	switch {
	case c.Block != nil:
		return askBlock(c.Block, q.peer)
	case c.Pods == nil && c.Namespaces == nil:
		return PeerReason{Miss: UnknownKind}
	case q.peer.pod == nil:
		return PeerReason{Miss: NotAPod, Of: q.peer.String()}
	}
	pod := q.peer.pod
	if c.Namespaces == nil && pod.Namespace != namespace {
		return PeerReason{Miss: OtherNamespace, Wants: namespace, Has: pod.Namespace, Of: q.peer.String()}
	}
	if c.Namespaces != nil {
		ns, known := w.namespaces[pod.Namespace]
		if !known {
			return PeerReason{Miss: NamespaceUnknown, Of: pod.Namespace}
		}
		if wants, has := missing(*c.Namespaces, ns.Labels); wants != "" {
			return PeerReason{Miss: NamespaceLabels, Wants: "with " + wants, Has: has, Of: "namespace " + pod.Namespace}
		}
	}
	if c.Pods != nil {
		if wants, has := missing(*c.Pods, pod.Labels); wants != "" {
			return PeerReason{Miss: PodLabels, Wants: wants, Has: has, Of: q.peer.String()}
		}
	}
	return PeerReason{Of: q.peer.String()}
}

func askBlock(b *policy.CompiledBlock, peer end) PeerReason {
	r := PeerReason{Wants: b.CIDR.String(), Of: peer.String()}
	if !peer.Addr.IsValid() {
		r.Miss = NoAddress
		return r
	}
	in, except := InBlock(b, peer.Addr)
	switch {
	case in:
	case except != netip.Prefix{}:
		r.Miss, r.Has = Excepted, except.String()
	default:
		r.Miss = OutsideBlock
	}
	return r
}

// missing says which requirements labels do not meet, and what they have for the same keys; wants is empty if they meet all.
func missing(c policy.Choice, l map[string]string) (wants, has string) {
	unmet, possible := c.Unmet(l)
	if !possible {
		has := slices.Sorted(pairs(l))
		if len(has) == 0 {
			has = []string{"no labels"}
		}
		return "a value that no label can have", list(has)
	}
	var wanted, present []string
	for _, r := range unmet {
		wanted = append(wanted, requirement(r))
		present = append(present, presence(r.Key(), l))
	}
	slices.Sort(present)
	return list(wanted), list(slices.Compact(present))
}

// requirement is what a label must be.
func requirement(r labels.Requirement) string {
	switch r.Operator() {
	case selection.Exists:
		return "a label " + r.Key()
	case selection.DoesNotExist:
		return "no label " + r.Key()
	}
	return r.String()
}

func presence(key string, l map[string]string) string {
	if v, ok := l[key]; ok {
		return key + "=" + v
	}
	return "no label " + key
}

func pairs(l map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k, v := range l {
			if !yield(k + "=" + v) {
				return
			}
		}
	}
}

// list joins words.
func list(words []string) string {
	switch n := len(words); n {
	case 0:
		return ""
	case 1:
		return words[0]
	default:
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
}

// PeerFits reports whether a peer of a policy in namespace fits an end: an address of a pod, or one that is no pod's if pod is nil. It is what
// Explain gives the reasons for.
func (o Objects) PeerFits(c policy.CompiledPeer, namespace string, a netip.Addr, pod *npc.Pod) bool {
	switch {
	case c.Block != nil:
		in, _ := InBlock(c.Block, a)
		return a.IsValid() && in
	case pod == nil || c.Pods == nil && c.Namespaces == nil:
		return false
	case c.Namespaces == nil && pod.Namespace != namespace:
		return false
	case c.Namespaces != nil:
		if ns, known := o.Namespaces[pod.Namespace]; !known || !c.Namespaces.Matches(ns.Labels) {
			return false
		}
	}
	return c.Pods == nil || c.Pods.Matches(pod.Labels)
}

// PortFits reports whether an item of a rule's ports fits a service of a destination, which is nil if it is no pod.
func PortFits(c policy.CompiledPort, s Service, destination *npc.Pod) bool {
	if c.Protocol != s.Protocol {
		return false
	}
	if c.Name == "" {
		return c.First == 0 || c.First <= s.Port && s.Port <= c.Last
	}
	return destination != nil && slices.Contains(destination.Ports, npc.NamedPort{Name: c.Name, Protocol: s.Protocol, Port: s.Port})
}

func askPort(c policy.CompiledPort, q question) PortReason {
	r := PortReason{Wants: portText(c), Asked: q.String()}
	if c.Name == "" {
		r.Fits = c.Protocol == q.Protocol && (c.First == 0 || c.First <= q.Port && q.Port <= c.Last)
		return r
	}
	r.Nobody = true
	if pod := q.destination(); pod != nil {
		for _, p := range pod.Ports {
			if p.Name == c.Name && p.Protocol == c.Protocol {
				r.Nobody = false
				r.Number = p.Port
				r.Fits = r.Fits || c.Protocol == q.Protocol && p.Port == q.Port
			}
		}
	}
	return r
}

// portText is an item of a rule's ports: tcp/80, tcp/1000-1010, tcp/http, or tcp for all its ports.
func portText(c policy.CompiledPort) string {
	name := traffic.ProtocolName(c.Protocol)
	switch {
	case c.Name != "":
		return name + "/" + c.Name
	case c.First == 0:
		return name
	case c.First == c.Last:
		return fmt.Sprintf("%s/%d", name, c.First)
	}
	return fmt.Sprintf("%s/%d-%d", name, c.First, c.Last)
}
