package jump_test

import (
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/internal/jump"
)

var rule = iptables.Rule{Match: "-m addrtype --dst-type LOCAL", Target: "-j WEAVE-NPC-EGRESS", Comment: "to this node"}

// TestJump shows what is to be done about what the kernel has, while the jump is wanted and while it is not, and that
// nothing is left to do then.
func TestJump(t *testing.T) {
	ours := "-A INPUT " + rule.String()
	const accepts, drops = "-A INPUT -p udp -j ACCEPT", "-A INPUT -p udp -j DROP"
	for name, c := range map[string]struct {
		have   []string
		wanted bool
		want   string // what the update does
	}{
		"nothing is wanted and there":      {nil, false, ""},
		"it is not there":                  {[]string{accepts}, true, "put"},
		"it is there":                      {[]string{ours, accepts}, true, ""},
		"a rule above drops":               {[]string{drops, ours}, true, ""},
		"a rule above accepts":             {[]string{accepts, ours}, true, "delete 1, put"},
		"it is there twice":                {[]string{ours, ours}, true, "delete 2, put"},
		"it is not wanted":                 {[]string{accepts, ours}, false, "delete 1"},
		"it is there twice and not wanted": {[]string{ours, accepts, ours}, false, "delete 2"},
	} {
		t.Run(name, func(t *testing.T) {
			j := jump.New("INPUT", "WEAVE-NPC-EGRESS", rule)
			j.Want(c.wanted)
			if j.Missing() || j.Surplus() {
				t.Error("there is something to do before the kernel was read")
			}
			seen := iptables.Seen{Hooks: map[string][]string{"INPUT": c.have}}
			j.Load(seen)
			if drift := j.Drift(seen); len(drift) > 0 && c.want == "" {
				t.Errorf("drift: %q", drift)
			}
			var does []string
			if u := j.Update(); j.Missing() || j.Surplus() {
				if n := len(u.Stale); n > 0 {
					does = append(does, "delete "+string(rune('0'+n)))
				}
				if u.Rule == rule {
					does = append(does, "put")
				}
				j.Written(u)
			}
			if got := strings.Join(does, ", "); got != c.want {
				t.Errorf("the update would %q, want %q", got, c.want)
			}
			if j.Missing() || j.Surplus() || j.Found() != c.wanted {
				t.Errorf("after the update: missing %t, surplus %t, found %t", j.Missing(), j.Surplus(), j.Found())
			}
		})
	}
}

// TestDrift is what others did since the last update.
func TestDrift(t *testing.T) {
	ours := "-A INPUT " + rule.String()
	for name, c := range map[string]struct {
		placed bool
		seen   []string
		want   string
	}{
		"as it was left":             {true, []string{ours}, ""},
		"never there":                {false, []string{"-A INPUT -j ACCEPT"}, ""},
		"deleted by another process": {true, nil, "INPUT has 0 jumps to WEAVE-NPC-EGRESS"},
		"doubled by another process": {true, []string{ours, ours}, "INPUT has 2 jumps to WEAVE-NPC-EGRESS"},
		"a foreign accept above it":  {true, []string{"-A INPUT -j ACCEPT", ours}, "INPUT accepts before us: -A INPUT -j ACCEPT"},
		"one that is not wanted":     {false, []string{ours}, "INPUT has 1 jumps to WEAVE-NPC-EGRESS"},
	} {
		t.Run(name, func(t *testing.T) {
			j := jump.New("INPUT", "WEAVE-NPC-EGRESS", rule)
			j.Load(iptables.Seen{})
			if j.Want(c.placed); c.placed {
				j.Written(j.Update())
			}
			if got := strings.Join(j.Drift(iptables.Seen{Hooks: map[string][]string{"INPUT": c.seen}}), "; "); got != c.want {
				t.Errorf("drift: %q, want %q", got, c.want)
			}
		})
	}
}

// TestWrote: an update is of the jump that made it, and not of others of its chain.
func TestWrote(t *testing.T) {
	other := rule
	other.Match = "-p udp"
	a, b := jump.New("INPUT", "WEAVE-NPC-EGRESS", rule), jump.New("INPUT", "WEAVE-NPC-EGRESS", other)
	for _, there := range []bool{false, true} {
		seen := iptables.Seen{Hooks: map[string][]string{}}
		for _, r := range []iptables.Rule{rule, other} {
			if there {
				seen.Hooks["INPUT"] = append(seen.Hooks["INPUT"], "-A INPUT "+r.String())
			}
		}
		for _, j := range []*jump.Jump{a, b} {
			j.Want(!there)
			j.Load(seen)
		}
		if !a.Wrote(a.Update()) || a.Wrote(b.Update()) || b.Wrote(a.Update()) {
			t.Errorf("there: %t: the update of one is another's", there)
		}
	}
}

// TestDriftWhileItIsToCome: there is none while a jump that was asked for is not written yet.
func TestDriftWhileItIsToCome(t *testing.T) {
	j := jump.New("INPUT", "WEAVE-NPC-EGRESS", rule)
	j.Load(iptables.Seen{})
	j.Want(true)
	if drift := j.Drift(iptables.Seen{}); len(drift) > 0 || !j.Missing() {
		t.Errorf("drift: %q, missing: %t", drift, j.Missing())
	}
}
