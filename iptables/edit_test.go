package iptables

import (
	"fmt"
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/test/sandbox"
)

// anyEdit edits every chain where some rules differ.
var anyEdit = Editing{Share: 1, Probe: "WEAVE-NPC-TRY"}

// inOrder returns a chain with rules in order, each of a number.
func inOrder(numbers ...int) Chain {
	c := Chain{Name: "WEAVE-NPC-A", Tail: []Rule{{Target: "-j RETURN", Comment: "end"}}}
	for i, n := range numbers {
		c.Rules = append(c.Rules, Rule{Match: fmt.Sprintf("-p tcp -m tcp --dport %d", n+1), Target: "-j ACCEPT", Comment: strconv.Itoa(n), Order: i})
	}
	return c
}

// count returns the numbers from 0 to n-1.
func count(n int) []int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}

// numbersAfter applies the lines of an edit to the numbers of a chain's rules. The tail and jumps to the probe are -1.
func numbersAfter(t *testing.T, before []int, e Edit) []int {
	t.Helper()
	chain := append(slices.Clone(before), -1)
	for _, line := range e.lines() {
		words, err := Words(line)
		if err != nil {
			t.Fatal(err)
		}
		at, _ := strconv.Atoi(words[2])
		switch words[0] {
		case "-A":
			chain = append(chain, -1)
		case "-D":
			chain = slices.Delete(chain, at-1, at)
		case "-I":
			number, err := strconv.Atoi(words[slices.Index(words, "--dport")+1])
			if err != nil {
				t.Fatal(err)
			}
			chain = slices.Insert(chain, at-1, number-1)
		}
	}
	return chain
}

// TestSinceInOrder: which chains are edited, and how.
func TestSinceInOrder(t *testing.T) {
	for name, c := range map[string]struct {
		have, want []int
		editing    Editing
		lines      string
	}{
		"the same":           {[]int{1, 2}, []int{1, 2}, anyEdit, "nothing"},
		"none":               {nil, nil, anyEdit, "nothing"},
		"the first of all":   {nil, []int{1}, Editing{Share: 1}, "replace"},
		"one at the head":    {[]int{1, 2, 3}, []int{9, 1, 2, 3}, anyEdit, "-D 5; -I 1 9"},
		"one at the end":     {[]int{1, 2, 3}, []int{1, 2, 3, 9}, anyEdit, "-D 5; -I 4 9"},
		"two in the middle":  {[]int{1, 2, 3}, []int{1, 8, 9, 2, 3}, anyEdit, "-D 5; -I 2 8; -I 3 9"},
		"one that goes":      {[]int{1, 2, 3}, []int{1, 3}, anyEdit, "-D 5; -D 2"},
		"one for another":    {[]int{1, 2, 3}, []int{1, 9, 3}, anyEdit, "-D 5; -D 2; -I 2 9"},
		"two for one":        {[]int{1, 2, 3, 4}, []int{1, 9, 4}, anyEdit, "-D 6; -D 3; -D 2; -I 2 9"},
		"at two places":      {[]int{1, 2, 3, 4}, []int{8, 2, 3, 9}, anyEdit, "-D 6; -D 4; -I 4 9; -D 1; -I 1 8"},
		"the last one first": {[]int{1, 2, 3, 4}, []int{4, 1, 2, 3}, anyEdit, "-D 6; -D 4; -I 1 4"},
		"twice in the chain": {[]int{1, 2, 1, 3}, []int{1, 2, 3}, anyEdit, "-D 6; -D 3; -D 1; -I 1 1"},
		"few enough":         {count(8), append(count(7), 9, 10), Editing{Above: 7, Share: 4, Probe: "T"}, "-D 10; -D 8; -I 8 9; -I 9 10"},
		"too many":           {count(8), append(count(6), 9, 10, 11), Editing{Above: 7, Share: 4}, "replace"},
		"all others":         {[]int{1, 2}, []int{3, 4}, Editing{Share: 2}, "replace"},
		"too short before":   {count(7), count(9), Editing{Above: 7, Share: 1}, "replace"},
		"too short after":    {count(9), count(7), Editing{Above: 7, Share: 1}, "replace"},
		"never":              {count(9), count(10), Editing{}, "replace"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.lines == "replace" && c.have == nil {
				if ch := inOrder(c.want...).SinceInOrder(nil, c.editing); !ch.Replace || !ch.Lacking() {
					t.Errorf("a chain without its tail is not replaced: %+v", ch)
				}
				return
			}
			ch := inOrder(c.want...).SinceInOrder(inOrder(c.have...).IDs(), c.editing)
			got := "nothing"
			switch {
			case ch.Replace:
				got = "replace"
			case ch.Edit != nil:
				var short []string
				for _, line := range ch.Edit.lines()[1:] {
					words, err := Words(line)
					if err != nil {
						t.Fatal(err)
					}
					if words[0] == "-I" {
						words = []string{"-I", "", words[2], strings.Fields(words[slices.Index(words, "--comment")+1])[1]}
					}
					short = append(short, strings.Join(slices.Delete(words, 1, 2), " "))
				}
				got = strings.Join(short, "; ")
			}
			if got != c.lines || ch.Lacking() != (c.lines != "nothing") {
				t.Errorf("%s, not %s", got, c.lines)
			}
		})
	}
}

// FuzzEdit: whatever there is and is wanted, the edit makes the one of the other.
func FuzzEdit(f *testing.F) {
	f.Add([]byte{}, []byte{1})
	f.Add([]byte{1, 2, 3, 4}, []byte{4, 3, 2, 1})
	f.Add([]byte{1, 1, 2, 2}, []byte{2, 1, 7})
	f.Fuzz(func(t *testing.T, have, want []byte) {
		numbers := func(of []byte) (n []int) {
			for _, b := range of {
				n = append(n, int(b))
			}
			return n
		}
		before, after := inOrder(numbers(have)...), inOrder(numbers(want)...)
		ch := after.SinceInOrder(before.IDs(), anyEdit)
		if slices.Equal(have, want) != (ch.Edit == nil) && min(len(have), len(want)) > 0 {
			t.Fatalf("%v to %v: %+v", have, want, ch)
		}
		if ch.Edit == nil {
			return
		}
		if got := numbersAfter(t, numbers(have), *ch.Edit); !slices.Equal(got, append(numbers(want), -1)) {
			t.Errorf("%v to %v gives %v", have, want, got)
		}
		if got := ch.Edit.IDs(before.IDs()); !slices.Equal(got, after.IDs()) {
			t.Errorf("%v to %v is taken for another: %q", have, want, got)
		}
	})
}

// TestAnEditOfAChainThatWasReadAgain: the edit does not depend on the rules.
func TestAnEditOfAChainThatWasReadAgain(t *testing.T) {
	e := inOrder(1, 9, 3).SinceInOrder(inOrder(1, 2, 3).IDs(), anyEdit).Edit
	if ids := e.IDs(inOrder(1, 2).IDs()); ids != nil {
		t.Errorf("the chain has %q", ids)
	}
}

// changed changes some numbers: some go, come, or change places.
func changed(r *rand.Rand, numbers []int, next *int) []int {
	numbers = slices.Clone(numbers)
	for range 1 + r.Intn(20) {
		at := r.Intn(len(numbers))
		moved := numbers[at]
		switch r.Intn(3) {
		case 0:
			*next++
			numbers = slices.Insert(numbers, at, *next)
			continue
		case 1:
			*next++
			numbers[at] = *next
			continue
		}
		numbers = slices.Delete(numbers, at, at+1)
		if r.Intn(2) == 0 {
			numbers = slices.Insert(numbers, r.Intn(len(numbers)), moved)
		}
	}
	return numbers
}

// TestEditsInTheKernel: after random edits the chain has the rules that are wanted, in order.
func TestEditsInTheKernel(t *testing.T) {
	onEveryTable(t, func(t *testing.T, table *Table) {
		r := rand.New(rand.NewSource(1))
		for _, n := range []int{300, 700} {
			numbers, next := count(n), n
			c := inOrder(numbers...)
			table.apply(t, Update{Replace: []Chain{c, {Name: "WEAVE-NPC-B"}}})
			table.restore(t, "*filter\n:OTHER - [0:0]\n-F FORWARD\n-A FORWARD -j WEAVE-NPC-A\nCOMMIT\n")
			for range 8 {
				numbers = changed(r, numbers, &next)
				before := c
				c = inOrder(numbers...)
				ch := c.SinceInOrder(before.IDs(), DefaultEditing("WEAVE-NPC-TRY"))
				if ch.Edit == nil {
					t.Fatalf("not edited: %+v", ch)
				}
				// The other chain shows that edits share an update with other changes.
				table.apply(t, Update{Edits: []Edit{*ch.Edit}, Replace: []Chain{{Name: "WEAVE-NPC-B", Tail: []Rule{{Target: "-j DROP"}}}}})
				seen := table.read(t)
				if !slices.Equal(seen.Chains["WEAVE-NPC-A"].IDs, c.IDs()) {
					t.Fatalf("the chain has\n%s\nafter\n%s", strings.Join(seen.Chains["WEAVE-NPC-A"].Text, "\n"), Update{Edits: []Edit{*ch.Edit}})
				}
				if _, left := seen.Chains["WEAVE-NPC-TRY"]; left || len(seen.Chains["WEAVE-NPC-B"].IDs) != 1 {
					t.Fatalf("there are also %v", seen.Chains)
				}
			}
		}
	})
}

// TestAnEditAfterOthers: where another process has inserted or deleted a rule, the edit fails and changes nothing, and
// where a rule was replaced at its place, the edit is right.
func TestAnEditAfterOthers(t *testing.T) {
	for name, c := range map[string]struct {
		others string
		fails  bool
	}{
		"inserted at the head":   {"-I WEAVE-NPC-A 1 -p udp -j DROP", true},
		"inserted in the middle": {"-I WEAVE-NPC-A 150 -p udp -j DROP", true},
		"appended":               {"-A WEAVE-NPC-A -p udp -j DROP", true},
		"deleted at the head":    {"-D WEAVE-NPC-A 1", true},
		"deleted at the end":     {"-D WEAVE-NPC-A 301", true},
		"emptied":                {"-F WEAVE-NPC-A", true},
		"two inserted":           {"-I WEAVE-NPC-A 1 -p udp -j DROP\n-I WEAVE-NPC-A 1 -p udp -j DROP", true},
		"replaced":               {"-R WEAVE-NPC-A 7 -p udp -j DROP", false},
		"nothing":                {"-A FORWARD -j DROP", false},
	} {
		t.Run(name, func(t *testing.T) {
			onEveryTable(t, func(t *testing.T, table *Table) {
				numbers := count(300)
				before := inOrder(numbers...)
				numbers[199] = 1000
				after := inOrder(append([]int{2000}, numbers...)...)
				table.apply(t, Update{Replace: []Chain{before}})
				table.restore(t, "*filter\n"+c.others+"\nCOMMIT\n")
				ch := after.SinceInOrder(before.IDs(), DefaultEditing("WEAVE-NPC-TRY"))
				saved, u := table.saved(t), Update{Edits: []Edit{*ch.Edit}}
				refused, err := table.ApplyWithout(t.Context(), u, "WEAVE-NPC-TRY", allows)
				if len(refused) > 0 || (err != nil) != c.fails {
					t.Fatalf("%v, %v", refused, err)
				}
				if c.fails {
					if now := table.saved(t); now != saved {
						t.Errorf("it has changed:\n%s", now)
					}
					return
				}
				want, got := after.IDs(), table.read(t).Chains["WEAVE-NPC-A"].IDs
				if name == "replaced" {
					want[7] = got[7]
				}
				if !slices.Equal(got, want) {
					t.Errorf("the chain has %q", got)
				}
			})
		})
	}
}

// TestARefusedRuleOfAnEdit is left out, or another one takes its place; the others come to their places.
func TestARefusedRuleOfAnEdit(t *testing.T) {
	onEveryTable(t, func(t *testing.T, table *Table) {
		before, after := inOrder(count(300)...), inOrder(count(303)...)
		instead := Rule{Match: "-p udp", Target: "-j DROP", Order: 100}
		after.Rules[100] = Rule{Match: refusedMatch, Target: "-j DROP", Order: 100, Instead: &instead}
		after.Rules[200] = Rule{Match: refusedMatch, Target: "-j ACCEPT", Order: 200}
		table.apply(t, Update{Replace: []Chain{before}})
		u := Update{Edits: []Edit{*after.SinceInOrder(before.IDs(), DefaultEditing("WEAVE-NPC-TRY")).Edit}}
		optional := func(r Rule) bool { return r.Target == "-j ACCEPT" || r.Instead != nil }
		refused, err := table.ApplyWithout(t.Context(), u, "WEAVE-NPC-TRY", optional)
		if err != nil || len(refused) != 2 {
			t.Fatalf("%v, %v", refused, err)
		}
		after.Rules[100] = instead
		after.Rules = slices.Delete(after.Rules, 200, 201)
		if got := table.read(t).Chains["WEAVE-NPC-A"].IDs; !slices.Equal(got, after.IDs()) {
			t.Errorf("the chain has %q", got)
		}
		taken := u.Without(func(r Rule) bool { return r.Match == refusedMatch })
		if !slices.Equal(taken.Edits[0].IDs(before.IDs()), after.IDs()) {
			t.Errorf("what was taken is %q", taken.Edits[0].IDs(before.IDs()))
		}
	})
}

// BenchmarkEdit changes one rule in the middle of a chain, and then half of those that an edit may change, in place and
// by replacing the chain.
func BenchmarkEdit(b *testing.B) {
	for _, backend := range []Backend{NFT, Legacy} {
		for _, n := range []int{300, 625, 2000} {
			for _, changes := range []int{1, n / 8} {
				for _, how := range []struct {
					name    string
					editing Editing
				}{{"replace", Editing{}}, {"in-place", DefaultEditing("WEAVE-NPC-TRY")}} {
					b.Run(fmt.Sprintf("%s/rules=%d/changed=%d/%s", backend, n, changes, how.name), func(b *testing.B) {
						sandbox.Thread(b)
						command(b, "ipset", "create", "weave-x", "hash:ip")
						table, err := New(IPv4, backend)
						if err != nil {
							b.Fatal(err)
						}
						asking := func(numbers []int) Chain {
							c := inOrder(numbers...)
							for i := range c.Rules {
								c.Rules[i].Match += " -m set --match-set weave-x src"
							}
							return c
						}
						numbers := count(n)
						have := asking(numbers)
						table.apply(b, Update{Replace: []Chain{have}})
						table.restore(b, "*filter\n-A FORWARD -j WEAVE-NPC-A\nCOMMIT\n")
						for i := n; b.Loop(); i += changes {
							for k := range changes {
								numbers[(n/2+k*n/changes)%n] = 2000 + (i+k)%50000
							}
							c := asking(numbers)
							u := Update{Replace: []Chain{c}}
							if ch := c.SinceInOrder(have.IDs(), how.editing); ch.Edit != nil {
								u = Update{Edits: []Edit{*ch.Edit}}
							}
							table.apply(b, u)
							have = c
						}
					})
				}
			}
		}
	}
}
