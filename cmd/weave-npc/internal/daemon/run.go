package daemon

import (
	"context"
	"io"
	"runtime/debug"

	"golang.org/x/sync/errgroup"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/alive"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/enforce/established"
	"github.com/weave-npc/weave-npc/npc/enforce/host"
)

// run enforces policies until the context ends. It returns errors only before it enforces any.
func run(ctx context.Context, o *options, stdout, stderr io.Writer) error {
	host.FollowMemoryLimit()
	for {
		err := begin(ctx, o, stdout, stderr)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if err := o.awaitModules(ctx, stderr, err); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// begin runs weave-npc until the context ends, or until it fails to start.
func begin(ctx context.Context, o *options, stdout, stderr io.Writer) error {
	d, err := newDaemon(ctx, o, stderr)
	if err != nil {
		return err
	}
	defer d.syncer.Close()
	ctx, cancel := context.WithCancel(ctx)
	tasks, ctx := errgroup.WithContext(ctx)
	defer func() {
		cancel()
		_ = tasks.Wait() // the error is returned below, or caused by the end of the context
	}()
	if o.dryRun {
		return d.dryRun(ctx, tasks, stdout)
	}
	return d.enforce(ctx, tasks)
}

// dryRun prints the first transactions.
func (d *daemon) dryRun(ctx context.Context, tasks *errgroup.Group, stdout io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := checkNode(ctx, d.client, d.config.NodeName, d.log); err != nil {
		return err
	}
	tasks.Go(func() error { return d.source.Run(ctx, d.stage, d.log) })
	return d.syncer.DryRun(ctx, stdout)
}

// enforce runs all parts until the context ends.
func (d *daemon) enforce(ctx context.Context, tasks *errgroup.Group) error {
	if d.config.ForwardJump && d.config.AllowAction == actionReturn {
		host.ReportForwardPolicy(ctx, d.backend, d.families, d.log)
	}
	terminator, err := established.Terminator(ctx, established.Options{Families: d.families, Backend: d.backend,
		Bit: d.config.TerminateMark, LateBit: d.config.LateMark, EndLate: d.controller.Planner().EndLate,
		AreKnown: controller.NamesOf(d.controller).AreKnown, Evaluator: d.controller.Lookup(), Registry: d.registry,
		Log: d.log})
	if err != nil {
		return err
	}
	observer, err := d.newObserver()
	if err != nil {
		return err
	}
	d.log.Info("weave-npc starts", "version", cli.Version(), "node", d.config.NodeName, "backend", d.backend,
		"because", d.backendReason, "metrics", observer.server.Addr(), "allow-action", d.config.AllowAction)
	if terminator != nil {
		d.syncer.Hooks.Edited, d.syncer.Hooks.Late = terminator.Ask, terminator.Late
		tasks.Go(func() error { return terminator.Run(ctx) })
	}
	d.guard.Config.Booting = host.Booting()
	boot := d.config.FailClosed != enforce.FailClosedNever && d.guard.Config.Booting
	if boot {
		d.log.Info("the node has no pods yet: unknown addresses of its pods are closed first")
		d.syncer.Sync(ctx, true) // what fails is tried again by Run
	}
	renewer, err := alive.Open(alive.Config{Idle: d.syncer.Idle, Log: d.log})
	if err != nil {
		return err
	}
	d.syncer.Hooks.Steady = renewer.Keep
	tasks.Go(func() error { return renewer.Run(ctx) })
	observer.start(ctx, tasks)
	tasks.Go(func() error { return d.guard.Run(ctx) })
	tasks.Go(func() error { return d.syncer.Run(ctx, boot) })
	tasks.Go(func() error { return d.source.Run(ctx, d.stage, d.log) })
	tasks.Go(func() error { return d.stage.Follow(ctx) })
	tasks.Go(func() error {
		return followAddrs(ctx, d.client, d.config.NodeName, d.controller.SetNodeAddrs, d.log)
	})
	tasks.Go(func() error { return d.uplinks.Run(ctx) })
	tasks.Go(func() error { return d.learn(ctx) })
	tasks.Go(func() error { return d.followModules(ctx) })
	tasks.Go(func() error { return host.FollowRedirects(ctx, d.log) })
	context.AfterFunc(d.syncer.Enforced(), debug.FreeOSMemory) // the memory for the first reading is not needed again
	if len(d.config.PodRanges) == 0 {
		tasks.Go(func() error {
			return awaitRanges(ctx, d.client, d.config.NodeName, d.controller.SetRanges, d.log)
		})
	}
	return tasks.Wait()
}
