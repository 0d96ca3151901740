package iptables

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/sandbox"
)

// refusedMatch is one that the programs take and the kernel does not: an instruction that BPF does not have.
const refusedMatch = `-m bpf --bytecode "1,255 255 255 255"`

func allows(r Rule) bool { return r.Target == "-j ACCEPT" }

// TestARefusedRuleIsLeftOutAlone: two of many rules are refused, in two chains.
func TestARefusedRuleIsLeftOutAlone(t *testing.T) {
	onEveryTable(t, func(t *testing.T, table *Table) {
		u := Update{Replace: []Chain{{Name: "WEAVE-NPC", Tail: []Rule{{Target: "-g WEAVE-NPC-A"}}}}}
		var bad []string
		for _, name := range []string{"WEAVE-NPC-A", "WEAVE-NPC-B"} {
			c := Chain{Name: name, Tail: []Rule{{Target: "-j DROP"}}}
			for i := range 100 {
				c.Rules = append(c.Rules, Rule{Match: fmt.Sprintf("-p tcp -m tcp --dport %d", i+1), Target: "-j ACCEPT", Comment: name})
			}
			c.Rules = append(c.Rules, Rule{Match: refusedMatch, Target: "-j ACCEPT", Comment: name})
			bad = append(bad, c.Rules[100].ID())
			u.Replace = append(u.Replace, c)
		}
		start := time.Now()
		refused, err := table.ApplyWithout(t.Context(), u, "WEAVE-NPC-TRY", allows)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("two refused rules of 202 found within %s", time.Since(start))
		var ids []string
		for _, r := range refused {
			ids = append(ids, r.ID)
		}
		slices.Sort(ids)
		slices.Sort(bad)
		if !slices.Equal(ids, bad) {
			t.Errorf("refused are %v, not %v: %v", ids, bad, refused)
		}
		seen := table.read(t)
		for _, name := range []string{"WEAVE-NPC-A", "WEAVE-NPC-B"} {
			if n := len(seen.Chains[name].IDs); n != 101 {
				t.Errorf("%s has %d rules", name, n)
			}
		}
		if _, there := seen.Chains["WEAVE-NPC-TRY"]; there {
			t.Error("the scratch chain is left behind")
		}
	})
}

func TestWhatCannotBeSparedFailsTheUpdate(t *testing.T) {
	onEveryTable(t, func(t *testing.T, table *Table) {
		table.apply(t, Update{Replace: []Chain{{Name: "WEAVE-NPC", Tail: []Rule{{Target: "-j RETURN"}}}}})
		before := table.saved(t)
		u := Update{Replace: []Chain{{Name: "WEAVE-NPC", Rules: []Rule{{Match: "-p udp", Target: "-j ACCEPT"}},
			Tail: []Rule{{Match: refusedMatch, Target: "-j DROP"}}}}}
		if refused, err := table.ApplyWithout(t.Context(), u, "WEAVE-NPC-TRY", allows); err == nil || len(refused) > 0 {
			t.Errorf("%v, %v", refused, err)
		}
		if after := table.saved(t); after != before {
			t.Errorf("changed:\n%s", after)
		}
	})
}

func TestTheLockIsNoRulesFault(t *testing.T) {
	sandbox.Thread(t)
	lock := t.TempDir() + "/lock"
	t.Setenv("XTABLES_LOCKFILE", lock)
	table, err := New(IPv4, Legacy)
	if err != nil {
		t.Fatal(err)
	}
	table.waitArgs = []string{"--wait=1"}
	fd, err := unix.Open(lock, unix.O_CREAT|unix.O_RDONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Flock(fd, unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	u := Update{Replace: []Chain{{Name: "WEAVE-NPC", Rules: []Rule{{Match: "-p udp", Target: "-j ACCEPT"}}}}}
	refused, err := table.ApplyWithout(t.Context(), u, "WEAVE-NPC-TRY", allows)
	if err == nil || len(refused) > 0 || !strings.Contains(err.Error(), "lock") {
		t.Errorf("%v, %v", refused, err)
	}
}
