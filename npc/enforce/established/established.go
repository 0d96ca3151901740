// Package established terminates open connections of local pods that policies do not allow any more.
//
// It does so once a change of policies, labels, namespaces or Nodes is in the kernel, and for what an address began
// before its pod was known. If connections are kept, the latter alone end. A connection that was terminated has a bit in
// its mark, by which a rule stops its packets.
//
//	worker, err := established.Terminator(ctx, options) // nil to keep all connections
//	go worker.Run(ctx)
//	worker.Ask()       // after each change
//	worker.Late(addrs) // after addresses became known
//
//	Ask ──▶ Run: list connections ──▶ Evaluate ──▶ mark the denied ones, unmark those allowed again (terminate)
//
//	marks, err := established.Marks(ctx, tables)     // before weave-npc is removed
//	err = established.Restore(family, bit)           // after that
//
// It does not know policies, nor how rules are written.
package established

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
)

// pinnedShare is the part of the kernel's connection table that ended connections may take: one in so many.
const pinnedShare = 4

// Options are what a node has.
type Options struct {
	Families []npc.Family
	Backend  iptables.Backend
	// Bit is the bit of the mark of connections that are ended; 0 to keep them. LateBit is that of those that are ended
	// if Bit is 0, because they began before their pod was known; 0 to keep these too.
	Bit, LateBit uint32
	// EndLate has the rules written by which the latter end.
	EndLate func()
	// AreKnown reports whether what connections are evaluated by is known. They are not evaluated before.
	AreKnown  func() bool
	Evaluator Evaluator
	Registry  prometheus.Registerer
	Log       *slog.Logger
}

// Terminator returns what ends connections, or nil if they are kept. An error says why they cannot be ended.
func Terminator(ctx context.Context, of Options) (*Worker, error) {
	bit, ended := cmp.Or(of.Bit, of.LateBit), false
	c := Config{Evaluator: of.Evaluator, AreKnown: of.AreKnown, Bit: bit, Log: of.Log,
		MaxPinned: conntrack.MaxEntries() / pinnedShare}
	for _, f := range of.Families {
		some, err := of.takeOverMarks(ctx, f)
		if err != nil {
			return nil, errors.Wrap(err, f.String())
		}
		ended = ended || some
	}
	if bit == 0 {
		return nil, nil
	}
	if of.Bit == 0 {
		c.EndLate = of.EndLate
	}
	var err error
	if len(of.Families) == 1 {
		c.Table, err = openConnections(naming.IPTables(of.Families[0]))
	} else {
		c.Table, err = conntrack.Open(unix.AF_UNSPEC)
	}
	if err != nil {
		return nil, err
	}
	c.Metrics = NewMetrics(of.Registry)
	w := newTerminator(c)
	if w.ended = ended; ended && of.Bit == 0 {
		w.endLate()
	}
	return w, nil
}

func openConnections(f iptables.Family) (*conntrack.Table, error) {
	if f == iptables.IPv6 {
		return conntrack.Open(unix.AF_INET6)
	}
	return conntrack.Open(unix.AF_INET)
}

// takeOverMarks handles the marks of a family's connections that an earlier weave-npc process has terminated: they stay
// terminated, or continue if such connections are kept now. It reports whether some are. It returns an error if another
// program uses the bit, or if the kernel rejects the rules that terminate connections.
func (c *Options) takeOverMarks(ctx context.Context, f npc.Family) (ended bool, err error) {
	table, err := iptables.New(naming.IPTables(f), c.Backend)
	if err != nil {
		return false, err
	}
	seen, err := table.Read(ctx, naming.ChainPrefix)
	if err != nil {
		return false, err
	}
	mark, late := rules.TerminateMarkIn(seen)
	bit, former := c.Bit, uint32(mark)
	switch {
	case bit == 0 && former == 0:
		return false, nil
	case bit == 0 && (!late || c.LateBit == 0):
		return false, Restore(naming.IPTables(f), former)
	case bit == 0:
		bit = c.LateBit
	}
	if ended, err = takeOver(naming.IPTables(f), former, bit); err != nil || c.Bit == 0 {
		return ended, err
	}
	return ended, errors.Wrap(tryTerminate(ctx, table, bit),
		"--established=terminate: the kernel does not take the rules for it; use keep")
}

// takeOver has the connections of a family stay ended that have the former bit in their mark, if that is not 0, by
// another bit. It reports whether there are any.
func takeOver(f iptables.Family, former, bit uint32) (ended bool, err error) {
	connections, err := openConnections(f)
	if err != nil {
		return false, err
	}
	defer connections.Close()
	if former == 0 {
		return false, unused(connections, bit)
	}
	marked, err := connections.Marked(former)
	if err == nil && former != bit {
		_, err = connections.Terminate(marked, bit, false)
	}
	return len(marked) > 0, err
}

// unused returns an error if connections have a bit in their mark.
func unused(t *conntrack.Table, bit uint32) error {
	marked, err := t.Marked(bit)
	if err == nil && len(marked) > 0 {
		err = errors.Errorf("--terminate-mark: %d connections have the bit %#x of their mark already, "+
			"which another program uses: give another bit", len(marked), bit)
	}
	return err
}

// tryTerminate writes the rules that connections end by to a chain that no rule leads to.
func tryTerminate(ctx context.Context, t *iptables.Table, bit uint32) error {
	try := append(rules.Terminate(), iptables.Rule{Match: rules.TerminateMark(bit).ToNode().Match, Target: "-j RETURN",
		Comment: "try"})
	chain := iptables.Chain{Name: naming.ScratchChain, Rules: try}
	if err := t.Apply(ctx, iptables.Update{Replace: []iptables.Chain{chain}}); err != nil {
		return err
	}
	return t.Apply(ctx, iptables.Update{Delete: []string{naming.ScratchChain}})
}

// Marks returns the bits of the marks of connections that weave-npc has ended, by rules in some tables.
func Marks(ctx context.Context, tables []*iptables.Table) (map[iptables.Family]uint32, error) {
	bits := map[iptables.Family]uint32{}
	for _, t := range tables {
		seen, err := t.Read(ctx, naming.ChainPrefix)
		if err != nil {
			return nil, err
		}
		if bit, _ := rules.TerminateMarkIn(seen); bit != 0 {
			bits[t.Family()] = uint32(bit)
		}
	}
	return bits, nil
}

// Restore has the connections of a family go on that have a bit in their mark.
func Restore(f iptables.Family, bit uint32) error {
	connections, err := openConnections(f)
	if err != nil {
		return err
	}
	defer connections.Close()
	marked, err := connections.Marked(bit)
	if err != nil {
		return err
	}
	return connections.Restore(marked, bit)
}
