package ipblock

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"pgregory.net/rapid"
)

// read reads blocks such as "10.0.0.0/8-10.1.0.0/16-10.2.0.0/16".
func read(t testing.TB, texts ...string) (blocks []Block) {
	t.Helper()
	for _, text := range texts {
		parts := strings.Split(text, "-")
		b, err := Compile(&networkingv1.IPBlock{CIDR: parts[0], Except: parts[1:]})
		if err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, b)
	}
	return blocks
}

func TestMergedEntries(t *testing.T) {
	for name, c := range map[string]struct{ blocks, want string }{
		"one":                        {"10.0.0.0/8", "10.0.0.0/8"},
		"one with an except":         {"10.0.0.0/8-10.1.0.0/16", "10.0.0.0/8 !10.1.0.0/16"},
		"an except within another":   {"10.0.0.0/8-10.1.0.0/16-10.1.1.0/24", "10.0.0.0/8 !10.1.0.0/16"},
		"apart":                      {"10.0.0.0/8 192.0.2.0/24", "10.0.0.0/8 192.0.2.0/24"},
		"twice":                      {"10.0.0.0/8 10.0.0.0/8", "10.0.0.0/8"},
		"within":                     {"10.0.0.0/8 10.1.0.0/16", "10.0.0.0/8"},
		"within an except":           {"10.0.0.0/8-10.1.0.0/16 10.1.2.0/24", "10.0.0.0/8 !10.1.0.0/16 10.1.2.0/24"},
		"an except that is covered":  {"10.0.0.0/8-10.1.0.0/16 10.1.0.0/16", "10.0.0.0/8"},
		"covered by a larger one":    {"10.1.0.0/16-10.1.2.0/24 10.0.0.0/8", "10.0.0.0/8"},
		"excepted by both":           {"10.0.0.0/8-10.1.0.0/16 10.0.0.0/8-10.1.2.0/24", "10.0.0.0/8 !10.1.2.0/24"},
		"equal excepts":              {"10.1.0.0/16-10.1.2.0/24 10.0.0.0/8-10.1.2.0/24", "10.0.0.0/8 !10.1.2.0/24"},
		"all of it excepted":         {"10.0.0.0/8-10.0.0.0/8", ""},
		"everything":                 {"0.0.0.0/0", "0.0.0.0/1 128.0.0.0/1"},
		"everything but a half":      {"0.0.0.0/0-128.0.0.0/1", "0.0.0.0/1 !128.0.0.0/1"},
		"everything but the first":   {"0.0.0.0/0-0.0.0.0/1", "!0.0.0.0/1 128.0.0.0/1"},
		"everything and nothing":     {"0.0.0.0/0-0.0.0.0/0 10.0.0.0/8", "10.0.0.0/8"},
		"everything by halves":       {"0.0.0.0/0-0.0.0.0/1 0.0.0.0/1", "0.0.0.0/1 128.0.0.0/1"},
		"everything of IPv6 but ...": {"::/0-fc00::/7 fd00::/64", "::/1 8000::/1 !fc00::/7 fd00::/64"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, e := range Of(read(t, strings.Fields(c.blocks)...)).Entries {
				got = append(got, e.String())
			}
			if want := strings.Fields(c.want); !slices.Equal(got, want) {
				t.Errorf("merged to %v, not %v", got, want)
			}
		})
	}
}

// matches reports what a hash:net set makes of an address.
func matches(entries []Entry, a netip.Addr) bool {
	longest, matched := -1, false
	for _, e := range entries {
		if e.Contains(a) && e.Bits() > longest {
			longest, matched = e.Bits(), !e.NoMatch
		}
	}
	return matched
}

// covers reports what the API makes of it.
func (b Block) covers(a netip.Addr) bool {
	return b.CIDR.Contains(a) && !slices.ContainsFunc(b.Except, func(e netip.Prefix) bool { return e.Contains(a) })
}

// TestMergedMeansTheSame as the blocks one by one, for random blocks in a small space, where they meet often, and in
// each family.
func TestMergedMeansTheSame(t *testing.T) {
	for _, is6 := range []bool{false, true} {
		t.Run(fmt.Sprint("IPv6=", is6), func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { checkMerged(t, is6) }) })
	}
}

func checkMerged(t *rapid.T, is6 bool) {
	// The first two bits and the last four are drawn: all others are zero.
	addr := func(bits int) netip.Addr {
		raw := make([]byte, 4)
		if is6 {
			raw = make([]byte, 16)
		}
		raw[0], raw[len(raw)-1] = byte(bits>>4<<6), byte(bits&15)
		a, _ := netip.AddrFromSlice(raw)
		return a
	}
	size := addr(0).BitLen()
	lengths := []int{0, 1, 2, 8, size - 4, size - 3, size - 2, size - 1, size}
	prefix := func(within netip.Prefix) netip.Prefix {
		for {
			bits := rapid.SampledFrom(lengths).Draw(t, "bits")
			p := netip.PrefixFrom(addr(rapid.IntRange(0, 63).Draw(t, "address")), bits).Masked()
			if !within.IsValid() || contains(within, p) {
				return p
			}
			if bits >= within.Bits() {
				return within
			}
		}
	}
	var blocks []Block
	prefixes := 0
	for range rapid.IntRange(1, 6).Draw(t, "blocks") {
		b := Block{CIDR: prefix(netip.Prefix{})}
		for range rapid.IntRange(0, 3).Draw(t, "excepts") {
			b.Except = append(b.Except, prefix(b.CIDR))
		}
		slices.SortFunc(b.Except, netip.Prefix.Compare)
		b.Except = slices.Compact(b.Except)
		blocks = append(blocks, b)
		prefixes += 1 + len(b.Except)
	}
	u := Of(blocks)
	for i := range 64 {
		a := addr(i)
		want := slices.ContainsFunc(blocks, func(b Block) bool { return b.covers(a) })
		if got := matches(u.Entries, a); got != want {
			t.Fatalf("%s of %v: %v is matched = %t", u.Entries, blocks, a, got)
		}
		if got := u.Contains(a); got != want {
			t.Fatalf("%s of %v: %v is contained = %t", u.Entries, blocks, a, got)
		}
	}
	if len(u.Entries) > prefixes+1 {
		t.Errorf("%d prefixes came to %d entries", prefixes, len(u.Entries))
	}
	seen := map[netip.Prefix]bool{}
	for _, e := range u.Entries {
		if seen[e.Prefix] || e.Bits() == 0 || e.Masked() != e.Prefix {
			t.Errorf("%s cannot be an entry of %s", e, u.Entries)
		}
		seen[e.Prefix] = true
	}
	slices.Reverse(blocks)
	if again := Of(blocks); !slices.Equal(again.Entries, u.Entries) {
		t.Errorf("in another order they merge to %s, not %s", again.Entries, u.Entries)
	}
}

func TestKeysDistinguishUnions(t *testing.T) {
	keys := map[string]string{}
	for _, texts := range []string{"10.0.0.0/8", "10.0.0.0/8-10.1.0.0/16", "10.0.0.0/8-10.1.0.0/16-10.2.0.0/16", "10.0.0.0/8 192.0.2.0/24",
		"10.0.0.0/8-10.1.0.0/16 192.0.2.0/24", "10.0.0.0/8-10.0.0.0/8 10.0.0.0/8-10.0.0.0/8", "::/0-::/0 ::/0-::/0"} {
		key := strings.Join(Of(read(t, strings.Fields(texts)...)).Key(), ",")
		if keys[key] != "" {
			t.Errorf("%s and %s have one key", keys[key], texts)
		}
		keys[key] = texts
	}
	if a, b := Of(read(t, "10.0.0.0/8", "192.0.2.0/24")), Of(read(t, "192.0.2.0/24", "10.1.0.0/16", "10.0.0.0/8")); !slices.Equal(a.Key(), b.Key()) {
		t.Error("what means the same is two sets")
	}
}

func BenchmarkMerge(b *testing.B) {
	var texts []string
	for i := range 7500 {
		texts = append(texts, fmt.Sprintf("10.%d.%d.0/24-10.%d.%d.%d/32", i>>8, i&255, i>>8, i&255, i%250))
	}
	blocks := read(b, texts...)
	for b.Loop() {
		if n := len(Of(blocks).Entries); n != 15_000 {
			b.Fatal(n)
		}
	}
}

func TestCompileErrors(t *testing.T) {
	for want, b := range map[string]networkingv1.IPBlock{
		`cidr: "10.0.0.0" is no CIDR`:                     {CIDR: "10.0.0.0"},
		"IPv4 address in the form of an IPv6 one":         {CIDR: "::ffff:10.0.0.0/104"},
		`except[1]: "x" is no CIDR`:                       {CIDR: "10.0.0.0/8", Except: []string{"10.1.0.0/16", "x"}},
		"except[0]: 11.0.0.0/16 is not within 10.0.0.0/8": {CIDR: "10.0.0.0/8", Except: []string{"11.0.0.0/16"}},
		"except[0]: 0.0.0.0/0 is not within 10.0.0.0/8":   {CIDR: "10.0.0.0/8", Except: []string{"0.0.0.0/0"}},
		"except[0]: fd00::/8 is not within 10.0.0.0/8":    {CIDR: "10.0.0.0/8", Except: []string{"fd00::/8"}},
	} {
		if _, err := Compile(&b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", b, err, want)
		}
	}
	block, err := Compile(&networkingv1.IPBlock{CIDR: "10.1.2.3/8", Except: []string{"010.001.0.0/16"}})
	if text := fmt.Sprint(block, err); text != "{10.0.0.0/8 [10.1.0.0/16]} <nil>" {
		t.Errorf("with host bits and leading zeros: %s", text)
	}
}

func TestTexts(t *testing.T) {
	for blocks, want := range map[string]string{
		"10.0.0.0/8":                             "10.0.0.0/8: 10.0.0.0/8",
		"10.0.0.0/8-10.1.0.0/16-10.2.0.0/16":     "10.0.0.0/8 except 10.1.0.0/16 10.2.0.0/16: 10.0.0.0/8 10.0.0.0/8 10.0.0.0/8",
		"fd00::/8 2001:db8::/32":                 "2 address blocks: 2001:db8::/32 fd00::/8",
		"10.0.0.0/8 192.0.2.0/24 192.0.2.128/25": "3 address blocks: 10.0.0.0/8 192.0.2.0/24",
		"10.0.0.0/8-10.1.0.0/16 192.0.2.0/24":    "2 address blocks: 10.0.0.0/8 10.1.0.0/16 192.0.2.0/24",
		"::/0":                                   "::/0: ::/0 ::/0",
	} {
		u := Of(read(t, strings.Fields(blocks)...))
		got := u.String() + ":"
		for _, e := range u.Entries {
			got += " " + u.About(e)
		}
		if got != want || u.Is6() != strings.Contains(blocks, ":") {
			t.Errorf("%s is %q, IPv6: %t; want %q", blocks, got, u.Is6(), want)
		}
	}
}
