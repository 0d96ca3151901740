package ipset

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// reply is a message of a listing as the kernel sends it. A set without a type is the next part of the one before.
func reply(set Set, elements ...Element) []byte {
	var e encoder
	start := e.message(nl.IPSET_CMD_LIST, unix.NLM_F_MULTI, 1)
	e.str(nl.IPSET_ATTR_SETNAME, set.Name)
	if set.Type != "" {
		e.str(nl.IPSET_ATTR_TYPENAME, string(set.Type))
		e.u8(nl.IPSET_ATTR_FAMILY, uint8(set.Family))
		e.u8(nl.IPSET_ATTR_REVISION, 2)
		data := e.nest(nl.IPSET_ATTR_DATA)
		e.u32(nl.IPSET_ATTR_MAXELEM, set.limit())
		e.u32(nl.IPSET_ATTR_ELEMENTS, 1<<31)
		e.u32(nl.IPSET_ATTR_CADT_FLAGS, nl.IPSET_FLAG_WITH_COMMENT)
		e.endNest(data)
	}
	batch := e.nest(nl.IPSET_ATTR_ADT)
	for i := range elements {
		e.element(Add, &elements[i], 0)
	}
	e.endNest(batch)
	e.end(start)
	return e.buf
}

// refusal is an error that names a line.
func refusal(code int32, line uint32) []byte {
	var e encoder
	start := e.message(nl.IPSET_CMD_ADD, 0, 1)
	binary.NativeEndian.PutUint16(e.buf[4:], unix.NLMSG_ERROR)
	e.buf = binary.NativeEndian.AppendUint32(e.buf[:headerLen], uint32(-code))
	inner := e.message(nl.IPSET_CMD_ADD, 0, 1)
	e.str(nl.IPSET_ATTR_SETNAME, "x")
	e.line(line)
	e.end(inner)
	e.end(start)
	return e.buf
}

func packets(t testing.TB, buf []byte) []packet {
	t.Helper()
	var all []packet
	for len(buf) > 0 {
		p, rest, err := nextPacket(buf)
		if err != nil {
			t.Fatal(err)
		}
		all, buf = append(all, p), rest
	}
	return all
}

func TestPartsOfASetAreMerged(t *testing.T) {
	set := Set{Name: "weave-x", Type: HashIP, Family: IPv4}
	elements := addresses(5)
	foreign := Set{Name: "foreign", Type: HashIP, Family: IPv4}
	buf := reply(foreign, elements...)
	buf = append(buf, reply(Set{Name: "foreign"}, elements...)...)
	buf = append(buf, reply(set, elements[:2]...)...)
	buf = append(buf, reply(Set{Name: "weave-x"}, elements[2:4]...)...)
	buf = append(buf, reply(Set{Name: "weave-x"}, elements[4:]...)...)
	sets := listing{prefix: "weave-"}
	for _, p := range packets(t, buf) {
		if err := sets.add(p.body); err != nil {
			t.Fatal(err)
		}
	}
	if len(sets.sets) != 1 || sets.sets[0].Set != set {
		t.Fatalf("sets %+v", sets.sets)
	}
	wantElements(t, sets.sets[0].Members, elements)

	orphan := packets(t, reply(Set{Name: "weave-y"}, elements...))
	if err := sets.add(orphan[0].body); err == nil || !strings.Contains(err.Error(), "without its header") {
		t.Errorf("part of a set without header: %v", err)
	}
}

func TestFailedLine(t *testing.T) {
	p := packets(t, refusal(nl.IPSET_ERR_BUSY, 7))[0]
	if code, err := p.code(); code != nl.IPSET_ERR_BUSY || err != nil {
		t.Errorf("code %d, %v", code, err)
	}
	if line := p.failedLine(); line != 7 {
		t.Errorf("line %d, want 7", line)
	}
	p.flags |= unix.NLM_F_CAPPED
	if line := p.failedLine(); line != 0 {
		t.Errorf("line %d of a capped answer, want 0", line)
	}
}

func TestShortMessagesAreErrors(t *testing.T) {
	whole := reply(Set{Name: "x", Type: HashIP, Family: IPv4}, addresses(2)...)
	body := whole[headerLen:]
	// Cut anywhere but between two attributes or in their padding.
	between := map[int]bool{nfgenLen: true}
	for a := (attrs{rest: body[nfgenLen:]}); ; {
		start := len(body) - len(a.rest)
		if !a.next() {
			break
		}
		for n := start + attrLen + len(a.value); n <= len(body)-len(a.rest); n++ {
			between[n] = true
		}
	}
	for n := range body {
		sets := listing{}
		if err := sets.add(body[:n]); !between[n] && !errors.Is(err, errShort) {
			t.Errorf("%d of %d bytes: %v", n, len(body), err)
		}
	}
	for n := range nfgenLen + attrLen {
		if _, err := (packet{body: body[:n]}).slot(); !errors.Is(err, errShort) {
			t.Errorf("a slot in %d bytes: %v", n, err)
		}
	}
	for n := range whole[1:] {
		if _, _, err := nextPacket(whole[:n]); !errors.Is(err, errShort) {
			t.Errorf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
}

func TestHashSize(t *testing.T) {
	tests := []struct {
		elements int
		limit    uint32
		want     uint32
	}{
		{0, maxElements, 64}, {256, maxElements, 64}, {257, maxElements, 128}, {70000, maxElements, 32768},
		{70000, 10, 64}, {1 << 30, maxElements, maxHashSize},
	}
	for _, tt := range tests {
		if got := hashSize(tt.elements, tt.limit); got != tt.want {
			t.Errorf("hashSize(%d, %d) is %d, want %d", tt.elements, tt.limit, got, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, op := range samples() {
		f.Add(reply(op.Set, op.Elements...))
		f.Add(append(reply(op.Set, op.Elements...), reply(Set{Name: op.Set.Name}, op.Elements...)...))
	}
	f.Add(refusal(nl.IPSET_ERR_BUSY, 1))
	f.Add(refusal(0, 0))
	f.Fuzz(func(t *testing.T, buf []byte) {
		size := len(buf)
		sets := listing{}
		for len(buf) > 0 {
			p, rest, err := nextPacket(buf)
			if err != nil {
				break
			}
			if len(rest) >= len(buf) {
				t.Fatal("no progress")
			}
			buf = rest
			_, _ = p.code()
			_ = p.failedLine()
			_ = sets.add(p.body)
		}
		members := 0
		for _, set := range sets.sets {
			members += cap(set.Members)
			text := Op{Kind: Create, Set: set.Set, Elements: set.Members}.String()
			if lines := strings.Count(text, "\n"); lines != len(set.Members) {
				t.Errorf("%d lines for %d members: %q", lines, len(set.Members), text)
			}
		}
		if members > size {
			t.Errorf("%d members out of %d bytes", members, size)
		}
	})
}
