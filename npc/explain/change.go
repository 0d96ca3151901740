package explain

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weave-npc/weave-npc/npc"
)

// Edit is one change of an object.
type Edit struct {
	// Text says what to do.
	Text string
	// cost orders edits: what touches less, and is more likely to be meant, costs less.
	cost  int
	apply func(*World)
}

// Nearest are the smallest edits found that let all of several flows through, in the order in which they are to be made; nil if
// none were found, or none is needed. They were tried on a copy of the world.
func (w *World) Nearest(flows ...Flow) []Edit {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clone()
	var all []Edit
	for _, f := range flows {
		for _, d := range [...]npc.Direction{npc.Egress, npc.Ingress} {
			v := now.explain(f)
			if v.side(d).Allowed {
				continue
			}
			edits := now.nearest(f, d)
			if edits == nil {
				return nil
			}
			all = append(all, edits...)
			for _, e := range edits {
				e.apply(now)
			}
		}
	}
	if slices.ContainsFunc(flows, func(f Flow) bool { return !now.explain(f).Allowed }) {
		return nil
	}
	return all
}

func (v Verdict) side(d npc.Direction) *Side {
	if d == npc.Egress {
		return &v.Egress
	}
	return &v.Ingress
}

// nearest are the cheapest edits that let a flow through in a direction and close no other.
func (w *World) nearest(f Flow, d npc.Direction) []Edit {
	before := w.explain(f)
	candidates := w.candidates(f, d)
	cost := func(edits []Edit) (sum int) {
		for _, e := range edits {
			sum += e.cost
		}
		return sum
	}
	slices.SortStableFunc(candidates, func(a, b []Edit) int { return cost(a) - cost(b) })
	for _, edits := range candidates {
		tried := w.clone()
		for _, e := range edits {
			e.apply(tried)
		}
		other := npc.Ingress + npc.Egress - d
		after := tried.explain(f)
		if after.side(d).Allowed && (after.side(other).Allowed || !before.side(other).Allowed) && sameIsolation(before, after) {
			return edits
		}
	}
	return nil
}

// sameIsolation says whether the same policies isolate both ends: to take a pod out of a policy is no near change.
func sameIsolation(a, b Verdict) bool {
	same := func(p, q PolicyReason) bool { return p.Policy == q.Policy }
	return slices.EqualFunc(a.Egress.Policies, b.Egress.Policies, same) && slices.EqualFunc(a.Ingress.Policies, b.Ingress.Policies, same)
}

// The costs of edits.
const (
	portCost  = 2
	labelCost = 2 // each
	peerCost  = 5
	spaceCost = 8 // a namespace's labels concern all its pods
	ruleCost  = 9
)

// candidates are edits that may let a flow through.
func (w *World) candidates(f Flow, d npc.Direction) (out [][]Edit) {
	ownEnd, peerEnd := f.From, f.To
	if d == npc.Ingress {
		ownEnd, peerEnd = f.To, f.From
	}
	own := w.own(ownEnd, f.Node)
	peer := w.seen(peerEnd, own.pod.Node)
	add := func(edits ...Edit) { out = append(out, edits) }
	for _, p := range w.isolating(own.pod, d) {
		if p.Invalid != nil {
			continue
		}
		from, portItem := w.peerItem(p, peer), portItem(f.Service)
		for i, rule := range p.Rules[d] {
			reason := w.askRule(rule, p, question{own: own, peer: peer, direction: d, Service: f.Service})
			var edits []Edit
			if !reason.PortFits() {
				if portItem == nil {
					continue // ICMP: only a rule without ports allows it
				}
				edits = append(edits, addPort(p, d, i, *portItem, f.Service))
			}
			if reason.PeerFits() {
				add(edits...)
				continue
			}
			for j, miss := range reason.Peers {
				if relabel := w.relabel(rule.Peers[j], miss, peer); relabel != nil {
					add(append(slices.Clone(edits), relabel...)...)
				}
			}
			if from != nil {
				add(append(slices.Clone(edits), addPeer(p, d, i, *from))...)
			}
		}
		if from != nil {
			add(addRule(p, d, *from, portItem, f.Service))
		}
	}
	return out
}

// relabel are the edits that make a peer fit; nil if labels cannot.
func (w *World) relabel(c npc.CompiledPeer, reason PeerReason, peer end) (edits []Edit) {
	switch reason.Miss {
	case NamespaceLabels, PodLabels:
	default:
		return nil
	}
	if c.Namespaces != nil {
		ns := w.namespaces[peer.pod.Namespace]
		after, text, n := satisfied(*c.Namespaces, ns.Labels)
		if after == nil {
			return nil
		}
		if n > 0 {
			ns.Labels = after
			edits = append(edits, Edit{"label namespace " + ns.Name + ": " + text, spaceCost * n, func(w *World) { w.namespaces[ns.Name] = ns }})
		}
	}
	if c.Pods != nil {
		pod := *peer.pod
		after, text, n := satisfied(*c.Pods, pod.Labels)
		if after == nil {
			return nil
		}
		if n > 0 {
			pod.Labels = after
			edits = append(edits, Edit{"label pod " + peer.String() + ": " + text, labelCost * n, func(w *World) {
				w.pods[pod.Namespace+"/"+pod.Name] = &pod
				w.changed()
			}})
		}
	}
	return edits
}

// satisfied are labels that meet a choice, what was changed, and how many; nil if no labels do.
func satisfied(c npc.Choice, l map[string]string) (after map[string]string, text string, n int) {
	unmet, possible := c.Unmet(l)
	if !possible {
		return nil, "", 0
	}
	after = maps.Clone(l)
	if after == nil {
		after = map[string]string{}
	}
	var words []string
	for _, r := range unmet {
		if r.Key() == corev1.LabelMetadataName {
			return nil, "", 0 // it is the namespace's name
		}
		switch r.Operator() {
		case selection.NotIn, selection.DoesNotExist:
			delete(after, r.Key())
			words = append(words, r.Key()+"-")
		case selection.Exists:
			after[r.Key()] = "true"
			words = append(words, r.Key()+"=true")
		default:
			after[r.Key()] = slices.Min(r.Values().UnsortedList())
			words = append(words, r.Key()+"="+after[r.Key()])
		}
	}
	if !c.Matches(after) {
		return nil, "", 0
	}
	return after, strings.Join(words, " "), len(words)
}

// peerItem is a peer that fits the other end of a flow and little else; nil if there is none.
func (w *World) peerItem(p *policy, peer end) *networkingv1.NetworkPolicyPeer {
	if peer.pod == nil {
		if !peer.Addr.IsValid() {
			return nil
		}
		return &networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: netip.PrefixFrom(peer.Addr, peer.Addr.BitLen()).String()}}
	}
	item := &networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: peer.pod.Labels}}
	if peer.pod.Namespace != p.object.Namespace {
		item.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: peer.pod.Namespace}}
	}
	return item
}

// portItem is an item of ports that fits a service; nil if there is none.
func portItem(s Service) *networkingv1.NetworkPolicyPort {
	if s.Port == 0 {
		return nil
	}
	protocol, port := corev1.Protocol(strings.ToUpper(npc.ProtocolName(s.Protocol))), intstr.FromInt32(int32(s.Port))
	return &networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &port}
}

// edited is an edit of a policy.
func edited(p *policy, text string, cost int, change func(*networkingv1.NetworkPolicySpec)) Edit {
	return Edit{text, cost, func(w *World) {
		o := w.policies[p.key()].object.DeepCopy()
		change(&o.Spec)
		w.policies[p.key()] = &policy{o, npc.Compile(o)}
		w.changed()
	}}
}

func addPort(p *policy, d npc.Direction, i int, item networkingv1.NetworkPolicyPort, s Service) Edit {
	return edited(p, fmt.Sprintf("add port %s to %s", s, ruleName(d, i+1, p.key())), portCost, func(spec *networkingv1.NetworkPolicySpec) {
		if d == npc.Egress {
			spec.Egress[i].Ports = append(spec.Egress[i].Ports, item)
		} else {
			spec.Ingress[i].Ports = append(spec.Ingress[i].Ports, item)
		}
	})
}

func addPeer(p *policy, d npc.Direction, i int, item networkingv1.NetworkPolicyPeer) Edit {
	text := fmt.Sprintf("add the peer %s to %s", peerText(item), ruleName(d, i+1, p.key()))
	return edited(p, text, peerCost, func(spec *networkingv1.NetworkPolicySpec) {
		if d == npc.Egress {
			spec.Egress[i].To = append(spec.Egress[i].To, item)
		} else {
			spec.Ingress[i].From = append(spec.Ingress[i].From, item)
		}
	})
}

func addRule(p *policy, d npc.Direction, peer networkingv1.NetworkPolicyPeer, port *networkingv1.NetworkPolicyPort, s Service) Edit {
	what, way := "every protocol", "from"
	var ports []networkingv1.NetworkPolicyPort
	if port != nil {
		what, ports = "port "+s.String(), []networkingv1.NetworkPolicyPort{*port}
	}
	peers := []networkingv1.NetworkPolicyPeer{peer}
	if d == npc.Egress {
		way = "to"
	}
	text := fmt.Sprintf("add to policy %s an %s rule %s the peer %s for %s", p.key(), d, way, peerText(peer), what)
	return edited(p, text, ruleCost, func(spec *networkingv1.NetworkPolicySpec) {
		if d == npc.Egress {
			spec.Egress = append(spec.Egress, networkingv1.NetworkPolicyEgressRule{To: peers, Ports: ports})
		} else {
			spec.Ingress = append(spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: peers, Ports: ports})
		}
	})
}

// peerText is a peer as YAML has it on one line.
func peerText(p networkingv1.NetworkPolicyPeer) string {
	if p.IPBlock != nil {
		return fmt.Sprintf("{ipBlock: {cidr: %q}}", p.IPBlock.CIDR)
	}
	selector := func(s *metav1.LabelSelector) string {
		if len(s.MatchLabels) == 0 {
			return "{}"
		}
		var words []string
		for _, k := range slices.Sorted(maps.Keys(s.MatchLabels)) {
			words = append(words, fmt.Sprintf("%s: %q", k, s.MatchLabels[k]))
		}
		return "{matchLabels: {" + strings.Join(words, ", ") + "}}"
	}
	text := "podSelector: " + selector(p.PodSelector)
	if p.NamespaceSelector != nil {
		text = "namespaceSelector: " + selector(p.NamespaceSelector) + ", " + text
	}
	return "{" + text + "}"
}
