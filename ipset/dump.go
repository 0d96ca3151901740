package ipset

import (
	"github.com/pkg/errors"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// dumpAttempts is how often a listing is tried while others change the sets.
const dumpAttempts = 5

// Headers returns the headers of the sets whose name has the prefix.
func (c *Conn) Headers(prefix string) ([]Header, error) {
	sets, err := c.dump("", prefix, true)
	if err != nil {
		return nil, errors.Wrapf(err, "listing the headers of sets %s*", printable(prefix))
	}
	headers := make([]Header, len(sets))
	for i := range sets {
		headers[i] = sets[i].Header
	}
	return headers, nil
}

// List returns the sets whose name has the prefix, with their elements.
func (c *Conn) List(prefix string) ([]Listing, error) {
	sets, err := c.dump("", prefix, false)
	return sets, errors.Wrapf(err, "listing sets %s*", printable(prefix))
}

// ListNamed returns the named sets, with their elements. It leaves out those that do not exist.
func (c *Conn) ListNamed(names []string) ([]Listing, error) {
	var out []Listing
	for _, name := range names {
		sets, err := c.dump(name, name, false)
		if err != nil && !errors.Is(err, errNotFound) {
			return nil, errors.Wrapf(err, "listing set %s", printable(name))
		}
		out = append(out, sets...)
	}
	return out, nil
}

// header returns the header of one set. It fails if there is no such set.
func (c *Conn) header(name string) (Header, error) {
	sets, err := c.dump(name, name, true)
	if err != nil {
		return Header{}, err
	}
	if len(sets) != 1 {
		return Header{}, errNotFound
	}
	return sets[0].Header, nil
}

// errDisturbed is the error of a listing that has to be repeated.
const errDisturbed ErrorKind = "sets kept changing while they were listed"

// dump lists one set, or all whose name has the prefix.
func (c *Conn) dump(name, prefix string, headersOnly bool) ([]Listing, error) {
	var err error
	for range dumpAttempts {
		var l listing
		l, err = c.dumpOnce(name, prefix, headersOnly)
		if err == nil && name == "" {
			err = c.addHidden(&l, headersOnly)
		}
		if err == nil {
			return l.sets, nil
		}
		// The kernel lists once at a time for a socket: leave nothing behind.
		c.drain()
		retry := errors.Is(err, errDisturbed) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EBUSY)
		if !retry {
			return nil, err
		}
	}
	return nil, err
}

func (c *Conn) dumpOnce(name, prefix string, headersOnly bool) (listing, error) {
	c.out.buf = c.out.buf[:0]
	c.seq++
	c.out.list(name, headersOnly, c.seq)
	sets := listing{prefix: prefix}
	if err := c.send(); err != nil {
		return sets, err
	}
	disturbed := false
	err := c.receive(c.seq, 1, func(p packet) (bool, error) {
		disturbed = disturbed || p.flags&unix.NLM_F_DUMP_INTR != 0
		switch p.kind {
		case unix.NFNL_SUBSYS_IPSET<<8 | nl.IPSET_CMD_LIST:
			return false, sets.add(p.body)
		case unix.NLMSG_ERROR, unix.NLMSG_DONE:
			code, err := p.code()
			if err == nil && code != 0 {
				err = KernelError{Code: code}
			}
			return true, err
		}
		return false, nil
	})
	if err == nil && disturbed {
		err = errDisturbed
	}
	return sets, err
}

// addHidden adds the lists of sets that the kernel left out of a listing of all sets. The kernel keeps each set in a
// slot. It has as many slots as sets needed at once so far: 256 at first, unless it is configured otherwise, and 64
// more whenever these are too few. It lists the sets slot by slot, in two rounds: lists of sets come in the second, and
// there is no second round if the last slot holds another set. This holds up to Linux 6.18 at least. Before Linux 4.20
// the kernel does not report which set is in a slot, and there is no remedy.
func (c *Conn) addHidden(l *listing, headersOnly bool) error {
	if l.hasLists || l.count == 0 || !c.slots {
		return nil
	}
	table := slotTable{c}
	last, err := table.slotOf(string(l.last))
	if errors.Is(err, errNotFound) { // it was listed
		return errDisturbed
	}
	if err != nil || last+1 == l.count { // every slot has a set that was listed
		return err
	}
	names, err := table.namesBefore(last, l.unlisted())
	if err != nil {
		return err
	}
	for _, name := range names {
		hidden, err := c.dumpOnce(name, name, headersOnly)
		if err != nil && !errors.Is(err, errNotFound) { // it may have gone meanwhile
			return err
		}
		l.sets = append(l.sets, hidden.sets...)
	}
	return nil
}
