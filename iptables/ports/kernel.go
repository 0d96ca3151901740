package ports

import (
	"iter"
	"reflect"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"github.com/pkg/errors"
)

const (
	// beforeBridgeNetfilter is a priority before br_netfilter (0) and ebtables' nat table (-300).
	beforeBridgeNetfilter = -400
	// beforeDefragmentation is a priority before that of defragmentation (-400) and connection tracking (-200).
	beforeDefragmentation = -450
	// perMessage is the most elements in a message: more do not fit into its attribute.
	perMessage = 400
	// socketBuffer is the size of the buffers for a transaction and its answers.
	socketBuffer = 16 << 20
)

// wanted reports whether the state needs the table.
func (s structure) wanted() bool { return s.bridge() || s.Mode != Off && len(s.Routed) > 0 }

// chain returns a chain for the kernel. The one that is first has the hook.
func (s structure) chain(name string) *nftables.Chain {
	c := &nftables.Chain{Table: s.table(), Name: name}
	if name == entry {
		priority, accept := nftables.ChainPriority(beforeDefragmentation), nftables.ChainPolicyAccept
		if s.bridge() {
			priority = beforeBridgeNetfilter
		}
		c.Type, c.Hooknum, c.Priority, c.Policy = nftables.ChainTypeFilter, nftables.ChainHookPrerouting, &priority, &accept
	}
	return c
}

// transaction returns a connection with room for large tables.
func transaction() (*nftables.Conn, error) {
	conn, err := nftables.New(nftables.WithSockOptions(
		func(c *netlink.Conn) error { return c.SetWriteBuffer(socketBuffer) },
		func(c *netlink.Conn) error { return c.SetReadBuffer(socketBuffer) }))
	return conn, errors.Wrap(err, "opening a connection to nftables")
}

// Write changes the tables from a state that Read returned to another one. If the rules stay, only elements of sets
// change. Otherwise tables are replaced. All is one transaction.
func (Tables) Write(have, want State, whole bool) error {
	tx, err := transaction()
	if err != nil {
		return err
	}
	have, want = have.normal(), want.normal()
	for _, f := range families() {
		from, to := structure{have, f}, structure{want, f}
		if whole && from.sameRules(want) && from.wanted() && to.wanted() {
			err = from.change(tx, to)
		} else if !whole || from.wanted() || to.wanted() {
			err = to.replace(tx)
		}
		if err != nil {
			return errors.Wrapf(err, "writing %s of nftables", to)
		}
	}
	return errors.Wrap(tx.Flush(), "writing the tables weave-npc of nftables")
}

// change adds to a transaction what makes the elements of the table those of another state.
func (s structure) change(tx *nftables.Conn, to structure) error {
	have, want := s.elements(), to.elements()
	for _, set := range s.sets() {
		old, fresh := have[set.Name], want[set.Name]
		gone, added := elements{}, elements{}
		for k, comment := range old {
			if now, stays := fresh[k]; !stays || now != comment {
				gone[k] = ""
			}
		}
		for k, comment := range fresh {
			if before, there := old[k]; !there || before != comment {
				added[k] = comment
			}
		}
		for part := range gone.parts() {
			if err := tx.SetDeleteElements(set, part); err != nil {
				return err
			}
		}
		for part := range added.parts() {
			if err := tx.SetAddElements(set, part); err != nil {
				return err
			}
		}
	}
	return nil
}

// parts returns the elements in parts that fit into messages.
func (e elements) parts() iter.Seq[[]nftables.SetElement] {
	list := make([]nftables.SetElement, 0, len(e))
	for k, comment := range e {
		list = append(list, nftables.SetElement{Key: []byte(k), Comment: comment})
	}
	return slices.Chunk(list, perMessage)
}

// replace adds to a transaction what removes the table, and what writes it if the state needs it.
func (s structure) replace(tx *nftables.Conn) error {
	tx.AddTable(s.table()) // it may not exist
	tx.DelTable(s.table())
	if !s.wanted() {
		return nil
	}
	tx.AddTable(s.table())
	all := s.elements()
	for _, set := range s.sets() {
		if err := tx.AddSet(set, nil); err != nil {
			return err
		}
		for part := range all[set.Name].parts() {
			if err := tx.SetAddElements(set, part); err != nil {
				return err
			}
		}
	}
	chains := s.chains()
	for _, c := range chains {
		tx.AddChain(s.chain(c.name))
	}
	for _, c := range chains {
		for _, r := range c.rules {
			tx.AddRule(&nftables.Rule{Table: s.table(), Chain: s.chain(c.name), Exprs: r.exprs, UserData: r.userData()})
		}
	}
	return nil
}

// Remove removes the tables in one transaction, and returns the names of those that existed.
func (Tables) Remove() (removed []string, err error) {
	tx := new(nftables.Conn)
	for _, f := range families() {
		table, err := f.find()
		if err != nil {
			return nil, err
		}
		if table != nil {
			tx.DelTable(f.table())
			removed = append(removed, f.String())
		}
	}
	if err := tx.Flush(); err != nil {
		return nil, errors.Wrap(err, "removing the tables weave-npc of nftables")
	}
	return removed, nil
}

// sameExprs reports whether the kernel's expressions are those of a rule. It ignores the values of counters.
func sameExprs(have, want []expr.Any) bool {
	return slices.EqualFunc(have, want, func(a, b expr.Any) bool {
		if _, ok := a.(*expr.Counter); ok {
			_, ok = b.(*expr.Counter)
			return ok
		}
		return reflect.DeepEqual(a, b)
	})
}
