package matrix

import (
	"github.com/weave-npc/weave-npc/npc/analysis/internal/reachability"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// rowKinds are the rows and columns of a matrix and what stands behind them, for those who find out the cells
// themselves.
type rowKinds struct {
	// From and To are the rows of sources and of destinations.
	From, To []Row
	// Classes are the classes of pods and addresses that the rows are of.
	Classes []reachability.Class
	// Services holds one service of each protocol and range of ports that all policies treat alike: the first one of
	// the range.
	Services []flow.Service
	// Omitted are pods that are in no row, because they own none of their addresses.
	Omitted []string
}

// newRowKinds returns the rows and columns that New would. The options' service does not matter.
func newRowKinds(v *cluster.View, o Options) (*rowKinds, error) {
	p, m, err := newRows(v, o)
	if err != nil {
		return nil, err
	}
	return &rowKinds{From: m.From, To: m.To, Omitted: m.Omitted, Services: p.Services(), Classes: p.Classes()}, nil
}

// Class returns the number of the row's class in its Kinds.
func (r Row) Class() int { return r.class }

// Namespace returns the namespace of the row's pods; it is empty for an address.
func (r Row) Namespace() string { return r.namespace }
