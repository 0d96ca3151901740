package main

import (
	"context"
	"io"
	"log/slog"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/events"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/host"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/httpserver"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/logging"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/nodeobject"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	npcnode "github.com/weave-npc/weave-npc/npc/node"
	"github.com/weave-npc/weave-npc/npc/nodeaddr"
	"github.com/weave-npc/weave-npc/npc/source"
)

// run enforces policies until the context ends. It returns errors only before it enforces any.
func run(ctx context.Context, o *options, stdout, stderr io.Writer) error {
	host.FollowMemoryLimit()
	log, config, err := o.validate(stderr)
	if err != nil {
		return err
	}
	src, client, err := open(o, config.NodeName, log)
	if err != nil {
		return err
	}
	backend, why, err := iptables.Detect(ctx, o.backend)
	if err != nil {
		return err
	}
	families := host.Families()
	registry, model := newRegistry(), npc.New(config)
	syncer, err := newSyncer(model, families, backend, registry, log, events.NewReporter(ctx, client, config.NodeName))
	if err != nil {
		return err
	}
	defer syncer.Close()
	attachment, follow := o.findAttachment(config, model, log)

	tasks, ctx := errgroup.WithContext(ctx)
	defer func() { _ = tasks.Wait() }() // the error is returned below, or caused by the end of the context
	if o.dryRun {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if err := nodeobject.Check(ctx, client, config.NodeName, log); err != nil {
			return err
		}
		tasks.Go(func() error { return src.Run(ctx, model, log) })
		return syncer.DryRun(ctx, stdout)
	}
	observer, err := o.newObserver(config, model, registry, log, func() string { return notReady(src, syncer, attachment, families) })
	if err != nil {
		return err
	}
	registerInputs(registry, src)
	log.Info("weave-npc starts", "version", version(), "node", config.NodeName, "backend", backend, "because", why,
		"metrics", observer.server.Addr(), "allow-action", config.AllowAction)
	if config.Hook == npc.HookForward && config.AllowAction == actionReturn {
		host.ReportForwardPolicy(ctx, backend, families, log)
	}
	boot := config.Gate != npc.GateOpen && npcnode.Booting()
	if boot {
		log.Info("the node has no pods yet: unknown addresses of its pods are closed first")
		syncer.Boot(ctx)
	}
	observer.start(ctx, tasks)
	tasks.Go(func() error { return syncer.Run(ctx, boot) })
	tasks.Go(func() error { return src.Run(ctx, model, log) })
	tasks.Go(func() error { return nodeobject.FollowAddrs(ctx, client, config.NodeName, model.SetNodeAddrs, log) })
	follow(ctx, tasks)
	context.AfterFunc(syncer.Enforced(), debug.FreeOSMemory) // the memory for the first reading is not needed again
	if len(config.PodRanges) == 0 {
		tasks.Go(func() error { return nodeobject.AwaitRanges(ctx, client, config.NodeName, model.SetRanges, log) })
	}
	return tasks.Wait()
}

// findAttachment returns how the pods of this node are attached, and a function that starts the tasks which follow the ports of their bridge. It
// passes the present uplinks to the model, for the first transaction.
func (o *options) findAttachment(c npc.Config, m *npc.Model, log *slog.Logger) (a npcnode.Attachment, watch func(context.Context, *errgroup.Group)) {
	a = npcnode.Attachment{Interface: c.PodInterface, BridgePort: c.BridgePort, InRange: m.InRange}
	f := &npcnode.Follower{Interface: c.PodInterface, Bridges: a.Bridges, Uplink: c.BridgePort,
		Found: func(u npcnode.Uplinks) { m.SetUplinks(u.Names, u.Behind, u.Here) }, Log: log}
	f.Look()
	g := npcnode.NewGuard(a, iptables.BridgeGuard{AllowVLAN: o.allowVLAN}, log)
	return a, func(ctx context.Context, tasks *errgroup.Group) {
		tasks.Go(func() error { return f.Run(ctx) })
		tasks.Go(func() error { return g.Run(ctx) })
	}
}

// newSyncer passes the addresses of this node to a model, and returns the model's syncer.
func newSyncer(m *npc.Model, fs []npc.Family, b iptables.Backend, r prometheus.Registerer, log *slog.Logger, e *events.Reporter) (*npc.Syncer, error) {
	own, err := nodeaddr.Read()
	if err != nil {
		return nil, err
	}
	m.SetNodeAddrs(own)
	s, err := npc.NewSyncer(m, fs, b, npc.NewMetrics(r, m), log, e.Policy)
	if err != nil {
		return nil, err
	}
	s.OnConflict(e.Conflict)
	return s, nil
}

// validate checks the flags, and returns the logger and the configuration that they ask for. It contacts no server.
func (o *options) validate(stderr io.Writer) (*slog.Logger, npc.Config, error) {
	log, err := logging.New(stderr, o.logLevel, o.logFormat)
	if err != nil {
		return nil, npc.Config{}, err
	}
	if err := o.checkBackend(); err != nil {
		return nil, npc.Config{}, err
	}
	if err := httpserver.CheckAddr("--metrics-addr", o.metricsAddr); err != nil {
		return nil, npc.Config{}, err
	}
	if err := httpserver.CheckAddr("--pprof-addr", o.pprofAddr); err != nil {
		return nil, npc.Config{}, err
	}
	config, err := o.config()
	if err != nil {
		return nil, npc.Config{}, err
	}
	config.TCPLiberal = npcnode.TCPLiberal()
	config.Booted = host.Booted
	klog.SetSlogLogger(log)
	return log, config, nil
}

// open returns the source of objects, and the client of its API server; the client is nil with --manifests. It sends no request yet.
func open(o *options, node string, log *slog.Logger) (source.Source, kubernetes.Interface, error) {
	if o.manifests != "" {
		src, err := source.FromManifests(o.manifests, node, log)
		return src, nil, err
	}
	client, _, err := source.Client(o.kubeconfig, version())
	if err != nil {
		return source.Source{}, nil, err
	}
	return source.FromAPI(client, node), client, nil
}

// notReady returns why policies are not enforced on this node; it is empty if they are.
func notReady(src source.Source, s *npc.Syncer, a npcnode.Attachment, fs []npc.Family) string {
	if why := src.WhyUnread(); why != "" {
		return why + "; what the kernel holds stays"
	}
	if why := s.Ready(); why != "" {
		return why
	}
	if why := npcnode.Missing(a.Interface); why != "" {
		return why
	}
	return a.BypassReason(fs)
}
