package ipset

import (
	"github.com/pkg/errors"
	"github.com/vishvananda/netlink/nl"
)

// slotAnswerSize is more than the answer about a slot takes in the receive buffer.
const slotAnswerSize = 8 << 10

// slotTable asks the kernel which slot of its table of sets holds which set.
type slotTable struct{ conn *Conn }

// slotOf returns the slot of a set.
func (t slotTable) slotOf(name string) (slot int, err error) {
	c := t.conn
	c.out.buf = c.out.buf[:0]
	c.seq++
	start := c.out.message(commandSlotOf, 0, c.seq)
	c.out.str(nl.IPSET_ATTR_SETNAME, name)
	c.out.end(start)
	err = t.ask(1, func(p packet) error {
		slot, err = p.slot()
		return err
	})
	return slot, errors.Wrapf(err, "asking for the slot of set %s", printable(name))
}

// namesBefore returns the names that wanted selects among those of the sets in the slots before end.
func (t slotTable) namesBefore(end int, wanted func(name []byte) bool) ([]string, error) {
	c := t.conn
	var names []string
	atOnce := max(1, c.budget/slotAnswerSize)
	for first := 0; first < end; first += atOnce {
		c.out.buf = c.out.buf[:0]
		count := min(atOnce, end-first)
		for slot := range count {
			c.seq++
			start := c.out.message(commandInSlot, 0, c.seq)
			c.out.u16(attrSlot, uint16(first+slot))
			c.out.end(start)
		}
		err := t.ask(count, func(p packet) error {
			name, err := p.name()
			switch {
			case errors.Is(err, errNotFound): // no set is in the slot
				return nil
			case err == nil && wanted(name):
				names = append(names, string(name))
			}
			return err
		})
		if err != nil {
			return nil, errors.Wrap(err, "asking for the sets in slots")
		}
	}
	return names, nil
}

// ask sends the encoded requests, which have one answer each, and passes the answers to handle.
func (t slotTable) ask(count int, handle func(packet) error) error {
	if err := t.conn.send(); err != nil {
		return err
	}
	missing := count
	return t.conn.receive(t.conn.seq-uint32(count)+1, count, func(p packet) (bool, error) {
		missing--
		return missing == 0, handle(p)
	})
}
