package syncer_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/vishvananda/netlink/nl"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/enforce/syncer"
	"github.com/weave-npc/weave-npc/test/cluster"
)

// TestS89_APeerOfADenyIsRefused: the rule asks for a list of its peers' sets, and the kernel rejects one of them. The
// rule denies everything then.
func TestS89_APeerOfADenyIsRefused(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newStation(t, b)
		s.Explained = false // as if the kernel took all
		faults := s.Live.MakeFaults(npc.IPv4)
		blocks := regexp.MustCompile(`^weave-[a-z0-9]{25}$`) // as those of rules are named
		faults.Apply = refusing(nl.IPSET_ERR_MAX_SETS, func(set ipset.Set) bool { return set.Type == ipset.HashNet && blocks.MatchString(set.Name) })
		s.ClusterPolicy("guard", `{tier: Admin, priority: 1, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: client}}}},
egress: [{action: Deny, to: [{networks: [198.51.100.0/24]}, {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: none}}}}]}]}`)
		s.step()
		s.Expect("10.32.1.4 > 10.32.1.2 tcp:80 = no\n a/client > 198.51.100.7 tcp:80 = no")
		s.step()
		s.Expect("10.32.1.4 > 10.32.1.2 tcp:80 = no\n a/client > 198.51.100.7 tcp:80 = no\n fd32:1::4 > fd32:1::2 tcp:80 = yes")
		if ready := s.Live.Ready(); !strings.Contains(ready, "guard") {
			t.Errorf("readiness is %q", ready)
		}
		faults.Apply = nil
		s.well()
		s.Expect("a/client > a/web tcp:80 = yes\n a/client > 198.51.100.7 tcp:80 = no")
	})
}

// TestS89_WhatIsWrittenWithoutAPeer of a list, at once: a rule that denies by the list denies everything; a rule that
// accepts accepts the peers that it can.
func TestS89_WhatIsWrittenWithoutAPeer(t *testing.T) {
	match := naming.Match("weave-list", "src")
	chain := func(rules ...iptables.Rule) iptables.Update {
		return iptables.Update{Replace: []iptables.Chain{{Name: "WEAVE-NPC-A-x", Rules: rules}}, Insert: map[string][]iptables.Rule{}}
	}
	deny := iptables.Rule{Target: "-g WEAVE-NPC-DROP-INGRESS", Order: 1}
	denyPeers, accept := deny, iptables.Rule{Match: match, Target: "-j ACCEPT"}
	denyPeers.Match, denyPeers.Instead = match, &deny
	got, want := syncer.LeftOf(chain(accept, denyPeers), "weave-peers", "weave-list").String(), chain(accept, deny).String()
	if got != want {
		t.Errorf("written:\n%swant:\n%s", got, want)
	}
}
