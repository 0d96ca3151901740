package conntrack

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAnEntryIsWhatForwardSees: the ends and the port that a rule there compares.
func TestAnEntryIsWhatForwardSees(t *testing.T) {
	for name, c := range map[string]struct {
		made
		source, destination string
		port                uint16
		liberal             bool
	}{
		"between pods": {made: made{source: "10.32.1.2", destination: "10.32.1.3", protocol: unix.IPPROTO_UDP, sourcePort: 4000, port: 53},
			source: "10.32.1.2", destination: "10.32.1.3", port: 53},
		"to a Service": {made: made{source: "10.32.1.2", destination: "10.96.0.1", replySource: "10.32.1.3", protocol: unix.IPPROTO_TCP,
			sourcePort: 4000, port: 80, replyPort: 8080, attrs: tcpInfo(3, 0, 0)}, source: "10.32.1.2", destination: "10.32.1.3", port: 8080},
		"masqueraded": {made: made{source: "10.32.1.2", destination: "198.51.100.7", replyDestination: "192.0.2.1", protocol: unix.IPPROTO_TCP,
			sourcePort: 4000, port: 443, attrs: tcpInfo(3, 0, 0)}, source: "10.32.1.2", destination: "198.51.100.7", port: 443},
		"of IPv6": {made: made{source: "fd32:1::2", destination: "fd32:1::3", protocol: unix.IPPROTO_SCTP, sourcePort: 4000, port: 3868},
			source: "fd32:1::2", destination: "fd32:1::3", port: 3868},
		"without ports": {made: made{source: "10.32.1.2", destination: "10.32.1.3", protocol: unix.IPPROTO_ICMP, sourcePort: 7},
			source: "10.32.1.2", destination: "10.32.1.3"},
		"with a key for a port": {made: made{source: "10.32.1.2", destination: "10.32.1.3", protocol: unix.IPPROTO_GRE, sourcePort: 1, port: 2},
			source: "10.32.1.2", destination: "10.32.1.3"},
		"in a zone": {made: made{source: "10.32.1.2", destination: "10.32.1.3", protocol: unix.IPPROTO_UDP, sourcePort: 4000, port: 53, zone: 7},
			source: "10.32.1.2", destination: "10.32.1.3", port: 53},
		"liberal": {made: made{source: "10.32.1.2", destination: "10.32.1.3", protocol: unix.IPPROTO_TCP, sourcePort: 4000, port: 80,
			attrs: tcpInfo(3, flagLiberal, 0)}, source: "10.32.1.2", destination: "10.32.1.3", port: 80, liberal: true},
		"liberal with replies": {made: made{source: "10.32.1.2", destination: "10.32.1.3", protocol: unix.IPPROTO_TCP, sourcePort: 4000, port: 80,
			attrs: tcpInfo(3, 0, flagLiberal)}, source: "10.32.1.2", destination: "10.32.1.3", port: 80, liberal: true},
	} {
		t.Run(name, func(t *testing.T) {
			family := uint8(unix.AF_INET)
			if netip.MustParseAddr(c.source).Is6() {
				family = unix.AF_INET6
			}
			table := open(t, family)
			create(t, table, c.made)
			all := list(t, table)
			if len(all) != 1 {
				t.Fatalf("there are %+v", all)
			}
			e := all[0]
			if e.Source.String() != c.source || e.Destination.String() != c.destination || e.Port != c.port || e.Protocol != c.protocol ||
				e.Liberal != c.liberal || e.Master != "" || e.Pinned() || e.Offloaded() || e.Mark != 0 {
				t.Errorf("it is %+v", e)
			}
			err := table.Entries(func(source, destination netip.Addr) bool {
				return source != e.Source || destination != e.Destination
			}, func(e Entry) { t.Errorf("not wanted is %+v", e) })
			if err != nil {
				t.Error(err)
			}
			for range 2 { // it is found by its name, also when it is terminated already
				if gone, err := table.Terminate(all, bit, true); gone != 0 || err != nil {
					t.Errorf("%d are gone, %v", gone, err)
				}
			}
			if e := list(t, table)[0]; e.Mark != bit || e.Pinned() != (e.Protocol == unix.IPPROTO_TCP) || e.expiry < 590 || e.expiry > 601 {
				t.Errorf("terminated it is %+v", e)
			}
		})
	}
}

// TestOnlyTheEntryOfItsZoneIsCut, of several with the same addresses and ports.
func TestOnlyTheEntryOfItsZoneIsCut(t *testing.T) {
	for _, m := range []made{
		{source: "10.32.1.2", destination: "10.32.1.3", protocol: unix.IPPROTO_UDP, sourcePort: 4000, port: 53},
		{source: "fd32:1::2", destination: "fd32:1::3", protocol: unix.IPPROTO_TCP, sourcePort: 4000, port: 53, attrs: tcpInfo(3, 0, 0)},
	} {
		family := uint8(unix.AF_INET)
		if m.protocol == unix.IPPROTO_TCP {
			family = unix.AF_INET6
		}
		table := open(t, family)
		for _, zone := range []uint16{0, 7, 8} {
			m.zone = zone
			create(t, table, m)
		}
		all := list(t, table)
		names := map[string]bool{}
		for i, e := range all {
			names[e.Name] = true
			if _, err := table.Terminate(all[i:i+1], bit<<i, true); err != nil {
				t.Fatal(err)
			}
		}
		for i, e := range list(t, table) {
			if e.Mark != bit<<i || e.Name != all[i].Name {
				t.Errorf("%+v, before %+v", e, all[i])
			}
		}
		if len(all) != 3 || len(names) != 3 {
			t.Errorf("there are %d with %d names", len(all), len(names))
		}
	}
}

// TestAZoneOfOneDirection: replies are in the zone of all, and by them the connection is found.
func TestAZoneOfOneDirection(t *testing.T) {
	n := newNetwork(t, unix.AF_INET, true)
	n.rule("-t", "raw", "-A", "PREROUTING", "-s", n.client.String(), "-j", "CT", "--zone-orig", "9")
	client, server := n.udp()
	table := n.table()
	n.cut(table)
	n.speak(client, server, false)
	n.speak(server, client, false)
	n.must(table.Restore([]Entry{n.only(table)}, bit))
	n.speak(server, client, true)
	n.speak(client, server, true)
}

// TestAnEntryNamesItsMaster, in the same zone.
func TestAnEntryNamesItsMaster(t *testing.T) {
	table := open(t, unix.AF_INET)
	for _, zone := range []uint16{0, 7} {
		control := made{source: "10.32.1.2", destination: "10.96.0.1", replySource: "10.32.1.3", replyPort: 2121, protocol: unix.IPPROTO_TCP,
			sourcePort: 4000, port: 21, zone: zone, attrs: tcpInfo(3, 0, 0)}
		master := tuple(attrMaster, netip.MustParseAddr(control.source), netip.MustParseAddr(control.destination), unix.IPPROTO_TCP, 4000, 21)
		data := made{source: "10.32.1.3", destination: "10.32.1.2", protocol: unix.IPPROTO_TCP, sourcePort: 20, port: 5000, zone: zone,
			attrs: append(tcpInfo(3, 0, 0), master...)}
		create(t, table, control, data)
	}
	names := map[string]uint16{}
	for _, e := range list(t, table) {
		if e.Master == "" {
			names[e.Name] = e.Port
		}
	}
	masters := map[string]bool{}
	for _, e := range list(t, table) {
		if e.Master == "" {
			continue
		}
		masters[e.Master] = true
		if names[e.Master] != 2121 || e.Port != 5000 {
			t.Errorf("%+v is of %d of %+v", e, names[e.Master], names)
		}
		if _, err := table.Terminate([]Entry{e}, bit, true); err != nil {
			t.Error(err)
		}
	}
	if len(names) != 2 || len(masters) != 2 {
		t.Errorf("there are %d masters, %d are named", len(names), len(masters))
	}
}

// TestWhatEndsBeforeItIsTerminated is counted, and not made again.
func TestWhatEndsBeforeItIsTerminated(t *testing.T) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		m := made{source: "10.32.1.2", destination: "10.32.1.3", protocol: unix.IPPROTO_TCP, sourcePort: 4000, attrs: tcpInfo(3, 0, 0), zone: 7}
		if family == unix.AF_INET6 {
			m.source, m.destination = "fd32:1::2", "fd32:1::3"
		}
		table := open(t, family)
		const many = 2*changedAtOnce + 3
		for m.port = 1; m.port <= many; m.port++ {
			create(t, table, m)
		}
		all := list(t, table)
		clearTable(t, table)
		m.port = 1
		create(t, table, m)
		if gone, err := table.Terminate(all, bit, true); gone != many-1 || err != nil {
			t.Errorf("%d are gone, %v", gone, err)
		}
		if left := list(t, table); len(left) != 1 {
			t.Errorf("left are %d", len(left))
		}
		if gone, err := table.Terminate(nil, bit, true); gone != 0 || err != nil {
			t.Errorf("of none, %d are gone, %v", gone, err)
		}
	}
}

// TestWhatChangesBeforeItIsTerminated by packets, by another program, or because another connection has its place.
func TestWhatChangesBeforeItIsTerminated(t *testing.T) {
	const confirmed = statusConfirmed
	service := made{source: "10.32.1.2", destination: "10.96.0.1", replySource: "10.32.1.3", replyPort: 8080, protocol: unix.IPPROTO_TCP,
		sourcePort: 4000, port: 80, attrs: tcpInfo(3, 0, 0)}
	elsewhere := service
	elsewhere.replySource = "10.32.1.4"
	answered := service
	answered.attrs = append(tcpInfo(3, 0, 0), appendNumber(nil, attrStatus, confirmed|statusReplied)...)
	for name, c := range map[string]struct {
		change func(t *testing.T, table *Table, e Entry)
		gone   int
		expiry uint32 // about
	}{
		"answered": {func(t *testing.T, table *Table, e Entry) {
			alter(t, table, e, appendNumber(nil, attrStatus, confirmed|statusReplied|statusAssured))
		}, 0, 600},
		"pinned": {func(t *testing.T, table *Table, e Entry) {
			alter(t, table, e, appendNumber(appendNumber(nil, attrExpiry, 300), attrStatus, confirmed|statusFixedEnd))
		}, 0, 300},
		"answered and pinned": {func(t *testing.T, table *Table, e Entry) {
			alter(t, table, e, appendNumber(appendNumber(nil, attrExpiry, 300), attrStatus, confirmed|statusReplied|statusFixedEnd))
		}, 0, 300},
		"to another pod": {func(t *testing.T, table *Table, _ Entry) {
			clearTable(t, table)
			create(t, table, elsewhere)
		}, 1, 600},
		"another that is answered": {func(t *testing.T, table *Table, e Entry) {
			// The kernel derives the id from the memory. Others take that of the first connection, unless the kernel
			// gives it out later.
			same := func(now Entry) bool { return now.identity == e.identity }
			for n := uint16(1); n < 100; n++ {
				clearTable(t, table)
				others := make([]made, n, n+1)
				for i := range others {
					others[i] = service
					others[i].sourcePort = uint16(i + 1)
				}
				create(t, table, append(others, answered)...)
				if !slices.ContainsFunc(list(t, table), same) {
					return
				}
			}
			t.Fatal("each connection gets the id of the first")
		}, 1, 600},
	} {
		t.Run(name, func(t *testing.T) {
			table := open(t, unix.AF_INET)
			create(t, table, service)
			before := list(t, table)
			c.change(t, table, before[0])
			gone, err := table.Terminate(before, bit, true)
			if gone != c.gone || err != nil {
				t.Errorf("%d are gone, %v", gone, err)
			}
			for _, e := range list(t, table) {
				if cut := e.Mark == bit; cut != (c.gone == 0) || cut != e.Pinned() || e.expiry > c.expiry+2 || e.expiry < c.expiry-10 {
					t.Errorf("it is %+v", e)
				}
			}
		})
	}
}

// TestOneThatCannotBeChanged: the others are changed, and an error is returned.
func TestOneThatCannotBeChanged(t *testing.T) {
	table := open(t, unix.AF_INET)
	create(t, table, made{source: "10.32.1.2", destination: "10.32.1.3", protocol: unix.IPPROTO_UDP, sourcePort: 4000, port: 53})
	bad := Entry{family: unix.AF_INET, identity: string(nest(tupleReply))}
	all := append([]Entry{bad}, list(t, table)...)
	if gone, err := table.Terminate(all, bit, true); gone != 0 || !errors.Is(err, unix.EINVAL) || list(t, table)[0].Mark != bit {
		t.Errorf("terminated: %d are gone, %v; %+v", gone, err, list(t, table))
	}
	if err := table.Restore(all, bit); !errors.Is(err, unix.EINVAL) || list(t, table)[0].Mark != 0 {
		t.Errorf("restored: %v; %+v", err, list(t, table))
	}
	table.change.close()
	if _, err := table.Terminate(all, bit, true); !errors.Is(err, unix.EBADF) {
		t.Errorf("terminated without a socket: %v", err)
	}
	if err := table.Restore(all, bit); !errors.Is(err, unix.EBADF) {
		t.Errorf("restored without a socket: %v", err)
	}
	if _, err := table.Refresh(all); !errors.Is(err, unix.EBADF) {
		t.Errorf("read without a socket: %v", err)
	}
	table.list.close()
	if _, err := table.Marked(bit); !errors.Is(err, unix.EBADF) {
		t.Errorf("listed without a socket: %v", err)
	}
}

// TestBothFamilies are listed, terminated and restored by one table.
func TestBothFamilies(t *testing.T) {
	table := open(t, unix.AF_UNSPEC)
	create(t, table, made{source: "10.32.1.2", destination: "10.32.1.3", protocol: unix.IPPROTO_UDP, sourcePort: 4000, port: 53})
	create(t, table, made{source: "fd32:1::2", destination: "fd32:1::3", protocol: unix.IPPROTO_UDP, sourcePort: 4000, port: 53})
	all := list(t, table)
	if len(all) != 2 {
		t.Fatalf("%d connections", len(all))
	}
	if gone, err := table.Terminate(all, bit, true); gone != 0 || err != nil {
		t.Errorf("%d are gone, %v", gone, err)
	}
	marked, err := table.Marked(bit)
	if err != nil || len(marked) != 2 {
		t.Errorf("%d are marked, %v", len(marked), err)
	}
	if err := table.Restore(marked, bit); err != nil {
		t.Error(err)
	}
	for _, e := range list(t, table) {
		if e.Mark != 0 {
			t.Errorf("%+v", e)
		}
	}
}
