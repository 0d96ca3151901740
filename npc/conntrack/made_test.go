package conntrack

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/sandbox"
)

// made is a connection for a test to make.
type made struct {
	source, destination           string // of the original direction
	replySource, replyDestination string // if these are translated
	protocol                      uint8
	sourcePort, port, replyPort   uint16 // replyPort if it is translated
	zone                          uint16
	attrs                         []byte
}

// nest returns an attribute of attributes, or of a value.
func nest(kind uint16, parts ...[]byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, 0)
	b = binary.NativeEndian.AppendUint16(b, kind)
	for _, p := range parts {
		b = appendPadded(b, p)
	}
	binary.NativeEndian.PutUint16(b, uint16(len(b)))
	return b
}

// tuple returns a direction of a connection.
func tuple(kind uint16, source, destination netip.Addr, protocol uint8, from, to uint16) []byte {
	short := func(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }
	src, dst := uint16(ipSrc4), uint16(ipDst4)
	if source.Is6() {
		src, dst = ipSrc6, ipDst6
	}
	ports := nest(tupleProto, nest(protoNum, []byte{protocol}), nest(protoSrc, short(from)), nest(protoSrc+1, short(to)))
	if protocol == unix.IPPROTO_ICMP {
		reply := []byte{8}
		if kind == tupleReply {
			reply = []byte{0}
		}
		ports = nest(tupleProto, nest(protoNum, []byte{protocol}), nest(4, short(from)), nest(5, reply), nest(6, []byte{0}))
	}
	return nest(kind, nest(tupleIP, nest(src, source.AsSlice()), nest(dst, destination.AsSlice())), ports)
}

// put adds the message that makes a connection to a batch.
func (m made) put(table *Table, batch []byte) []byte {
	source, destination := netip.MustParseAddr(m.source), netip.MustParseAddr(m.destination)
	replySource, replyDestination, replyPort := destination, source, m.port
	if m.replySource != "" {
		replySource, replyPort = netip.MustParseAddr(m.replySource), m.replyPort
	}
	if m.replyDestination != "" {
		replyDestination = netip.MustParseAddr(m.replyDestination)
	}
	attrs := [][]byte{tuple(tupleOrig, source, destination, m.protocol, m.sourcePort, m.port),
		tuple(tupleReply, replySource, replyDestination, m.protocol, replyPort, m.sourcePort), appendNumber(nil, attrExpiry, 600)}
	if m.zone != 0 {
		attrs = append(attrs, nest(attrZone, binary.BigEndian.AppendUint16(nil, m.zone)))
	}
	const flags = unix.NLM_F_REQUEST | unix.NLM_F_ACK | unix.NLM_F_CREATE | unix.NLM_F_EXCL
	return table.change.message(batch, msgNew, flags, familyOf(source), append(attrs, m.attrs)...)
}

// create makes connections.
func create(t testing.TB, table *Table, all ...made) {
	t.Helper()
	for len(all) > 0 {
		k := min(len(all), changedAtOnce)
		var batch []byte
		for _, m := range all[:k] {
			batch = m.put(table, batch)
		}
		err := table.change.exchange(batch, k, func(i int, err error) {
			if err != nil {
				t.Fatalf("making %+v: %v", all[i], err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		all = all[k:]
	}
}

// alter changes a connection as another program does.
func alter(t testing.TB, table *Table, e Entry, attrs []byte) {
	t.Helper()
	message := table.change.message(nil, msgNew, unix.NLM_F_REQUEST|unix.NLM_F_ACK, table.family, append([]byte(e.identity), attrs...))
	err := table.change.exchange(message, 1, func(_ int, err error) {
		if err != nil {
			t.Fatal(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// String makes an entry legible in what tests print.
func (e Entry) String() string {
	return fmt.Sprintf("%s > %s:%d protocol %d state %d liberal=%t mark %#x status %#x, %d s left, name %x, master %x",
		e.Source, e.Destination, e.Port, e.Protocol, e.state, e.Liberal, e.Mark, e.status, e.expiry, e.Name, e.Master)
}

// open opens the table of a fresh namespace.
func open(t testing.TB, family uint8) *Table {
	t.Helper()
	sandbox.Thread(t)
	table, err := Open(family)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(table.Close)
	return table
}

// list returns all connections.
func list(t testing.TB, table *Table) (all []Entry) {
	t.Helper()
	err := table.Entries(func(_, _ netip.Addr) bool { return true }, func(e Entry) { all = append(all, e) })
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// clearTable deletes all connections.
func clearTable(t testing.TB, table *Table) {
	t.Helper()
	if _, err := table.Delete(func(*[4]netip.Addr) bool { return true }); err != nil {
		t.Fatal(err)
	}
}

// tcpInfo is what the kernel knows of a TCP connection.
func tcpInfo(state uint8, flags, replyFlags byte) []byte {
	return nest(attrProto, nest(infoTCP, nest(tcpState, []byte{state}),
		nest(tcpFlags, []byte{flags, flags}), nest(tcpFlags2, []byte{replyFlags, replyFlags})))
}
