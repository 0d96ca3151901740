package snapshot

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
	"github.com/weave-npc/weave-npc/npc/source/convert"
)

// ranges returns the ranges that addresses are made up in. They are private, as those of nearly all pods are: a rule
// for everything except private ranges, which is how policies write "the internet", does not match them. They are at
// the edge, where few clusters have theirs.
func ranges() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.254.0.0/15"), netip.MustParsePrefix("fdfe:dcba:9876::/64")}
}

// mentionedPods has the addresses and ranges that texts mention, limited to the ranges of made-up addresses.
type mentionedPods struct {
	pattern   *regexp.Regexp
	addresses map[netip.Addr]bool
	prefixes  map[netip.Prefix]bool
}

// newMentionedPods returns a mentionedPods without addresses.
func newMentionedPods() *mentionedPods {
	return &mentionedPods{
		pattern:   regexp.MustCompile(`\b(?:10\.25[45]\.\d+\.\d+|(?i:fdfe:dcba:9876:[0-9a-f:]*))(?:/\d+)?`),
		addresses: map[netip.Addr]bool{}, prefixes: map[netip.Prefix]bool{},
	}
}

// Add adds the addresses in a text.
func (m *mentionedPods) Add(text []byte) {
	for _, found := range m.pattern.FindAll(text, -1) {
		if a, err := netip.ParseAddr(string(found)); err == nil {
			m.addresses[a] = true
		} else if p, err := netip.ParsePrefix(string(found)); err == nil && !containsRange(p) {
			m.prefixes[p.Masked()] = true
		}
	}
}

// containsRange reports whether a prefix contains one of the ranges, such as 10.0.0.0/8: it cannot be avoided.
func containsRange(p netip.Prefix) bool {
	return slices.ContainsFunc(ranges(), func(r netip.Prefix) bool { return r.Overlaps(p) && p.Bits() < r.Bits() })
}

// Merge adds the addresses of another one.
func (m *mentionedPods) Merge(o *mentionedPods) {
	maps.Copy(m.addresses, o.addresses)
	maps.Copy(m.prefixes, o.prefixes)
}

// within returns a range with an address, of those that were mentioned; it is invalid if there is none.
func (m *mentionedPods) within(a netip.Addr) netip.Prefix {
	if m.addresses[a] {
		return netip.PrefixFrom(a, a.BitLen())
	}
	for p := range m.prefixes {
		if p.Contains(a) {
			return p
		}
	}
	return netip.Prefix{}
}

// allocator makes up addresses, in order.
type allocator struct {
	mentioned *mentionedPods
	families  []family
	given     int // pods with addresses that were made up
	without   int // pods that got none of some family, as none was left
}

// family is a range with the last address that was given.
type family struct {
	netip.Prefix
	last netip.Addr
}

func newAllocator(r workloadRequest) *allocator {
	a := &allocator{mentioned: r.Mentioned}
	has := map[bool]bool{} // whether any pod has an IPv4 address, and whether one has another
	for _, p := range r.Pods {
		f, _ := convert.OfPod(p)
		for _, addr := range f.Claims() {
			has[addr.Is4()] = true
		}
	}
	if len(has) == 0 {
		has[true], has[false] = true, r.IPv6
	}
	for _, p := range ranges() {
		if has[p.Addr().Is4()] {
			a.families = append(a.families, family{p, p.Addr()})
		}
	}
	return a
}

// give gives a pod addresses. One on the network of its node has those of the node, which are not known.
func (a *allocator) give(p *corev1.Pod) {
	if p.Spec.HostNetwork {
		return
	}
	for i := range a.families {
		if next := a.next(&a.families[i]); next.IsValid() {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: next.String()})
		}
	}
	if len(p.Status.PodIPs) < len(a.families) {
		a.without++
	}
	if len(p.Status.PodIPs) > 0 {
		p.Status.PodIP, p.Status.Phase = p.Status.PodIPs[0].IP, corev1.PodRunning
		a.given++
	}
}

// next returns an address that is not mentioned; it is invalid if none is left.
func (a *allocator) next(f *family) netip.Addr {
	if !f.last.IsValid() {
		return netip.Addr{}
	}
	next := f.last.Next()
	for f.Contains(next) {
		taken := a.mentioned.within(next)
		if !taken.IsValid() {
			f.last = next
			return next
		}
		next = ipblock.Last(taken).Next()
	}
	f.last = netip.Addr{}
	return netip.Addr{}
}

// notes returns what the user has to know about the addresses. That they are made up matters if policies may decide by
// them.
func (a *allocator) notes(decisive bool) (notes []string) {
	from := spelling.Texts(a.families)
	pods := "pods have addresses that are"
	if a.given == 1 {
		pods = "pod has an address that is"
	}
	if decisive && a.given > 0 {
		notes = append(notes, fmt.Sprintf("%d %s made up, in %s: "+
			"rules for ranges of addresses may decide otherwise about the real ones", a.given, pods,
			strings.Join(from, " and ")))
	}
	if a.without > 0 {
		notes = append(notes, fmt.Sprintf("%d pods have no address, "+
			"or not one of each family: the manifests mention all of %s", a.without,
			strings.Join(from, " and ")))
	}
	return notes
}
