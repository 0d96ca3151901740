package setref_test

import (
	"testing"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/internal/setref"
)

const (
	match = "-m set --match-set weave-a src -m set ! --match-set weave-ab dst"
	other = "-m set --match-set weave-b src -m set ! --match-set weave-ab dst"
)

func TestAliases(t *testing.T) {
	rules := []iptables.Rule{{Match: match}}
	if got := (setref.Aliases{"weave-a": "weave-b"}).Rules(rules); got[0].Match != other || rules[0].Match != match {
		t.Errorf("%q of %q", got[0].Match, rules[0].Match)
	}
	if got := (setref.Aliases{}).Rules(rules); got[0].Match != match {
		t.Errorf("%q without another name", got[0].Match)
	}
}

func TestRejected(t *testing.T) {
	for set, want := range map[string]string{"weave-ab": "exists", "weave-b": ""} {
		if why := (setref.Rejected{set: "exists"}).By(match); why != want {
			t.Errorf("%s: %q", set, why)
		}
	}
}
