package simulate_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/observe/kernel/simulate"
)

// seen is a table as the kernel's is read, of rules as they are printed.
func seen(policy string, rules ...string) iptables.Seen {
	s := iptables.Seen{Chains: map[string]iptables.SeenChain{}, Hooks: map[string][]string{}, Policies: map[string]string{"FORWARD": policy}}
	for _, r := range rules {
		chain := strings.Fields(r)[1]
		if !strings.HasPrefix(chain, "WEAVE-NPC") {
			s.Hooks[chain] = append(s.Hooks[chain], r)
			continue
		}
		c := s.Chains[chain]
		c.Text = append(c.Text, r)
		s.Chains[chain] = c
	}
	return s
}

// TestLenient shows what happens to a packet among rules of other programs.
func TestLenient(t *testing.T) {
	sets := []ipset.Listing{{Header: ipset.Header{Set: ipset.Set{Name: "weave-local-pods", Type: ipset.HashIP, Family: ipset.IPv4}},
		Members: []ipset.Element{{Entry: ipset.Addr(netip.MustParseAddr("10.32.1.2"))}}}}
	const jump, local = "-A FORWARD -j WEAVE-NPC", "-A WEAVE-NPC -m set --match-set weave-local-pods dst -j DROP"
	for _, c := range []struct {
		name       string
		policy     string
		rules      []string
		accepted   bool
		by         string
		passedOver int
	}{
		{"weave_npc_alone", "ACCEPT", []string{jump, local}, false, "WEAVE-NPC -m set --match-set weave-local-pods dst -j DROP", 0},
		{"others_accept_before", "ACCEPT", []string{"-A FORWARD -s 10.32.0.0/16 -i cni+ -j ACCEPT", jump, local}, true,
			"FORWARD -s 10.32.0.0/16 -i cni+ -j ACCEPT", 0},
		{"another_interface", "ACCEPT", []string{"-A FORWARD -i eth+ -j ACCEPT", jump, local}, false,
			"WEAVE-NPC -m set --match-set weave-local-pods dst -j DROP", 0},
		{"cannot_be_read", "ACCEPT", []string{"-A FORWARD -m u32 --u32 0=0 -j ACCEPT", "-A FORWARD -p all -j ACCEPT",
			"-A FORWARD ! -j ACCEPT", "-A FORWARD -d 10.0.0.0/255.0.255.0 -j ACCEPT",
			jump, local}, false, "WEAVE-NPC -m set --match-set weave-local-pods dst -j DROP", 4},
		{"negated", "ACCEPT", []string{"-A FORWARD ! -s 10.0.0.0/8 -j ACCEPT", "-A FORWARD -p icmp -j ACCEPT", "-A FORWARD ! -p 47 -i eth0 -j ACCEPT",
			"-A FORWARD ! -p icmp ! -i eth0 -m conntrack ! --ctstate INVALID,UNTRACKED -j ACCEPT", jump, local}, true,
			"FORWARD ! -p icmp ! -i eth0 -m conntrack ! --ctstate INVALID,UNTRACKED -j ACCEPT", 0},
		{"leads_to_what_was_not_read", "ACCEPT", []string{"-A FORWARD -j KUBE-FORWARD"}, true, "", 1},
		{"the_end_of_forward", "DROP", []string{"-A FORWARD -p udp -j ACCEPT"}, false, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := simulate.Read(seen(c.policy, c.rules...), sets).Simulate(simulate.Packet{Src: netip.MustParseAddr("10.32.1.3"),
				Dst: netip.MustParseAddr("10.32.1.2"), Protocol: 6, DstPort: 80, In: "cni0", Out: "cni0"})
			if err != nil {
				t.Fatal(err)
			}
			if v.Accepted != c.accepted || v.By != c.by || len(v.PassedOver) != c.passedOver {
				t.Errorf("accepted = %t by %q, %d rules passed over", v.Accepted, v.By, len(v.PassedOver))
			}
		})
	}
}
