package written_test

import (
	"testing"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/internal/written"
)

func chain(matches ...string) iptables.Chain {
	w := iptables.Chain{Name: "WEAVE-NPC-TEST"}
	for _, m := range matches {
		w.Rules = append(w.Rules, iptables.Rule{Match: m, Target: "-j ACCEPT"})
	}
	return w
}

func seen(w iptables.Chain, text ...string) iptables.SeenChain {
	return iptables.SeenChain{IDs: w.IDs(), Text: text}
}

func TestAChainThatIsAsItWasLeft(t *testing.T) {
	var c written.Chain
	if !c.Change(chain(), false, iptables.Editing{}).Replace {
		t.Error("a chain that is not there is not written")
	}
	c.Replaced(chain("-p udp"))
	c.Inserted(chain("-p tcp").Rules)
	if now := chain("-p tcp", "-p udp"); c.Differs(seen(now)) || c.Change(now, false, iptables.Editing{}).Lacking() || c.Count() != 2 {
		t.Error("what was inserted is not known")
	}
	c.Deleted()
	if c.Exists || c.Count() != 0 {
		t.Error("a chain that was deleted is there")
	}
}

// TestAnotherProgramChangesARule and leaves its comment, by which it is known.
func TestAnotherProgramChangesARule(t *testing.T) {
	var c written.Chain
	w := chain("-p tcp")
	c.Replaced(w)
	c.Printed(seen(w, "-p tcp -j ACCEPT"))
	changed := seen(w, "-p tcp -j DROP")
	if !c.Differs(changed) {
		t.Error("it is not seen")
	}
	if c.Load(changed, true, false); !c.Change(w, false, iptables.Editing{}).Lacking() {
		t.Error("it stays")
	}
	c.Replaced(w)
	if c.Load(seen(w), true, true); !c.Change(w, false, iptables.Editing{}).Lacking() {
		t.Error("the rules of another layout stay")
	}
	c.Replaced(w)
	if c.Load(seen(w, "-p tcp -j ACCEPT"), true, false); c.Change(w, false, iptables.Editing{}).Lacking() || !c.Loaded {
		t.Error("rules that are as they are to be are written again")
	}
}
