package kernel

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables/ports"
)

// TestS103_ExplainSaysWhatIsNotBound shows that an address of a local pod is said not to be bound if others can send
// with it.
func TestS103_ExplainSaysWhatIsNotBound(t *testing.T) {
	web := netip.MustParseAddr("10.32.1.2")
	local := ipset.Listing{Members: make([]ipset.Element, 1)}
	local.Name, local.Members[0].Prefix = "weave-local-pods", netip.PrefixFrom(web, 32)
	bound := map[ports.Source]string{{Port: 3, Addr: web}: "shop/web"}
	for _, c := range []struct {
		name, addr string
		ports      ports.State
		err        error
		want       string
	}{
		{"bound", "10.32.1.2", ports.State{Mode: ports.On, Sources: bound}, nil, ""},
		{"not_bound", "10.32.1.2", ports.State{Mode: ports.On}, nil, "it is not bound to the pod's port"},
		{"audit", "10.32.1.2", ports.State{Mode: ports.Audit, Sources: bound}, nil, "this node only audits sources"},
		{"off", "10.32.1.2", ports.State{}, nil, "this node binds no sources to ports"},
		{"not_readable", "10.32.1.2", ports.State{}, errors.New("no"), "the tables of bound sources cannot be read: no"},
		{"not_of_this_node", "10.32.2.2", ports.State{}, nil, ""},
		{"of_the_other_family", "fd32::2", ports.State{}, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := State{sets: []ipset.Listing{local}, ports: c.ports, portsErr: c.err}
			if got := s.unbound(netip.MustParseAddr(c.addr)); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
