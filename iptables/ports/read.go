package ports

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/pkg/errors"
)

// snapshot is what the kernel has of a table.
type snapshot struct {
	there    bool
	flags    uint32
	sets     map[string]*nftables.Set
	chains   map[string]*nftables.Chain
	rules    map[string][]*nftables.Rule
	elements map[string]elements // of the sets that rules do not fill
}

// Read returns what the tables in the kernel hold. whole is false if they are not exactly those that Write writes for
// that state: a table, a chain, a set, an element or a rule is missing, changed or added. Then the Mode is that of the
// rules there are, and AllowVLAN and OnlyTypes are false.
func (Tables) Read() (s State, whole bool, err error) {
	s.Sources = map[Source]string{}
	snapshots := map[family]*snapshot{}
	for _, f := range families() {
		if snapshots[f], err = read(f); err != nil {
			return State{}, false, err
		}
		snapshots[f].addTo(&s, f)
	}
	for _, rules := range ruleSets() {
		s.Mode, s.AllowVLAN, s.OnlyTypes = rules.Mode, rules.AllowVLAN, rules.OnlyTypes
		n := s.normal()
		if whole = !slices.ContainsFunc(families(), func(f family) bool {
			return !snapshots[f].is(structure{n, f})
		}); whole {
			return n, true, nil
		}
	}
	s.Mode, s.AllowVLAN, s.OnlyTypes = Off, false, false
	for _, snap := range snapshots {
		s.Mode = max(s.Mode, snap.mode())
	}
	return s, false, nil
}

// mode returns what happens to forged sources, if rules that are not those of this version show it. The last
// rule is for all that the others are not for.
func (s *snapshot) mode() Mode {
	rules, found := s.rules[forged]
	if !found {
		return Off
	}
	if len(rules) > 0 && slices.ContainsFunc(rules[len(rules)-1].Exprs, func(e expr.Any) bool {
		v, ok := e.(*expr.Verdict)
		return ok && v.Kind == expr.VerdictDrop
	}) {
		return On
	}
	return Audit
}

// ruleSets returns a state for each set of rules.
func ruleSets() (all []State) {
	for _, mode := range []Mode{On, Audit, Off} {
		for _, vlan := range []bool{false, true} {
			for _, types := range []bool{false, true} {
				all = append(all, State{Mode: mode, AllowVLAN: vlan, OnlyTypes: types})
			}
		}
	}
	return all
}

// read reads a table of the kernel.
func read(f family) (*snapshot, error) {
	snap := &snapshot{sets: map[string]*nftables.Set{}, chains: map[string]*nftables.Chain{},
		rules: map[string][]*nftables.Rule{}, elements: map[string]elements{}}
	table, err := f.find()
	if err != nil || table == nil {
		return snap, err
	}
	snap.there, snap.flags = true, table.Flags
	conn := new(nftables.Conn)
	for _, read := range []func(*nftables.Conn, family) error{snap.readChains, snap.readSets} {
		if err := read(conn, f); err != nil {
			return nil, errors.Wrapf(err, "reading %s of nftables", f)
		}
	}
	return snap, nil
}

func (s *snapshot) readChains(conn *nftables.Conn, f family) error {
	chains, err := conn.ListChainsOfTableFamily(nftables.TableFamily(f))
	if err != nil {
		return errors.Wrap(err, "listing the chains")
	}
	for _, c := range chains {
		if c.Table.Name != tableName {
			continue
		}
		s.chains[c.Name] = c
		if s.rules[c.Name], err = conn.GetRules(f.table(), c); err != nil {
			return errors.Wrapf(err, "reading chain %s", c.Name)
		}
	}
	return nil
}

func (s *snapshot) readSets(conn *nftables.Conn, f family) error {
	sets, err := conn.GetSets(f.table())
	if err != nil {
		return errors.Wrap(err, "listing the sets")
	}
	for _, set := range sets {
		s.sets[set.Name] = set
		if set.Dynamic {
			continue
		}
		if s.elements[set.Name], err = readElements(conn, f, set.Name); err != nil {
			return err
		}
	}
	return nil
}

func readElements(conn *nftables.Conn, f family, set string) (elements, error) {
	list, err := conn.GetSetElements(&nftables.Set{Table: f.table(), Name: set})
	if err != nil {
		return nil, errors.Wrapf(err, "reading set %s", set)
	}
	keys := make(elements, len(list))
	for _, e := range list {
		keys[string(e.Key)] = e.Comment
	}
	return keys, nil
}

// addTo adds what the sets hold to a state.
func (s *snapshot) addTo(state *State, from family) {
	own := &state.Routed
	if from.bridge() {
		own = &state.Bridged
	}
	*own = portsOf(s.elements[podPorts])
	state.Bound = sorted(slices.Concat(state.Bound, portsOf(s.elements[boundPorts])))
	state.Exempt = sorted(slices.Concat(state.Exempt, portsOf(s.elements[exemptPorts])))
	for k := range s.elements[etherTypes] {
		if len(k) == 2 {
			state.Types = append(state.Types, uint16(k[0])<<8|uint16(k[1]))
		}
	}
	for _, set := range []string{reserved4, reserved6} {
		for k := range s.elements[set] {
			if a, ok := netip.AddrFromSlice([]byte(k)); ok {
				state.Reserved = append(state.Reserved, a)
			}
		}
	}
	for _, set := range []string{sources4, sources6} {
		for k, pod := range s.elements[set] {
			if source := from.sourceOf(k); source.Addr.IsValid() {
				state.Sources[source] = pod
			}
		}
	}
}

// is reports whether the kernel's table is exactly as it is written.
func (s *snapshot) is(want structure) bool {
	if !s.there || !want.wanted() {
		return s.there == want.wanted()
	}
	sets, chains := want.sets(), want.chains()
	if s.flags != 0 || len(s.sets) != len(sets) || len(s.chains) != len(chains) {
		return false
	}
	for _, c := range chains {
		if !sameChain(s.chains[c.name], want.chain(c.name)) || !slices.EqualFunc(s.rules[c.name], c.rules, sameRule) {
			return false
		}
	}
	keys := want.elements()
	for _, set := range sets {
		if !sameSet(s.sets[set.Name], set) || !maps.Equal(s.elements[set.Name], keys[set.Name]) {
			return false
		}
	}
	return true
}

func sameChain(have, want *nftables.Chain) bool {
	return have != nil && have.Type == want.Type && same(have.Hooknum, want.Hooknum) &&
		same(have.Priority, want.Priority) && same(have.Policy, want.Policy)
}

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

func sameRule(have *nftables.Rule, want rule) bool {
	return slices.Equal(have.UserData, want.userData()) && sameExprs(have.Exprs, want.exprs)
}

func sameSet(have, want *nftables.Set) bool {
	return have != nil && have.KeyType.GetNFTMagic() == want.KeyType.GetNFTMagic() &&
		have.KeyType.Bytes == want.KeyType.Bytes && have.Interval == want.Interval && have.IsMap == want.IsMap &&
		have.Constant == want.Constant && have.Dynamic == want.Dynamic && have.HasTimeout == want.HasTimeout &&
		have.Timeout == want.Timeout && have.Size == want.Size
}
