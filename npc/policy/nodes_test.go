package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
)

// TestS89_PeersByNodesFailClosed if their selector is not understood, or if the peer is of another kind too: what
// denies or passes denies all, what accepts matches nothing.
func TestS89_PeersByNodesFailClosed(t *testing.T) {
	for name, c := range map[string]struct{ peer, want string }{
		"valid":            {"{nodes: {matchLabels: {zone: x}}}", ""},
		"impossible value": {`{nodes: {matchLabels: {zone: "a b"}}}`, `to[1]: nodes: matchLabels[zone]: no label can have the value "a b"`},
		"key":              {`{nodes: {matchLabels: {"a b": x}}}`, "spec.egress[0]: to[1]: nodes: matchLabels: key"},
		"operator":         {"{nodes: {matchExpressions: [{key: a, operator: Is}]}}", `to[1]: nodes: matchExpressions[0]: "Is" is no operator`},
		"and namespaces":   {"{nodes: {}, namespaces: {}}", "to[1]: it is of several kinds"},
		"and networks":     {"{nodes: {}, networks: [10.0.0.0/8]}", "to[1]: it is of several kinds"},
	} {
		for _, action := range []string{"Accept", "Deny", "Pass"} {
			t.Run(name+" "+action, func(t *testing.T) {
				text := fmt.Sprintf("{tier: Admin, subject: {namespaces: {}}, egress: [{action: %s, to: [{namespaces: {}}, %s]}]}", action, c.peer)
				p := compiledCluster(t, text)
				r := p.Rules[npc.Egress][0]
				switch {
				case c.want == "" && (p.Invalid != nil || len(r.Peers) == 0 || r.AnyPeer || r.Action.String() != action):
					t.Errorf("%v: %+v", p.Invalid, r)
				case c.want != "" && (p.Invalid == nil || !strings.Contains(p.Invalid.Error(), c.want)):
					t.Errorf("said %v", p.Invalid)
				case c.want != "" && (r.AnyPeer != (action != "Accept") || r.AnyPeer && r.Action != Deny || len(r.Peers) > 0):
					t.Errorf("it is %+v", r)
				}
			})
		}
	}
}

// TestRulesAreDistinguishedByTheirNodes and by the other fields of their peers.
func TestRulesAreDistinguishedByTheirNodes(t *testing.T) {
	keys := map[string]string{}
	for _, peer := range []string{"{nodes: {}}", "{nodes: {matchLabels: {zone: x}}}", "{nodes: {matchLabels: {zone: y}}}", "{namespaces: {}}",
		"{namespaces: {matchLabels: {zone: x}}}"} {
		p := compiledCluster(t, "{tier: Admin, subject: {namespaces: {}}, egress: [{action: Deny, to: ["+peer+"]}]}")
		key := strings.Join(p.Rules[npc.Egress][0].Key(), "|")
		if other, known := keys[key]; known {
			t.Errorf("%s has the key of %s, %s", peer, other, key)
		}
		keys[key] = peer
	}
}
