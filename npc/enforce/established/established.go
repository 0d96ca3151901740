// Package established terminates open connections of local pods that policies do not allow any more.
//
// It does so once a change of policies, labels, namespaces or Nodes is in the kernel. A connection that was terminated
// has a bit in its mark, by which a rule stops its packets.
//
//	worker, err := established.Terminator(ctx, options) // nil to keep connections
//	go worker.Run(ctx)
//	worker.Ask() // after each change
//
//	Ask ──▶ Run: list connections ──▶ Evaluate ──▶ mark the denied ones, unmark those allowed again (terminate)
//
//	marks, err := established.Marks(ctx, tables)     // before weave-npc is removed
//	err = established.Restore(family, bit)           // after that
//
// It does not know policies, nor how rules are written.
package established

import (
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
	// Bit is the bit of the mark of connections that are ended; 0 to keep them.
	Bit       uint32
	Evaluator Evaluator
	Registry  prometheus.Registerer
	Log       *slog.Logger
}

// Terminator returns what ends connections, or nil if they are kept. An error says why they cannot be ended.
func Terminator(ctx context.Context, of Options) (*Worker, error) {
	bit := of.Bit
	c := Config{Evaluator: of.Evaluator, Bit: bit, MaxPinned: conntrack.MaxEntries() / pinnedShare, Log: of.Log}
	for _, f := range of.Families {
		if err := of.takeOverMarks(ctx, f); err != nil {
			return nil, errors.Wrap(err, f.String())
		}
	}
	if bit == 0 {
		return nil, nil
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
	return newTerminator(c), nil
}

func openConnections(f iptables.Family) (*conntrack.Table, error) {
	if f == iptables.IPv6 {
		return conntrack.Open(unix.AF_INET6)
	}
	return conntrack.Open(unix.AF_INET)
}

// takeOverMarks handles the marks of a family's connections that an earlier weave-npc process has terminated: they stay
// terminated, or continue if connections are kept now. It returns an error if another program uses the bit, or if the
// kernel rejects the rules that terminate connections.
func (c *Options) takeOverMarks(ctx context.Context, f npc.Family) error {
	table, err := iptables.New(naming.IPTables(f), c.Backend)
	if err != nil {
		return err
	}
	seen, err := table.Read(ctx, naming.ChainPrefix)
	if err != nil {
		return err
	}
	bit, former := c.Bit, uint32(rules.TerminateMarkIn(seen))
	switch {
	case bit == 0 && former == 0:
		return nil
	case bit == 0:
		return Restore(naming.IPTables(f), former)
	}
	connections, err := openConnections(naming.IPTables(f))
	if err != nil {
		return err
	}
	defer connections.Close()
	switch former {
	case bit:
	case 0:
		marked, err := connections.Marked(bit)
		if err == nil && len(marked) > 0 {
			err = errors.Errorf("--terminate-mark: %d connections have the bit %#x of their mark already, "+
				"which another program uses: give another bit",
				len(marked), bit)
		}
		if err != nil {
			return err
		}
	default:
		marked, err := connections.Marked(former)
		if err == nil {
			_, err = connections.Terminate(marked, bit, false)
		}
		if err != nil {
			return err
		}
	}
	return errors.Wrap(tryTerminate(ctx, table, bit),
		"--established=terminate: the kernel does not take the rules for it; use keep")
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
		if bit := rules.TerminateMarkIn(seen); bit != 0 {
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
