package domainnames

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// rawAnswer returns an answer with one address, whose names are as they are in a message.
func rawAnswer(question, owner string) []byte {
	return []byte("\x00\x07\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00" + question + "\x00\x01\x00\x01" + owner +
		"\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x0a\x09\x00\x01")
}

// TestS110_NamesOfOthers has answers that look as if they were about a.x, or about names below d.
func TestS110_NamesOfOthers(t *testing.T) {
	a := func(question string, records ...string) []byte { return answer(t, question, records...) }
	sections := dnsmessage.Message{Header: dnsmessage.Header{Response: true},
		Questions:   []dnsmessage.Question{{Name: dnsName("c.x"), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
		Answers:     []dnsmessage.Resource{resource(t, "c.x CNAME a.x 60")},
		Authorities: []dnsmessage.Resource{resource(t, "a.x A 10.9.0.1 60")},
		Additionals: []dnsmessage.Resource{resource(t, "a.x A 10.9.0.1 60")}}
	for what, message := range map[string][]byte{
		"other sections":      pack(t, sections),
		"an alias":            a("c.x", "c.x CNAME a.x 60", "a.x A 10.9.0.1 60"),
		"an alias to it":      a("a.x", "c.x CNAME a.x 60", "c.x A 10.9.0.1 60"),
		"an alias mode to it": a("c.x", "c.x HTTPS 0 a.x - 60", "a.x HTTPS 1 . 10.9.0.1 60"),
		"an alias by autopath": a("c.y.svc.cluster.local", "c.y.svc.cluster.local CNAME c.y 60", "c.y CNAME a.x 60",
			"a.x A 10.9.0.1 60"),
		"the cluster's domain":  a("c.cluster.local.x", "c.cluster.local.x CNAME a.x 60", "a.x A 10.9.0.1 60"),
		"like that domain":      a("c.evilcluster.local", "c.evilcluster.local CNAME a.x 60", "a.x A 10.9.0.1 60"),
		"that domain itself":    a("cluster.local", "cluster.local CNAME a.x 60", "a.x A 10.9.0.1 60"),
		"above":                 a("a.x.evil", "a.x.evil A 10.9.0.1 60"),
		"the wildcard's domain": a("d", "d A 10.9.0.1 60"),
		"the wildcard":          a("*.d", "*.d A 10.9.0.1 60"),
		"a longer label":        a("ad", "ad A 10.9.0.1 60"),
		"a space":               rawAnswer("\x03b c\x01d\x00", "\xc0\x0c"),
		"a dot in a label":      rawAnswer("\x03a.x\x00", "\xc0\x0c"),
		"a dot below d":         rawAnswer("\x03b.c\x01d\x00", "\xc0\x0c"),
		"a dot of an owner":     rawAnswer("\x01a\x01x\x00", "\x03a.x\x00"),
		"a NUL":                 rawAnswer("\x02b\x00\x01d\x00", "\xc0\x0c"),
		"a label of a NUL":      rawAnswer("\x01b\x01d\x01\x00\x00", "\xc0\x0c"),
		"the root":              rawAnswer("\x00", "\xc0\x0c"),
		"a letter of more bits": rawAnswer("\x01\xe1\x01x\x00", "\xc0\x0c"),
		"a pointer to itself":   rawAnswer("\xc0\x0c", "\x01a\x01x\x00"),
		"a loop of the name":    rawAnswer("\x01b\x01d\xc0\x0c", "\xc0\x0c"),
		"a loop of the owner":   rawAnswer("\x01b\x01d\x00", "\x01b\xc0\x15"),
		"a pointer to the end":  rawAnswer("\x01b\x01d\x00", "\xc0\xff"),
		"a long label":          rawAnswer("\x40b\x01d\x00", "\xc0\x0c"),
	} {
		d := newDesk(t)
		d.take(ends()[0][1], message)
		d.wants(what, "one4", "", "one6", "", "two4", "")
		d.take(ends()[0][1], a("A.x", "a.X A 10.9.0.2 60"), a("B.d", "b.D A 10.9.0.3 60"))
		d.wants("after "+what, "one4", "10.9.0.2 a.x 720, 10.9.0.3 b.d 720")
	}
	good := rawAnswer("\x01b\x01d\x00", "\xc0\x0c")
	if r, ok := parseReply(good); !ok || len(r.found) != 1 || r.found[0].addr != netip.MustParseAddr("10.9.0.1") {
		t.Errorf("an answer in the same form says %+v", r)
	}
}

// TestS109_WhatCannotBeRead takes nothing from the rest of an answer, and gives no address.
func TestS109_WhatCannotBeRead(t *testing.T) {
	record := func(owner string, kind uint16, size int, data string) string {
		return owner + string([]byte{byte(kind >> 8), byte(kind), 0, 1, 0, 0, 0, 60, byte(size >> 8), byte(size)}) + data
	}
	const a, aaaa, cname, https = 1, 28, 5, 65
	first, last := record("\xc0\x0c", a, 4, "\x0a\x09\x00\x01"), record("\xc0\x0c", a, 4, "\x0a\x09\x00\x02")
	for what, c := range map[string]struct {
		bad   string
		count int
		want  string
	}{
		"nothing":            {"", 2, "10.9.0.1 10.9.0.2"},
		"an empty A":         {record("\xc0\x0c", a, 0, ""), 3, "10.9.0.1 10.9.0.2"},
		"an empty AAAA":      {record("\xc0\x0c", aaaa, 0, ""), 3, "10.9.0.1 10.9.0.2"},
		"a short A":          {record("\xc0\x0c", a, 3, "\x0a\x09\x00"), 3, "10.9.0.1 10.9.0.2"},
		"a long A":           {record("\xc0\x0c", a, 5, "\x0a\x09\x00\x03x"), 3, "10.9.0.1 10.9.0.2"},
		"an A of 16 bytes":   {record("\xc0\x0c", a, 16, "\x0a\x09\x00\x03123456789012"), 3, "10.9.0.1 10.9.0.2"},
		"an AAAA of 4 bytes": {record("\xc0\x0c", aaaa, 4, "\x0a\x09\x00\x03"), 3, "10.9.0.1 10.9.0.2"},
		"a dot in an alias":  {record("\x01b\x00", cname, 5, "\x03a.x\x00"), 3, "10.9.0.1 10.9.0.2"},
		"a dot in an owner":  {record("\x03a.x\x00", a, 4, "\x0a\x09\x00\x03"), 3, "10.9.0.1 10.9.0.2"},
		"keys in no order": {record("\xc0\x0c", https, 19, "\x00\x01\x00"+
			"\x00\x04\x00\x04\x0a\x09\x00\x03"+"\x00\x02\x00\x04name"), 3, "10.9.0.1 10.9.0.2"},
		"fewer records than there are to be": {"", 3, "10.9.0.1 10.9.0.2"},
		"an end in a record":                 {"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\xff\xff", 3, "10.9.0.1"},
		"a name without an end":              {"\xc0", 3, "10.9.0.1"},
	} {
		message := []byte("\x00\x07\x83\x80\x00\x01\x00\x00\x00\x00\x00\x00\x01b\x01d\x00\x00\x01\x00\x01" +
			first + c.bad + last)
		message[7] = byte(c.count)
		r, ok := parseReply(message)
		var got []string
		for _, f := range r.found {
			got = append(got, f.addr.String())
		}
		if !ok || strings.Join(got, " ") != c.want {
			t.Errorf("%s: %t, %q", what, ok, got)
		}
	}
}
