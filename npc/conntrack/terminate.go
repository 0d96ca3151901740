package conntrack

import (
	"net/netip"
	"slices"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

const (
	// changedAtOnce is the number of connections that are changed with one send.
	changedAtOnce = 128
	// terminateTries bounds the tries to terminate a connection that changes meanwhile. Its status changes a few times
	// in its life.
	terminateTries = 5
)

// Entries calls handle with the connections whose addresses are wanted, those of Entry. A connection may be handled
// more than once. One that is not confirmed yet, because its first packet is still on its way through the rules, is not
// listed. The function handle may terminate and restore connections.
func (t *Table) Entries(wanted func(source, destination netip.Addr) bool, handle func(Entry)) error {
	return t.each(nil, wanted, handle)
}

// Marked returns the connections whose mark has a bit.
func (t *Table) Marked(bit uint32) (entries []Entry, err error) {
	filter := appendNumber(appendNumber(nil, attrMark, bit), attrMask, bit)
	err = t.each(filter, func(_, _ netip.Addr) bool { return true }, func(e Entry) { entries = append(entries, e) })
	return entries, err
}

func (t *Table) each(filter []byte, wanted func(_, _ netip.Addr) bool, handle func(Entry)) error {
	err := untilWhole(func() error {
		var ends [4]netip.Addr
		return t.list.list(t.family, filter, func(attrs []byte) error {
			if readEnds(attrs, &ends) && wanted(ends[0], ends[2]) {
				handle(readEntry(attrs))
			}
			return nil
		})
	})
	return errors.Wrap(err, "listing connections")
}

// Terminate sets a bit in the mark of connections, for a rule that stops what has it. With pin, a TCP connection also
// gets a fixed end, the time at which the kernel would forget it now: otherwise the reset that the rule sends makes the
// kernel forget it early, and an end that was idle would take it up as a new connection. Terminate returns the number
// of connections that had ended by themselves. It goes on after a connection that cannot be terminated, and returns the
// first error.
func (t *Table) Terminate(entries []Entry, bit uint32, pin bool) (gone int, err error) {
	var failed error
	for some := range slices.Chunk(entries, changedAtOnce) {
		for try := 1; len(some) > 0; try++ {
			var changed []Entry
			err := t.send(some, func(e *Entry) { t.putTerminate(e, bit, pin) }, func(e *Entry, err error) {
				switch {
				case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ETIME):
					gone++
				case try < terminateTries && (errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EPERM)):
					changed = append(changed, *e) // by a packet, or it has a fixed end by now
				case err != nil && failed == nil:
					failed = err
				}
			})
			if err != nil {
				return gone, errors.Wrap(err, "terminating connections")
			}
			some, err = t.Refresh(changed)
			if err != nil {
				return gone, errors.Wrap(err, "reading connections to terminate")
			}
			gone += len(changed) - len(some)
		}
	}
	return gone, errors.Wrap(failed, "terminating connections")
}

// Restore clears the bit of Terminate in connections that are allowed again. A TCP connection that a reset has closed
// is deleted instead. The others keep their fixed end, which the kernel has no way to lift. Restore goes on after a
// connection that cannot be restored, and returns the first error; one that has ended by itself is none.
func (t *Table) Restore(entries []Entry, bit uint32) error {
	var failed error
	for some := range slices.Chunk(entries, changedAtOnce) {
		err := t.send(some, func(e *Entry) { t.putRestored(e, bit) }, func(_ *Entry, err error) {
			if err != nil && !errors.Is(err, unix.ENOENT) && failed == nil {
				failed = err
			}
		})
		if err != nil {
			return errors.Wrap(err, "restoring connections")
		}
	}
	return errors.Wrap(failed, "restoring connections")
}

// send sends a message for each entry, which put adds to the batch, and calls answered with what the kernel says of
// each.
func (t *Table) send(entries []Entry, put func(*Entry), answered func(*Entry, error)) error {
	t.batch = t.batch[:0]
	for i := range entries {
		put(&entries[i])
	}
	return t.change.exchange(t.batch, len(entries), func(i int, err error) { answered(&entries[i], err) })
}

// putTerminate adds the message that terminates a connection to the batch. One message does all: what is marked and not
// pinned could be forgotten, and what is pinned and not marked is not stopped.
func (t *Table) putTerminate(e *Entry, bit uint32, pin bool) {
	attrs := appendNumber(appendNumber(t.named(e), attrMark, bit), attrMask, bit)
	if pin && e.Protocol == unix.IPPROTO_TCP && !e.Pinned() {
		// The kernel reports the seconds left rounded down. It refuses a status that clears a bit which the connection
		// has by now.
		const known = statusExpected | statusReplied | statusAssured | statusConfirmed | statusDying
		attrs = appendNumber(appendNumber(attrs, attrExpiry, e.expiry+1), attrStatus, e.status&known|statusFixedEnd)
	}
	t.batch = t.change.message(t.batch, msgNew, unix.NLM_F_REQUEST|unix.NLM_F_ACK, e.family, attrs)
	t.attrs = attrs
}

// putRestored adds the message that restores a connection to the batch.
func (t *Table) putRestored(e *Entry, bit uint32) {
	kind, attrs := uint16(msgDelete), t.named(e)
	if e.state != stateClose {
		kind, attrs = msgNew, appendNumber(appendNumber(attrs, attrMark, 0), attrMask, bit)
	}
	t.batch = t.change.message(t.batch, kind, unix.NLM_F_REQUEST|unix.NLM_F_ACK, e.family, attrs)
	t.attrs = attrs
}

// named returns the attributes that name a connection, in a buffer that is used again.
func (t *Table) named(e *Entry) []byte { return append(t.attrs[:0], e.identity...) }

// Refresh reads connections again, and leaves out those that ended, also if others have their addresses and ports.
func (t *Table) Refresh(entries []Entry) ([]Entry, error) {
	left := entries[:0:0]
	for _, e := range entries {
		err := t.change.get(e.family, t.named(&e), func(attrs []byte) {
			var ends [4]netip.Addr
			if !readEnds(attrs, &ends) {
				return
			}
			if now := readEntry(attrs); now.identity == e.identity && now.status&statusDying == 0 {
				left = append(left, now)
			}
		})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return nil, err
		}
	}
	return left, nil
}
