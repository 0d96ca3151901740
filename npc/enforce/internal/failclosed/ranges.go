package failclosed

import (
	"net/netip"
	"slices"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// Ranges knows where the addresses of this node's pods are, and keeps the sets of these ranges in the kernel.
type Ranges struct {
	podInterface string
	byCNI        bool
	// configured is set if the operator gave the ranges.
	configured bool
	ranges     []netip.Prefix
	sets       [len(npc.Families)]*dataplane.Set
	// uplink is set while the pods' bridge has a port that leads to no pod of this node.
	uplink bool
	tables [len(npc.Families)]*dataplane.Table
	behind [len(npc.Families)]*dataplane.Set // nil until the pods' bridge has an uplink
}

func newRanges(c enforce.Config, tables [len(npc.Families)]*dataplane.Table) *Ranges {
	r := &Ranges{podInterface: c.PodInterface, byCNI: !c.ForwardJump && len(c.PodRanges) == 0,
		configured: len(c.PodRanges) > 0,
		tables:     tables}
	for f, t := range tables {
		r.sets[f] = t.Sets.AddFixed(naming.PodRange, ipset.HashNet, "the node's range of pod addresses")
	}
	r.set(c.PodRanges)
	return r
}

// scope returns what is known of where the node's pods are.
func (r *Ranges) scope() scope {
	return scope{Interface: r.podInterface, ByCNI: r.byCNI, Ranges: r.ranges}
}

// excepts reports whether the address of a known pod of another node has to be excepted from what the fail-closed
// filter drops.
func (r *Ranges) excepts(a netip.Addr, d npc.Direction) bool {
	return r.scope().excepts(a, d == npc.Ingress, r.uplink)
}

// Contains reports whether an address may be that of a local pod.
func (r *Ranges) Contains(a netip.Addr) bool { return r.scope().contains(a) }

// Unknown reports whether local pods' addresses cannot be identified before they are known: neither an interface nor a
// range is given, and the node has none.
func (r *Ranges) Unknown() bool { return r.scope().String() == "" }

// Set takes the node's own ranges of pod addresses, once they are known, and reports whether they change anything.
// Ranges that the operator gave come before them.
func (r *Ranges) Set(ranges []netip.Prefix) (changed bool) {
	if r.configured || slices.Equal(r.ranges, ranges) {
		return false
	}
	r.set(ranges)
	return true
}

func (r *Ranges) set(ranges []netip.Prefix) {
	want := [len(npc.Families)]map[ipset.Entry]ipset.Attr{{}, {}}
	put := func(why string, prefixes ...netip.Prefix) {
		for f, e := range halves(prefixes...) {
			want[f][e] = ipset.Attr{Comment: why}
		}
	}
	r.ranges = nil
	for _, prefix := range ranges {
		r.ranges = append(r.ranges, prefix.Masked())
	}
	put("the node's pods", r.ranges...)
	if r.podInterface == "" && len(ranges) > 0 {
		put("pods on a bridge", linkLocal)
	}
	if r.podInterface == "" { // these reach every pod of a bridge, whatever its network is
		put("all pods on a bridge", netip.MustParsePrefix("255.255.255.255/32"), netip.MustParsePrefix("0.0.0.0/32"))
	}
	for f, s := range r.sets {
		s.Replace(want[f])
	}
}

// SetUplinks records whether a port of the pods' bridge leads away from the pods of this node. behind are the prefixes
// that the node routes to by such ports, here those of them that it finds on the bridge after all: the longest that
// holds an address counts.
func (r *Ranges) SetUplinks(uplink bool, behind, here []netip.Prefix) {
	r.uplink = uplink
	if !uplink && r.behind[npc.IPv4] == nil {
		return
	}
	want := [len(npc.Families)]map[ipset.Entry]ipset.Attr{{}, {}}
	for f, t := range r.tables {
		if r.behind[f] == nil {
			r.behind[f] = t.Sets.AddFixed(naming.BehindUplinks, ipset.HashNet,
				"what is behind uplinks of the pods' bridge")
		}
	}
	for f, e := range halves(here...) {
		want[f][e] = ipset.Attr{NoMatch: true, Comment: "on the bridge"}
	}
	for f, e := range halves(behind...) {
		want[f][e] = ipset.Attr{Comment: "behind an uplink"}
	}
	for f, s := range r.behind {
		s.Replace(want[f])
	}
}

// linkLocal are the addresses that belong to no known pod and reach every pod of a bridge.
var linkLocal = netip.MustParsePrefix("fe80::/10")
