package naming

import (
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc/traffic"
)

// TestSetNames tells which sets are ours, the original's, and nobody's business.
func TestSetNames(t *testing.T) {
	for name, want := range map[string][2]bool{
		Set(traffic.IPv4, "x"):             {true, true},
		"weave-local-pods":                 {true, false},
		"weave-local-pods-v6":              {true, false},
		"weave-gate-egress-v6":             {true, false},
		"weave-default-allow-ingress":      {true, false},
		"weave-;rGqyMIl1HN^cfDki~Z$3]6!N":  {false, true},
		"weave-foo":                        {false, false},
		"weave-a-foreign-set-of-31-bytes":  {false, false},
		"KUBE-SOMETHING":                   {false, false},
		"weave-local-pods-of-somebody":     {false, false},
		"other-;rGqyMIl1HN^cfDki~Z$3]6!N":  {false, false},
		"weave-" + strings.Repeat("A", 26): {false, false},
	} {
		if got := [2]bool{IsOurSet(name), IsAncestorSet(name)}; got != want {
			t.Errorf("%s: ours, the original's: %v, want %v", name, got, want)
		}
	}
	if len(Set(traffic.IPv4, "a", "b")) != 31 || Set(traffic.IPv4, "a", "b") == Set(traffic.IPv6, "a", "b") || Set(traffic.IPv4, "a", "b") == Set(traffic.IPv4, "ab") {
		t.Error("names are of another length, or collide")
	}
}
