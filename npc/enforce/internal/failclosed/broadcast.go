package failclosed

import (
	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// broadcast keeps the sets that decide whether broadcast is dropped.
type broadcast struct {
	sets [len(npc.Families)]*dataplane.Set
	why  string
}

// drop brings the sets up to date. Broadcast is dropped if there is a reason.
func (b *broadcast) drop(why string) {
	if why == b.why {
		return
	}
	b.why = why
	for f, s := range b.sets {
		want := map[ipset.Entry]ipset.Attr{}
		for _, p := range ipblock.All(npc.Family(f)) {
			if why != "" {
				want[ipset.Net(p)] = ipset.Attr{Comment: iptables.Comment(why)}
			}
		}
		s.Replace(want)
	}
}
