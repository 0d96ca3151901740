package spelling

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// TestEscape shows what values have no more of once they are printed: commands for terminals and continuous integration.
func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		"shop/web → db: 5 %":                  "shop/web → db: 5 %",
		"a\nb\r\tc\x1b[2J\x7f\u009b31m\u202e": `a\nb\u000d` + "\t" + `c\u001b[2J\u007f\u009b31m\u202e`,
		"\x9b2J \xff\xc3":                     `\u009b2J \u00ff\u00c3`,
		"\U000e0001":                          `\udb40\udc01`,
		"::add-mask::x":                       `::\u0061dd-mask::x`,
		" \t::error file=a::b":                " \t" + `::\u0065rror file=a::b`,
		"\u00a0::error::b":                    `\u00a0::error::b`,
		"a\n::stop-commands::x":               `a\n::stop-commands::x`,
		"::1, ::/0, a::b, :::x":               "::1, ::/0, a::b, :::x",
		"a ##[add-mask]b ##vso[x]y # #[z]":    `a ##\u005badd-mask]b ##vso\u005bx]y # #[z]`,
		"a\x00b":                              `a\u0000b`,
	} {
		if got := Escape(text); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}

// TestLinesAreEscaped however they are divided between calls, and JSON has the same meaning then.
func TestLinesAreEscaped(t *testing.T) {
	const text = "::group::a\n  ::error::ö\x1b\u0085\n##[b]\n::ffff: ::1\n"
	const want = "::\\u0067roup::a\n  ::\\u0065rror::ö\\u001b\\u0085\n##\\u005bb]\n::\\u0066fff: ::1\n"
	for size := 1; size < 9; size++ {
		var b strings.Builder
		w := NewWriter(&b)
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			if wrote, err := w.Write([]byte(rest[:n])); wrote != n || err != nil {
				t.Fatal(wrote, err)
			}
			rest = rest[n:]
		}
		if b.String() != want {
			t.Errorf("by %d: %q", size, b.String())
		}
	}
	value := []string{"##[a]\x7f\u202e\U000e0001", "::b\n::c"}
	written, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	_, _ = NewWriter(&b).Write(written)
	var got []string
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil || got[0] != value[0] || got[1] != value[1] || strings.Contains(b.String(), "##[") {
		t.Errorf("%v, %q, %s", err, got, b.String())
	}
}

// BenchmarkWriter writes JSON, 4 KiB at a time.
func BenchmarkWriter(b *testing.B) {
	text := []byte(strings.Repeat(`    "from": {"namespace": "shop", "pod": "web-7d4-x"},`+"\n", 4096/52))
	w := NewWriter(io.Discard)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		_, _ = w.Write(text)
	}
}
