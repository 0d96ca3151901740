package conntrack

import (
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

const (
	// listTries bounds the listings of a table that changes while it is listed.
	listTries = 5
	// deletedAtOnce is the number of connections that are deleted with one send.
	deletedAtOnce = 64
)

// Table is the connection tracking of one family or of both, in the network namespace of the thread that opened it. One
// goroutine at a time may use it.
type Table struct {
	family       uint8 // unix.AF_INET, unix.AF_INET6, or unix.AF_UNSPEC for both
	list, change *conn
	batch, attrs []byte
	batched      int
}

// Open opens the table of a family, unix.AF_INET or unix.AF_INET6, or of both, unix.AF_UNSPEC: the kernel has one, and
// takes as long to list a family of it as to list both.
func Open(family uint8) (*Table, error) {
	t := &Table{family: family}
	for _, c := range []**conn{&t.list, &t.change} {
		var err error
		if *c, err = dial(0); err != nil {
			t.Close()
			return nil, err
		}
	}
	return t, nil
}

// Close closes the sockets.
func (t *Table) Close() {
	for _, c := range []*conn{t.list, t.change} {
		if c != nil {
			c.close()
		}
	}
}

// Delete deletes the connections that match reports, and returns their number. ends are the source and destination of
// the original direction and then those of the reply direction, which differ by address translation. Connections of the
// same addresses and ports that begin in the meantime stay.
func (t *Table) Delete(match func(ends *[4]netip.Addr) bool) (deleted int, err error) {
	err = untilWhole(func() error {
		n, err := t.deleteOnce(match)
		deleted += n
		return err
	})
	return deleted, errors.Wrap(err, "deleting connections")
}

// untilWhole repeats a listing that was interrupted, a few times.
func untilWhole(list func() error) (err error) {
	for range listTries {
		if err = list(); !errors.Is(err, errInterrupted) {
			break
		}
	}
	return err
}

func (t *Table) deleteOnce(match func(*[4]netip.Addr) bool) (deleted int, err error) {
	var ends [4]netip.Addr
	t.batch, t.batched = t.batch[:0], 0
	err = t.list.list(t.family, nil, func(attrs []byte) error {
		if !readEnds(attrs, &ends) || !match(&ends) {
			return nil
		}
		t.put(attrs, familyOf(ends[0]))
		deleted++
		if t.batched < deletedAtOnce {
			return nil
		}
		return t.flush()
	})
	if err == nil || errors.Is(err, errInterrupted) {
		if e := t.flush(); e != nil {
			err = e
		}
	}
	return deleted, err
}

// familyOf returns the family of an address; unix.AF_UNSPEC of none.
func familyOf(a netip.Addr) uint8 {
	switch {
	case a.Is4():
		return unix.AF_INET
	case a.Is6():
		return unix.AF_INET6
	}
	return unix.AF_UNSPEC
}

// readEnds reads the addresses of a connection from the two attributes that come first.
func readEnds(attrs []byte, ends *[4]netip.Addr) bool {
	found := 0
	for len(attrs) > 0 && found < 2 {
		kind, _, value, rest := attribute(attrs)
		switch kind {
		case tupleOrig:
			readTuple(value, ends[:2])
			found++
		case tupleReply:
			readTuple(value, ends[2:])
			found++
		}
		attrs = rest
	}
	return found == 2
}

func readTuple(tuple []byte, ends []netip.Addr) {
	ends[0], ends[1] = netip.Addr{}, netip.Addr{}
	for len(tuple) > 0 {
		kind, _, value, rest := attribute(tuple)
		if kind != tupleIP {
			tuple = rest
			continue
		}
		for len(value) > 0 {
			kind, _, addr, more := attribute(value)
			switch a, _ := netip.AddrFromSlice(addr); kind {
			case ipSrc4, ipSrc6:
				ends[0] = a
			case ipDst4, ipDst6:
				ends[1] = a
			}
			value = more
		}
		return
	}
}

// put adds a connection to the batch: by its original direction with its zone, and by its id, which differs from that
// of a later connection with the same addresses and ports.
func (t *Table) put(attrs []byte, family uint8) {
	var which [][]byte
	for len(attrs) > 0 {
		kind, whole, _, rest := attribute(attrs)
		if kind == tupleOrig || kind == attrZone || kind == attrID {
			which = append(which, whole)
		}
		attrs = rest
	}
	t.batch = t.change.message(t.batch, msgDelete, unix.NLM_F_REQUEST|unix.NLM_F_ACK, family, which...)
	t.batched++
}

// flush deletes the connections of the batch. A connection that has ended by itself is no error.
func (t *Table) flush() error {
	batch, batched := t.batch, t.batched
	t.batch, t.batched = t.batch[:0], 0
	var failed error
	err := t.change.exchange(batch, batched, func(_ int, err error) {
		if err != nil && !errors.Is(err, unix.ENOENT) && failed == nil {
			failed = err
		}
	})
	if err == nil {
		err = failed
	}
	return err
}

// Replied calls handle with the connections of both families that both ends have sent packets of. What comes and goes
// meanwhile may be missing. Zones other than the node's own are left out.
func Replied(handle func(Opened)) error {
	c, err := dial(0)
	if err != nil {
		return err
	}
	defer c.close()
	err = c.list(unix.AF_UNSPEC, nil, func(attrs []byte) error {
		var e Entry
		if e.read(attrs); e.status&statusReplied != 0 && e.Zone == 0 {
			handle(connection(&e))
		}
		return nil
	})
	if errors.Is(err, errInterrupted) {
		err = nil
	}
	return errors.Wrap(err, "listing connections")
}

// MaxEntries returns how many connections the kernel tracks at most; 0 if that is not known.
func MaxEntries() int {
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_max")
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(text))) // 0 for what is no number
	return n
}
