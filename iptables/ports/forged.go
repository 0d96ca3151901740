package ports

import (
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/pkg/errors"
)

// Forgery is a forged source that was seen in the last minute.
type Forgery struct {
	Source        // without an Addr if Kind is byMAC; without a MAC if the port is not on a bridge
	Kind   Reason // byIP, byARP, byNeighbour or byMAC
}

// Drops reports whether frames like a forgery are dropped.
func (s State) Drops(f Forgery) bool {
	return s.Mode == On || s.Mode == Audit && f.Kind == byIP && slices.Contains(s.Reserved, f.Addr)
}

// Binds reports whether the source of a forgery is bound to its port.
func (s State) Binds(f Forgery) bool {
	for source := range s.Sources {
		if source.Port == f.Port && source.MAC == f.MAC && (source.Addr == f.Addr || f.Kind == byMAC) {
			return true
		}
	}
	return false
}

// Forged returns the forged sources that were seen lately, sorted.
func (Tables) Forged() ([]Forgery, error) {
	kinds := map[string]Reason{forged4: byIP, forged6: byIP, forgedARP: byARP, forgedND: byNeighbour, forgedMACs: byMAC}
	var all []Forgery
	for _, f := range families() {
		conn := new(nftables.Conn)
		table, err := f.find()
		if err != nil {
			return nil, err
		}
		if table == nil {
			continue
		}
		sets, err := conn.GetSets(f.table())
		if err != nil {
			return nil, errors.Wrapf(err, "listing the sets of %s", f)
		}
		for _, set := range sets {
			kind, noted := kinds[set.Name]
			if !noted {
				continue
			}
			keys, err := readElements(conn, f, set.Name)
			if err != nil {
				return nil, errors.Wrapf(err, "reading the forged sources of %s", f)
			}
			for k := range keys {
				all = append(all, Forgery{Source: f.sourceOf(k), Kind: kind})
			}
		}
	}
	slices.SortFunc(all, func(a, b Forgery) int { return a.compare(b.Source) })
	return all, nil
}

// Dropped returns how many frames the rules of each reason have counted since the table was written.
func (Tables) Dropped() (map[Reason]uint64, error) {
	reasons := map[string]Reason{}
	for _, r := range Reasons() {
		reasons[r.comment()] = r
	}
	counts := map[Reason]uint64{}
	for _, f := range families() {
		snap := &snapshot{chains: map[string]*nftables.Chain{}, rules: map[string][]*nftables.Rule{}}
		if err := snap.readChains(new(nftables.Conn), f); err != nil {
			return nil, errors.Wrapf(err, "reading the counters of %s", f)
		}
		for _, rules := range snap.rules {
			for _, r := range rules {
				if comment, ok := userdata.GetString(r.UserData, userdata.TypeComment); ok && reasons[comment] != "" {
					counts[reasons[comment]] += packets(r)
				}
			}
		}
	}
	return counts, nil
}

// packets returns what the counter of a rule has counted.
func packets(r *nftables.Rule) (n uint64) {
	for _, e := range r.Exprs {
		if c, ok := e.(*expr.Counter); ok {
			n += c.Packets
		}
	}
	return n
}
