package iptables

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// update uses every part of Update, with its parts in an unhelpful order.
func exampleUpdate() Update {
	return Update{
		Replace: []Chain{
			{
				Name: "WEAVE-NPC-INGRESS",
				Rules: []Rule{
					{Match: "-p udp", Target: "-j ACCEPT", Comment: "second"},
					{Match: "-p tcp", Target: "-j ACCEPT", Comment: "first"},
				},
				Tail: []Rule{
					{Match: "-m set --match-set weave-x dst", Target: "-g WEAVE-NPC-DROP"},
					{Target: "-j ACCEPT"},
				},
			},
			{Name: "WEAVE-NPC-DROP", Tail: []Rule{{Target: "-j DROP"}}},
		},
		Insert: map[string][]Rule{
			"WEAVE-NPC-I-b": {{Match: "-p sctp", Target: "-j ACCEPT"}},
			"WEAVE-NPC-I-a": {
				{Match: "-p udp", Target: "-j ACCEPT"},
				{Match: "-p tcp", Target: "-j ACCEPT"},
			},
		},
		Edits: []Edit{
			{Chain: "WEAVE-NPC-L-b", Rules: 3, Probe: "WEAVE-NPC-TRY", Hunks: []Hunk{{At: 1, Delete: 1}}},
			{Chain: "WEAVE-NPC-L-a", Rules: 9, Probe: "WEAVE-NPC-TRY", Hunks: []Hunk{
				{At: 2, Insert: []Rule{{Match: "-p tcp", Target: "-j ACCEPT"}, {Match: "-p udp", Target: "-j ACCEPT"}}},
				{At: 5, Delete: 2, Insert: []Rule{{Match: "-p sctp", Target: "-j ACCEPT"}}},
			}},
			{Chain: "WEAVE-NPC-L-c", Rules: 3, Probe: "WEAVE-NPC-TRY-2"},
		},
		Jumps: []Jump{
			{Chain: "FORWARD", Rule: Rule{Target: "-j WEAVE-NPC"}, Stale: []string{
				`-A FORWARD -m comment --comment "aaaaaaaaaa old" -j WEAVE-NPC`,
			}},
			{Chain: "FORWARD", Rule: Rule{Target: "-j WEAVE-NPC-EGRESS"}},
			{Chain: "INPUT", Stale: []string{`-A INPUT -j WEAVE-NPC-OLD`}},
		},
		Delete: []string{"WEAVE-NPC-OLD", "WEAVE-NPC-I-old"},
	}
}

func TestUpdateString(t *testing.T) {
	const want = `*filter
:WEAVE-NPC-DROP - [0:0]
:WEAVE-NPC-INGRESS - [0:0]
:WEAVE-NPC-TRY - [0:0]
-D FORWARD -m comment --comment "aaaaaaaaaa old" -j WEAVE-NPC
-D INPUT -j WEAVE-NPC-OLD
-A WEAVE-NPC-DROP -m comment --comment "7znrtu5sci" -j DROP
-A WEAVE-NPC-INGRESS -p tcp -m comment --comment "7jpec7wpte first" -j ACCEPT
-A WEAVE-NPC-INGRESS -p udp -m comment --comment "aksfxyvein second" -j ACCEPT
-A WEAVE-NPC-INGRESS -m set --match-set weave-x dst -m comment --comment "2x3eamo3ud" -g WEAVE-NPC-DROP
-A WEAVE-NPC-INGRESS -m comment --comment "d5orgb4ddf" -j ACCEPT
-I WEAVE-NPC-I-a 1 -p udp -m comment --comment "756njjkyca" -j ACCEPT
-I WEAVE-NPC-I-a 1 -p tcp -m comment --comment "bwoog5yz2w" -j ACCEPT
-I WEAVE-NPC-I-b 1 -p sctp -m comment --comment "mbra7cdrve" -j ACCEPT
-A WEAVE-NPC-L-a -j WEAVE-NPC-TRY
-D WEAVE-NPC-L-a 10
-D WEAVE-NPC-L-a 7
-D WEAVE-NPC-L-a 6
-I WEAVE-NPC-L-a 6 -p sctp -m comment --comment "mbra7cdrve" -j ACCEPT
-I WEAVE-NPC-L-a 3 -p tcp -m comment --comment "bwoog5yz2w" -j ACCEPT
-I WEAVE-NPC-L-a 4 -p udp -m comment --comment "756njjkyca" -j ACCEPT
-A WEAVE-NPC-L-b -j WEAVE-NPC-TRY
-D WEAVE-NPC-L-b 4
-D WEAVE-NPC-L-b 2
-I FORWARD 1 -m comment --comment "xliqid6via" -j WEAVE-NPC-EGRESS
-I FORWARD 1 -m comment --comment "sp5epvuhcr" -j WEAVE-NPC
-F WEAVE-NPC-I-old
-F WEAVE-NPC-OLD
-X WEAVE-NPC-I-old
-X WEAVE-NPC-OLD
-X WEAVE-NPC-TRY
COMMIT
`
	for range 10 { // maps change their order from one run to the next
		if diff := cmp.Diff(want, exampleUpdate().String()); diff != "" {
			t.Fatalf("rendered update (-want +got):\n%s", diff)
		}
	}
}

func TestUpdateEmpty(t *testing.T) {
	tests := map[string]struct {
		update Update
		want   bool
	}{
		"zero":              {Update{}, true},
		"nothing to insert": {Update{Insert: map[string][]Rule{"A": nil}}, true},
		"nothing to edit":   {Update{Edits: []Edit{{Chain: "A", Rules: 9}}}, true},
		"idle jump":         {Update{Jumps: []Jump{{Chain: "FORWARD"}}}, true},
		"empty chain":       {Update{Replace: []Chain{{Name: "A"}}}, false},
		"edit":              {Update{Edits: []Edit{{Chain: "A", Rules: 9, Hunks: []Hunk{{Delete: 1}}}}}, false},
		"delete":            {Update{Delete: []string{"A"}}, false},
		"stale jump":        {Update{Jumps: []Jump{{Chain: "FORWARD", Stale: []string{"-A FORWARD -j A"}}}}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.update.Empty(); got != tt.want {
				t.Errorf("Empty() = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestDuplicateRulesStayDuplicate(t *testing.T) {
	rule := Rule{Match: "-p tcp", Target: "-j ACCEPT"}
	c := Chain{Name: "A", Rules: []Rule{rule, rule}}
	if got := c.IDs(); len(got) != 2 || got[0] != got[1] {
		t.Errorf("IDs() = %q, want the same id twice", got)
	}
}

func TestCheckLine(t *testing.T) {
	tests := map[string]struct {
		line string
		want string // part of the error; empty: accepted
	}{
		"declaration":         {":WEAVE-NPC - [0:0]", ""},
		"rule":                {`-A WEAVE-NPC -m comment --comment "a b" -j ACCEPT`, ""},
		"foreign deletion":    {`-D FORWARD -m comment --comment "say \"x\" \\" -j FOO`, ""},
		"longest name":        {":" + strings.Repeat("x", 28) + " - [0:0]", ""},
		"too long a name":     {":" + strings.Repeat("x", 29) + " - [0:0]", "28"},
		"no name":             {"-F ", "not a command"},
		"no name to flush":    {"-F", "not a command"},
		"name like an option": {"-F -t", "character"},
		"blank in a name":     {":A B - [0:0]", ""},
		"semicolon in a name": {":A; - [0:0]", "character"},
		"line break":          {"-A A -p tcp\n-F FORWARD", "control"},
		"zero byte":           {"-A A -p tcp\x00", "control"},
		"open quote":          {`-A A -m comment --comment "a -j ACCEPT`, "not closed"},
		"comment line":        {"#-A A", "stale"},
		"end":                 {"COMMIT", "not a command"},
		"other table":         {"*nat", "not a command"},
		"policy":              {"-P FORWARD DROP", "not a command"},
		"endless":             {"-A A -m comment --comment " + strings.Repeat("x", 9000), "longer"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := checkLine(tt.line)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("checkLine(%.60q) = %v, want error with %q", tt.line, err, tt.want)
			}
		})
	}
}

func TestWithout(t *testing.T) {
	u := exampleUpdate()
	got := u.Without(func(r Rule) bool { return r.Match == "-p udp" || r.Match == "-p sctp" || r.Target == "-j DROP" })
	want := exampleUpdate()
	want.Replace[0].Rules = want.Replace[0].Rules[1:]
	want.Insert = map[string][]Rule{"WEAVE-NPC-I-a": want.Insert["WEAVE-NPC-I-a"][1:]}
	want.Edits[1].Hunks[0].Insert = want.Edits[1].Hunks[0].Insert[:1]
	want.Edits[1].Hunks[1].Insert = nil
	want.Edits[2].Hunks = []Hunk{}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tails and jumps stay, rules go (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(exampleUpdate(), u); diff != "" {
		t.Errorf("the original has changed (-want +got):\n%s", diff)
	}
}
