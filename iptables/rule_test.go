package iptables

import (
	"strings"
	"testing"
)

func TestCommentIsSanitised(t *testing.T) {
	long := strings.Repeat("x", 300)
	tests := map[string]struct {
		parts []string
		want  string
	}{
		"plain": {[]string{"default/web", "allow a=b: 10.0.0.0/8 fe80::1 x_y"},
			"default/web allow a=b: 10.0.0.0/8 fe80::1 x_y"},
		"empty":            {nil, ""},
		"quotes":           {[]string{`a"b'c\d`}, "a?b?c?d"},
		"line break":       {[]string{"a\n-A FORWARD -j ACCEPT"}, "a?-A FORWARD -j ACCEPT"},
		"shell":            {[]string{"$(reboot);|&`"}, "??reboot?????"},
		"one per rune":     {[]string{"grüße"}, "gr??e"},
		"broken encoding":  {[]string{"a\xff\x00b"}, "a??b"},
		"blanks at an end": {[]string{" a "}, "a"},
		"long":             {[]string{long}, long[:187] + ".."},
		"just fits":        {[]string{long[:189]}, long[:189]},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := Comment(tt.parts...)
			if got != tt.want {
				t.Errorf("Comment(%q) = %q, want %q", tt.parts, got, tt.want)
			}
			if again := Comment(got); again != got {
				t.Errorf("Comment(%q) = %q, it must leave its own output alone", got, again)
			}
		})
	}
}

func TestRuleString(t *testing.T) {
	tests := map[string]struct {
		rule Rule
		want string
	}{
		"all parts": {
			Rule{Match: "-p tcp -m tcp --dport 80", Target: "-j ACCEPT", Comment: `default/"web"`},
			`-p tcp -m tcp --dport 80 -m comment --comment "jwb2ineoci default/?web?" -j ACCEPT`,
		},
		"no target":   {Rule{Match: "-p tcp"}, `-p tcp -m comment --comment "elqm4m33vt"`},
		"only target": {Rule{Target: "-j DROP"}, `-m comment --comment "7znrtu5sci" -j DROP`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.rule.String(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestRuleIDDistinguishesFields(t *testing.T) {
	rules := []Rule{
		{},
		{Match: "ab"}, {Target: "ab"}, {Comment: "ab"},
		{Match: "a", Target: "b"}, {Match: "a", Comment: "b"}, {Target: "a", Comment: "b"},
		{Comment: `a"`}, {Comment: `a'`},
	}
	seen := map[string]Rule{}
	for _, r := range rules {
		id := r.ID()
		if other, ok := seen[id]; ok {
			t.Errorf("%+v and %+v have the same id %s", r, other, id)
		}
		seen[id] = r
		if commentID(id) != id || commentID(id+" x") != id {
			t.Errorf("id %q is not read back", id)
		}
	}
}

func TestCommentIDWantsAnID(t *testing.T) {
	for _, comment := range []string{"", "abc", "abcdefghij2", "ABCDEFGHIJ", "abcdefghi1", " abcdefghij"} {
		if id := commentID(comment); id != "" {
			t.Errorf("commentID(%q) = %q, want none", comment, id)
		}
	}
}

func TestFoundKeepsARuleAsPrinted(t *testing.T) {
	const match = "-A WEAVE-NPC -p tcp -m tcp --dport 80 -m comment --comment "
	for printed, target := range map[string]string{
		match + `"aaaaaaaaaa web" -j ACCEPT`:                  "-j ACCEPT",
		match + `aaaaaaaaaa -g WEAVE-NPC-DROP`:                "-g WEAVE-NPC-DROP",
		match + `aaaaaaaaaa`:                                  "",
		match + `"aaaaaaaaaa x" -j NFLOG --nflog-group 86`:    "", // the target's options follow it
		`-A WEAVE-NPC -m comment --comment "aaaaaaaaaa -j x"`: "",
	} {
		r, ok := Found(printed)
		if !ok || "-A WEAVE-NPC "+r.String() != printed || r.Target != target || r.ID() != "aaaaaaaaaa" {
			t.Errorf("Found(%q) is %+v, %t; its text is %q, its id %s", printed, r, ok, r, r.ID())
		}
	}
	for _, printed := range []string{"", "-A WEAVE-NPC -j ACCEPT", match + `"aaaa" -j ACCEPT`, match + `"aaaaaaaaaa -j ACCEPT`} {
		if r, ok := Found(printed); ok {
			t.Errorf("Found(%q) is %+v, want none: it has no id", printed, r)
		}
	}
}

func TestSets(t *testing.T) {
	for text, want := range map[string]string{
		"-p tcp": "",
		"-m set --match-set weave-a src -m set ! --match-set weave-b dst,dst": "weave-a weave-b",
		"-m set --match-set":                               "",
		`-m comment --comment "--match-set weave-c src"`:   "",
		`-m set --match-set weave-a src --comment "broken`: "",
	} {
		for _, r := range []Rule{{Match: text}, {Printed: text}} {
			if got := strings.Join(r.Sets(), " "); got != want {
				t.Errorf("%q names the sets %q, want %q", text, got, want)
			}
		}
	}
}
