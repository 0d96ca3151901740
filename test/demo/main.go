// Command demo builds a small cluster of network namespaces. weave-npc enforces policies in it, and the demo shows
// which pods reach each other.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/weave-npc/weave-npc/test/lab"
)

func main() {
	npc := flag.String("weave-npc", "bin/weave-npc", "`path` of the weave-npc to show")
	keep := flag.Bool("keep", false, "leave the cluster standing at the end, until ^C")
	onTerminal := term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))
	pause := flag.Bool("pause", onTerminal, "wait for Enter after each screen")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "demo: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	os.Exit(run(*npc, *keep, *pause))
}

// run shows everything and returns the exit status, after a signal that which a shell gives such an end.
func run(npc string, keep, pause bool) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	cancelOnSignal(cancel)
	p := newPrinter(os.Stdout, cancel)
	if pause {
		p.enters = enters(os.Stdin)
	}
	err := show(ctx, p, npc, keep)
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
	var s interruption
	if errors.As(err, &s) {
		return 128 + int(s)
	}
	return 1
}

// interruption is the end that a signal asks for.
type interruption unix.Signal

func (s interruption) Error() string {
	return unix.SignalName(unix.Signal(s)) + ": the cluster was removed before the end"
}

// cancelOnSignal makes SIGINT, SIGTERM and SIGHUP end the context, so that the cluster is removed on the way out.
func cancelOnSignal(cancel context.CancelCauseFunc) {
	signals := make(chan os.Signal, 8)
	// SIGPIPE would end this process as soon as the reader of its output goes away. The error of the write is enough.
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGPIPE)
	go func() {
		for s := range signals {
			if s != unix.SIGPIPE {
				cancel(interruption(s.(unix.Signal)))
			}
		}
	}()
}

// show builds the cluster, plays the story and removes the cluster.
func show(ctx context.Context, p *printer, npc string, keep bool) (err error) {
	if _, err := os.Stat(npc); err != nil {
		return errors.Wrap(err, "there is no weave-npc to show; build it (make build) or say where it is (-weave-npc)")
	}
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root: run this as root, or with sudo")
	}
	if err := lab.Cleanup(); err != nil {
		return errors.Wrap(err, "removing what an earlier run left behind")
	}
	c, err := newCluster(ctx, npc)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer func() {
		stop()
		if closed := c.close(); err == nil {
			err = closed
		} else if closed != nil {
			err = errors.Errorf("%v\nthen, when the cluster was removed: %v", err, closed)
		}
	}()
	s := story{cluster: c, printer: p, ended: make(chan *lab.Node)}
	err = s.play(ctx)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case keep:
		return s.stay(ctx)
	}
	s.say("That is all, and all of it was checked. The cluster is removed now. `make demo KEEP=1` keeps it, " +
		"to look around and to try other policies.")
	return nil
}
