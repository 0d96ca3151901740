package lint

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// checkPeers checks the peers of a rule of a NetworkPolicy.
func (l *linter) checkPeers(s subject, w writtenRule, r policy.Rule) {
	split := l.splitPeers(r)
	for i, p := range w.peers {
		field := fmt.Sprintf("%s.%s[%d]", w.field, w.side, i)
		if p.IPBlock != nil {
			l.checkBlock(s, field+".ipBlock", *r.Peers[i].Block, p.IPBlock)
			continue
		}
		if j, ok := split[i]; ok {
			l.add(peersSplit, s, field,
				fmt.Sprintf("no pod of namespace %s has %s, but such pods are in the namespaces of %s[%d]: "+
					"for pods of these, put both selectors in one item", s.namespace, selectorText(*r.Peers[i].Pods),
					w.side, j), "")
			continue
		}
		l.checkPods(s, field, r.Peers[i], p.NamespaceSelector, p.PodSelector)
	}
}

// splitPeers returns the peers that select pods of the own namespace by labels that none has, and that probably belong
// to the namespaceSelector of another peer of the rule, where pods have these labels.
func (l *pods) splitPeers(r policy.Rule) map[int]int {
	split := map[int]int{}
	for i, p := range r.Peers {
		if p.Pods == nil || p.Namespaces != nil || len(p.Pods.Keys()) == 0 || len(l.peerGroups(p)) > 0 {
			continue
		}
		for j, q := range r.Peers {
			if q.Namespaces != nil && q.Pods == nil && len(l.selected("", q.Namespaces, *p.Pods)) > 0 {
				split[i] = j
				break
			}
		}
	}
	return split
}

// checkPods looks for the pods that a peer matches by selectors.
func (l *linter) checkPods(s subject, field string, p policy.Peer, namespaces, choose *metav1.LabelSelector) {
	nsTypos := l.namespaceTypos(field+".namespaceSelector", namespaces)
	podTypos := l.podTypos(field+".podSelector", choose, p.Namespace, p.Namespaces)
	if len(l.peerGroups(p)) > 0 {
		l.addTypos(s, slices.Concat(nsTypos, podTypos))
		return
	}
	selected, pods := 0, 0
	for name := range l.namespacesOf(p.Namespace, p.Namespaces) {
		selected++
		pods += len(l.byNamespace[name])
	}
	switch {
	case p.IsUnknown():
		l.add(peerNoPod, s, field, "is of no known kind", "")
	case l.elsewhere() || selected == 0 && l.Positions != nil && ofTheSystem(p.Namespaces):
	case selected == 0:
		level := Warning
		if l.Positions != nil && len(nsTypos) == 0 { // the namespaces may be in other manifests
			level = Note
		}
		l.addAs(level, peerNoPod, s, field,
			fmt.Sprintf("no namespace has %s%s", selectorText(*p.Namespaces), suggestions(nsTypos)), "")
	case pods == 0:
		l.addAs(Note, peerNoPod, s, field, "the namespaces that it selects have no pods", "")
	default:
		text := "any labels"
		if p.Pods != nil {
			text = selectorText(*p.Pods)
		}
		where := "of the namespaces that it selects"
		if p.Namespaces == nil {
			where = "of namespace " + p.Namespace
		}
		l.add(peerNoPod, s, field, fmt.Sprintf("no pod %s has %s%s", where, text, suggestions(podTypos)), "")
	}
}

// ofTheSystem reports whether a selector selects system namespaces by name. Manifests of applications have no Namespace
// object for them.
func ofTheSystem(s *policy.Selector) bool {
	names, ok := constraintsOf(*s)[corev1.LabelMetadataName]
	if !ok || names.others {
		return false
	}
	for n := range names.values {
		if !isOfTheSystem(n) {
			return false
		}
	}
	return true
}

// checkBlock checks an ipBlock, or a network, which has no excepts.
func (l *linter) checkBlock(s subject, field string, b ipblock.Block, written *networkingv1.IPBlock) {
	if written != nil {
		l.checkExcept(s, field+".except", b, written)
	}
	if addr, ok := l.podWithin(b); ok && narrow(b.CIDR) {
		name := "a pod"
		if p := l.view.Owner(addr, ""); p != nil {
			name = podName(p)
		}
		l.add(blockOfPods, s, field,
			fmt.Sprintf("%s has the address of %s, which may change: select pods by labels", b.CIDR, name), "")
	} else if of, is := serviceWithin(l, b); is {
		l.add(blockOfServices, s, field,
			fmt.Sprintf("%s has the ClusterIP of Service %s and no pod's address: "+
				"policies see the address of the endpoint: select its pods by labels", b.CIDR, of), "")
	}
}

// narrow reports whether a block is too small for a network of its own: whoever writes it means those who have its
// addresses.
func narrow(p netip.Prefix) bool { return p.Addr().BitLen()-p.Bits() <= 4 }

// podWithin returns an address of a pod that a block matches.
func (l *pods) podWithin(b ipblock.Block) (netip.Addr, bool) {
	i, _ := slices.BinarySearchFunc(l.addrs, b.CIDR.Masked().Addr(), netip.Addr.Compare)
	for ; i < len(l.addrs) && b.CIDR.Contains(l.addrs[i]); i++ {
		if in, _ := b.Contains(l.addrs[i]); in {
			return l.addrs[i], true
		}
		if !narrow(b.CIDR) {
			break
		}
	}
	return netip.Addr{}, false
}

// checkExcept looks for excepts that leave nothing, and for those that others contain.
func (l *linter) checkExcept(s subject, field string, b ipblock.Block, written *networkingv1.IPBlock) {
	if len(b.Except) > 0 && covers(b.Except, b.CIDR) {
		l.add(exceptAll, s, field, fmt.Sprintf("leaves no address of %s", b.CIDR), "")
		return
	}
	var before []netip.Prefix
	for i, text := range written.Except {
		e, err := ipblock.ParseCIDR(text)
		if err != nil {
			continue // such a policy is invalid
		}
		for _, other := range before {
			if e.Overlaps(other) {
				l.add(exceptTwice, s, fmt.Sprintf("%s[%d]", field, i),
					fmt.Sprintf("%s and %s have addresses in common", e, other), "")
				break
			}
		}
		before = append(before, e)
	}
}

// covers reports whether ranges have all addresses of a range together.
func covers(all []netip.Prefix, p netip.Prefix) bool {
	overlaps := false
	for _, q := range all {
		if q.Bits() <= p.Bits() && q.Contains(p.Addr()) {
			return true
		}
		overlaps = overlaps || q.Overlaps(p)
	}
	if !overlaps || p.Bits() == p.Addr().BitLen() {
		return false
	}
	low, high := ipblock.Split(p)
	return covers(all, low) && covers(all, high)
}
