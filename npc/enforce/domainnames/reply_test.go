package domainnames

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// answer makes a message in words: "a.x" is the question, "a.x CNAME b.x 30", "b.x A 10.0.0.1 60", "b.x HTTPS 1 .
// 10.0.0.1,fd00::1 60" and "b.x HTTPS 0 c.x - 60" are answers.
func answer(t testing.TB, question string, records ...string) []byte {
	t.Helper()
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 1, Response: true},
		Questions: []dnsmessage.Question{{Name: dnsName(question), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	for _, r := range records {
		m.Answers = append(m.Answers, resource(t, r))
	}
	return pack(t, m)
}

func pack(t testing.TB, m dnsmessage.Message) []byte {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func dnsName(s string) dnsmessage.Name {
	return dnsmessage.MustNewName(strings.TrimSuffix(s, ".") + ".")
}

func resource(t testing.TB, text string) dnsmessage.Resource {
	t.Helper()
	f := strings.Fields(text)
	r := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: dnsName(f[0]), Class: dnsmessage.ClassINET}}
	if _, err := fmt.Sscan(f[len(f)-1], &r.Header.TTL); err != nil {
		t.Fatal(text, err)
	}
	switch f[1] {
	case "A":
		r.Body = &dnsmessage.AResource{A: netip.MustParseAddr(f[2]).As4()}
	case "AAAA":
		r.Body = &dnsmessage.AAAAResource{AAAA: netip.MustParseAddr(f[2]).As16()}
	case "CNAME":
		r.Body = &dnsmessage.CNAMEResource{CNAME: dnsName(f[2])}
	case "TXT":
		r.Body = &dnsmessage.TXTResource{TXT: []string{f[2]}}
	case "HTTPS", "SVCB":
		s := dnsmessage.SVCBResource{Target: dnsName(f[3])}
		if _, err := fmt.Sscan(f[2], &s.Priority); err != nil {
			t.Fatal(text, err)
		}
		hints(&s, f[4])
		r.Body = &s
		if f[1] == "HTTPS" {
			r.Body = &dnsmessage.HTTPSResource{SVCBResource: s}
		}
	}
	return r
}

func hints(s *dnsmessage.SVCBResource, text string) {
	var four, six []byte
	for _, h := range strings.Split(text, ",") {
		if a, err := netip.ParseAddr(h); err == nil && a.Is4() {
			four = append(four, a.AsSlice()...)
		} else if err == nil {
			six = append(six, a.AsSlice()...)
		}
	}
	if four != nil {
		s.SetParam(dnsmessage.SVCParamIPv4Hint, four)
	}
	if six != nil {
		s.SetParam(dnsmessage.SVCParamIPv6Hint, six)
	}
}

// said returns what a message says: "name address seconds", sorted.
func said(message []byte, domain string) []string {
	r, ok := parseReply(message)
	if !ok {
		return []string{"nothing"}
	}
	var out []string
	for link, name := range r.names(domain) {
		for _, f := range r.found {
			if f.link >= link {
				out = append(out, fmt.Sprintf("%s %s %d", name, f.addr, f.ttl/time.Second))
			}
		}
	}
	slices.Sort(out)
	return out
}

func TestS111_WhatAnAnswerSays(t *testing.T) {
	tests := []struct {
		name, question string
		records, want  []string
	}{
		{"addresses", "Api.Example.COM", []string{"API.example.com A 10.0.0.1 60", "api.example.com AAAA fd00::1 30"},
			[]string{"api.example.com 10.0.0.1 60", "api.example.com fd00::1 30"}},
		{"no addresses", "a.x", []string{"a.x TXT text 60"}, nil},
		{"chain in any order", "a.x", []string{"c.x A 10.0.0.1 60", "b.x CNAME c.x 20", "a.x CNAME b.x 40"},
			[]string{"a.x 10.0.0.1 20"}},
		{"least TTL", "a.x", []string{"a.x CNAME b.x 40", "b.x A 10.0.0.1 3"}, []string{"a.x 10.0.0.1 3"}},
		{"longest TTL", "a.x", []string{"a.x A 10.0.0.1 86400"}, []string{"a.x 10.0.0.1 3600"}},
		{"negative TTL", "a.x", []string{"a.x A 10.0.0.1 2147483648"}, []string{"a.x 10.0.0.1 0"}},
		{"records of others", "a.x", []string{"b.x A 10.0.0.1 60", "c.x CNAME a.x 60"}, nil},
		{"loop", "a.x", []string{"a.x CNAME b.x 60", "b.x CNAME a.x 60", "b.x A 10.0.0.1 60"}, []string{"a.x 10.0.0.1 60"}},
		{"itself", "a.x", []string{"a.x CNAME a.x 60", "a.x A 10.0.0.1 60"}, []string{"a.x 10.0.0.1 60"}},
		{"hints", "a.x", []string{"a.x HTTPS 1 . 10.0.0.1,10.0.0.2,fd00::1 60"},
			[]string{"a.x 10.0.0.1 60", "a.x 10.0.0.2 60", "a.x fd00::1 60"}},
		{"hints of SVCB behind an alias", "a.x", []string{"a.x CNAME b.x 60", "b.x SVCB 2 svc.x 10.0.0.1 50"},
			[]string{"a.x 10.0.0.1 50"}},
		{"alias mode", "a.x", []string{"a.x HTTPS 0 b.x - 30", "b.x HTTPS 1 . 10.0.0.1 60", "b.x A 10.0.0.2 60"},
			[]string{"a.x 10.0.0.1 30", "a.x 10.0.0.2 30"}},
		{"no hints in alias mode", "a.x", []string{"a.x HTTPS 0 . 10.0.0.1 30"}, nil},
		{"CNAME before alias mode", "a.x", []string{"a.x HTTPS 0 b.x - 30", "a.x CNAME c.x 40", "c.x A 10.0.0.1 60"},
			[]string{"a.x 10.0.0.1 40"}},
		{"what no set holds", "a.x", []string{"a.x A 0.0.0.0 60", "a.x AAAA :: 60", "a.x AAAA ::ffff:10.0.0.1 60"}, nil},
		{"the cluster's domain", "api.x.shop.svc.cluster.local", []string{"api.x.shop.svc.cluster.local CNAME api.x 5",
			"api.x CNAME cdn.y 9", "cdn.y A 10.0.0.1 60"}, []string{"api.x 10.0.0.1 5",
			"api.x.shop.svc.cluster.local 10.0.0.1 5"}},
		{"a Service's name outside", "a.b.b.svc.cluster.local",
			[]string{"a.b.b.svc.cluster.local CNAME a.b.svc.cluster.local 5", "a.b.svc.cluster.local CNAME api.x 9",
				"api.x A 10.0.0.1 60"},
			[]string{"a.b.b.svc.cluster.local 10.0.0.1 5", "a.b.svc.cluster.local 10.0.0.1 5", "api.x 10.0.0.1 5"}},
		{"another domain", "api.x.cluster.local.evil", []string{"api.x.cluster.local.evil CNAME api.x 5",
			"api.x A 10.0.0.1 60"}, []string{"api.x.cluster.local.evil 10.0.0.1 5"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := said(answer(t, tt.question, tt.records...), "cluster.local"); !slices.Equal(got, tt.want) {
				t.Errorf("says %q, not %q", got, tt.want)
			}
		})
	}
}

// TestS110_WhatIsNoAnswer says nothing, nor do other sections.
func TestS110_WhatIsNoAnswer(t *testing.T) {
	good := dnsmessage.Message{Header: dnsmessage.Header{Response: true},
		Questions: []dnsmessage.Question{{Name: dnsName("a.x"), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
		Answers:   []dnsmessage.Resource{resource(t, "a.x A 10.0.0.1 60")}}
	if got := said(pack(t, good), ""); len(got) != 1 || got[0] == "nothing" {
		t.Fatal(got)
	}
	for what, change := range map[string]func(*dnsmessage.Message){
		"a question":      func(m *dnsmessage.Message) { m.Response = false },
		"an error":        func(m *dnsmessage.Message) { m.RCode = dnsmessage.RCodeNameError },
		"an update":       func(m *dnsmessage.Message) { m.OpCode = 5 },
		"no question":     func(m *dnsmessage.Message) { m.Questions = nil },
		"two questions":   func(m *dnsmessage.Message) { m.Questions = append(m.Questions, m.Questions[0]) },
		"another class":   func(m *dnsmessage.Message) { m.Questions[0].Class = dnsmessage.ClassCHAOS },
		"a foreign class": func(m *dnsmessage.Message) { m.Answers[0].Header.Class = dnsmessage.ClassCHAOS },
		"other sections": func(m *dnsmessage.Message) {
			m.Answers, m.Additionals, m.Authorities = nil, m.Answers, m.Answers
		},
	} {
		bad := good
		bad.Questions, bad.Answers = slices.Clone(good.Questions), slices.Clone(good.Answers)
		change(&bad)
		if got := said(pack(t, bad), ""); len(got) > 0 && got[0] != "nothing" {
			t.Errorf("%s says %q", what, got)
		}
	}
	whole := pack(t, good)
	for n := range whole {
		if got := said(whole[:n], ""); len(got) > 0 && got[0] != "nothing" {
			t.Errorf("%d bytes of %d say %q", n, len(whole), got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(answer(f, "a.x", "a.x CNAME b.x 60", "b.x A 10.0.0.1 60", "b.x HTTPS 1 . 10.0.0.1,fd00::1 60"))
	f.Add(answer(f, "a.x.svc.cluster.local", "a.x.svc.cluster.local CNAME a.x 60", "a.x AAAA fd00::1 60"))
	f.Fuzz(func(t *testing.T, message []byte) {
		r, ok := parseReply(message)
		if !ok {
			return
		}
		if len(r.chain) > len(message) || len(r.found) > len(message) {
			t.Fatalf("%d names and %d addresses in %d bytes", len(r.chain), len(r.found), len(message))
		}
		for _, found := range r.found {
			if found.link >= len(r.chain) || found.ttl < 0 || found.ttl > longestTTL {
				t.Fatalf("found %+v", found)
			}
			if raw := found.addr.AsSlice(); !strings.Contains(string(message), string(raw)) {
				t.Fatalf("%s is not in the message", found.addr)
			}
		}
		var whole dnsmessage.Message
		if whole.Unpack(message) == nil && len(r.found) > 0 && hostName(whole.Questions[0].Name) != r.chain[0] {
			t.Fatalf("%s is not the question %s", r.chain[0], whole.Questions[0].Name)
		}
	})
}

func TestS111_WhichListsHaveAName(t *testing.T) {
	lists := map[string]*followed{}
	for key, names := range map[string][]string{"exact": {"a.x"}, "wild": {"*.x"}, "both": {"*.x", "a.x", "*.a.x"}} {
		lists[key] = newFollowed(List{Key: key, Names: names})
	}
	x := newIndex(lists)
	for name, want := range map[string]string{
		"a.x": "both a.x, exact a.x, wild *.x", "b.x": "both *.x, wild *.x", "c.b.x": "both *.x, wild *.x",
		"b.a.x": "both *.a.x, wild *.x", "x": "", "ax": "", "": "", "a.x.y": "", "y\".x": "", ".x": "",
		strings.Repeat("a", 252) + ".x": "",
	} {
		var got []string
		for _, m := range x.match(name) {
			got = append(got, m.list.Key+" "+m.pattern)
		}
		slices.Sort(got)
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%q: %q, not %q", name, text, want)
		}
	}
}
