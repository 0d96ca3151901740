package iptables

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestCut(t *testing.T) {
	rules := func(n int) (out []Rule) {
		for i := range n {
			out = append(out, Rule{Match: fmt.Sprintf("-p tcp --dport %d", 1+i), Target: "-j ACCEPT"})
		}
		return out
	}
	u := Update{
		Replace: []Chain{{Name: "A-1", Rules: rules(3)}, {Name: "A-2", Rules: rules(1)}, {Name: "C-1", Rules: rules(2)}, {Name: "BASE", Rules: rules(2)},
			{Name: "DROP", Tail: rules(1)}},
		Insert: map[string][]Rule{"B-1": rules(9), "C-2": rules(1), "BASE2": rules(1)},
		Edits:  []Edit{{Chain: "LIST", Rules: 9, Hunks: []Hunk{{At: 3, Delete: 4, Insert: rules(1)}}}},
		Jumps:  []Jump{{Chain: "FORWARD", Rule: Rule{Target: "-j BASE"}}},
		Delete: []string{"A-3"},
	}
	group := func(chain string) string {
		switch ns, _, named := strings.Cut(chain, "-"); {
		case named:
			return ns
		case chain == "DROP":
			return FirstGroup
		}
		return lastGroup
	}
	for limit, want := range map[int]string{
		1000: "A B C: A-1 A-2 B-1 BASE BASE2 C-1 C-2 DROP LIST",
		21:   "A B C: A-1 A-2 B-1 BASE BASE2 C-1 C-2 DROP LIST",
		20:   ": DROP|A B C: A-1 A-2 B-1 C-1 C-2|: BASE BASE2 LIST",
		19:   ": DROP|A B C: A-1 A-2 B-1 C-1 C-2|: BASE BASE2 LIST",
		15:   ": DROP|A B: A-1 A-2 B-1|C: C-1 C-2|: BASE BASE2 LIST",
		12:   ": DROP|A: A-1 A-2|B C: B-1 C-1 C-2|: BASE BASE2 LIST",
		4:    ": DROP|A: A-1 A-2|B: B-1|C: C-1 C-2|: BASE BASE2 LIST",
		0:    ": DROP|A: A-1 A-2|B: B-1|C: C-1 C-2|: BASE BASE2 LIST",
	} {
		var got []string
		parts := u.Split(limit, group)
		for i, p := range parts {
			var chains []string
			for _, c := range p.Replace {
				chains = append(chains, c.Name)
			}
			for chain := range p.Insert {
				chains = append(chains, chain)
			}
			for _, e := range p.Edits {
				chains = append(chains, e.Chain)
			}
			slices.Sort(chains)
			got = append(got, strings.Join(p.Groups, " ")+": "+strings.Join(chains, " "))
			if last := i == len(parts)-1; (len(p.Jumps) == 1) != last || (len(p.Delete) == 1) != last {
				t.Errorf("limit %d: jumps and deletions are not the last part's", limit)
			}
		}
		if strings.Join(got, "|") != want {
			t.Errorf("limit %d: cut into %q, not %q", limit, strings.Join(got, "|"), want)
		}
	}
	if parts := (Update{}).Split(0, group); len(parts) != 1 || !parts[0].Empty() {
		t.Errorf("nothing is cut into %v", parts)
	}
}
