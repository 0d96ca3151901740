// Command demo builds a small cluster of network namespaces, in which weave-npc enforces policies, and shows who
// reaches whom.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/lab"
)

func main() {
	npc := flag.String("weave-npc", "bin/weave-npc", "`path` of the weave-npc to show")
	keep := flag.Bool("keep", false, "leave the cluster standing at the end, until ^C")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "demo: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	os.Exit(run(*npc, *keep))
}

// run shows everything and returns the exit status.
func run(npc string, keep bool) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signalled := cancelOnSignal(cancel)
	p := newPrinter(os.Stdout, cancel)
	err := show(ctx, p, npc, keep)
	if s := signalled.Load(); s != 0 {
		if keep && err == nil {
			return 0 // that is how it ends
		}
		return 128 + int(s)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		return 1
	}
	return 0
}

// cancelOnSignal ends the context on SIGINT, SIGTERM and SIGHUP and tells which of them came first, so that the cluster is
// removed on the way out. A reader of our output that goes away must not end us on the spot either.
func cancelOnSignal(cancel context.CancelCauseFunc) *atomic.Int32 {
	var first atomic.Int32
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGPIPE)
	go func() {
		for s := range signals {
			if s == unix.SIGPIPE {
				continue // the write fails too, which says more
			}
			first.CompareAndSwap(0, int32(s.(syscall.Signal)))
			cancel(errors.Errorf("%s", s))
		}
	}()
	return &first
}

// show builds the cluster, tells the story and removes the cluster.
func show(ctx context.Context, p *printer, npc string, keep bool) (err error) {
	if _, err := os.Stat(npc); err != nil {
		return errors.Wrap(err, "there is no weave-npc to show; build it (make build) or say where it is (-weave-npc)")
	}
	if err := lab.Sweep(); err != nil {
		return errors.Wrap(err, "removing what an earlier run left behind")
	}
	c, err := newCluster(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if closed := c.world.Close(); err == nil {
			err = errors.Wrap(closed, "removing the cluster")
		}
	}()
	s := story{cluster: c, printer: p, npc: npc}
	if err := s.tell(ctx); err != nil {
		return err
	}
	if keep {
		return s.stay(ctx)
	}
	p.say("That is all. The namespaces, the processes in them and the files are removed now.\n" +
		"`make demo KEEP=1` leaves them standing, to look around and to try other policies.")
	return nil
}
