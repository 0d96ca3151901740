package syncer_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/test/cluster"
)

// admissions returns the spec of a policy that lets reach the web pod what the client sends to 25 ports from one on.
func admissions(from int) string {
	rules := make([]string, 25)
	for i := range rules {
		rules[i] = fmt.Sprintf(`{action: Accept, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: client}}}}], `+
			`protocols: [{tcp: {destinationPort: {number: %d}}}]}`, from+i)
	}
	return `{tier: Admin, priority: 1, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}, ingress: [` + strings.Join(rules, ", ") + `]}`
}

// TestS65_AListThatOthersChanged before it is edited is written as a whole, and edited again from then on.
func TestS65_AListThatOthersChanged(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newStation(t, b)
		for i := range 12 {
			s.ClusterPolicy(fmt.Sprintf("p%02d", i), admissions(1000+100*i))
		}
		s.well()
		edit := func(from int) {
			s.ClusterPolicy("p05", admissions(from))
		}
		edit(1501)
		s.well()
		s.logged("chains_edited=1 rules_deleted=25 rules_inserted=25", 2) // of each family
		s.Expect("a/client > a/web tcp:1500 = no\n a/client > a/web tcp:1525 = yes")
		for name, rules := range s.Kernels[npc.IPv4].Chains {
			if len(rules) > 250 {
				cluster.Command(t, "iptables-"+string(b), "-w", "-I", name, "100", "-p", "udp", "-j", "ACCEPT")
			}
		}
		replaced := s.log.count("chains_replaced=1")
		edit(1502)
		s.ill("changing the filter table")
		s.well()
		s.logged("chains_edited=1", 4)
		s.logged("chains_replaced=1", replaced+1)
		s.Expect("a/client > a/web tcp:1501 = no\n a/client > a/web tcp:1526 = yes")
		edit(1503)
		s.well()
		s.logged("chains_edited=1", 6)
		s.Expect("a/client > a/web tcp:1502 = no\n a/client > a/web tcp:1527 = yes")
		s.agree()
	})
}
