package main

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"runtime/debug"
	"time"

	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	npcnode "github.com/weave-npc/weave-npc/npc/node"
	"github.com/weave-npc/weave-npc/npc/nodeaddr"
	"github.com/weave-npc/weave-npc/npc/source"
	"github.com/weave-npc/weave-npc/npc/source/apiclient"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// askAgain is how long to wait before the API server is asked again for the node's ranges.
const askAgain = 5 * time.Second

// run enforces until the context ends. All errors that it returns come before any policy is enforced.
func run(ctx context.Context, o *options, stdout, stderr io.Writer) error {
	followMemoryLimit()
	log, config, err := o.prepare(stderr)
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
	families := familiesOfNode()
	registry, model := newRegistry(), npc.New(config)
	syncer, err := newSyncer(model, families, backend, registry, log, newEvents(ctx, client, config.NodeName))
	if err != nil {
		return err
	}
	defer syncer.Close()
	attachment, follow := o.findAttachment(model, log)

	tasks, ctx := errgroup.WithContext(ctx)
	defer func() { _ = tasks.Wait() }() // its error was returned, or came of ending
	if o.dryRun {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if err := findNode(ctx, client, config.NodeName, log); err != nil {
			return err
		}
		tasks.Go(func() error { return src.Run(ctx, model, log) })
		return syncer.DryRun(ctx, stdout)
	}
	observer, err := o.observe(model, registry, log, func() string { return notReady(src, syncer, attachment, families) })
	if err != nil {
		return err
	}
	showInputs(registry, src)
	log.Info("weave-npc starts", "version", version(), "node", config.NodeName, "backend", backend, "because", why,
		"metrics", observer.server.addr, "allow-action", config.AllowAction)
	reportForwardPolicy(ctx, config, backend, families, log)
	boot := config.Gate != npc.GateOpen && npcnode.Booting()
	if boot {
		log.Info("the node has no pods yet: unknown addresses of its pods are closed first")
		syncer.Boot(ctx)
	}
	observer.start(ctx, tasks)
	tasks.Go(func() error { return syncer.Run(ctx, boot) })
	tasks.Go(func() error { return src.Run(ctx, model, log) })
	tasks.Go(func() error { return followNodeAddrs(ctx, client, model, log) })
	follow(ctx, tasks)
	context.AfterFunc(syncer.Enforced(), debug.FreeOSMemory) // what reading everything took is not needed again
	if client != nil && len(config.PodRanges) == 0 {
		tasks.Go(func() error { return findRanges(ctx, client, model, log) })
	}
	return tasks.Wait()
}

// findAttachment returns how the pods of this node are attached, and what starts the tasks that follow the ports of their bridge. The model has
// the uplinks that there are already, for the first transaction.
func (o *options) findAttachment(m *npc.Model, log *slog.Logger) (a npcnode.Attachment, watch func(context.Context, *errgroup.Group)) {
	a = npcnode.Attachment{Interface: m.PodInterface, BridgePort: m.BridgePort, InRange: m.InRange}
	f := &npcnode.Follower{Interface: m.PodInterface, Bridges: a.Bridges, Uplink: m.BridgePort,
		Found: func(u npcnode.Uplinks) { m.SetUplinks(u.Names, u.Behind, u.Here) }, Log: log}
	f.Look()
	g := npcnode.NewGuard(a, iptables.BridgeGuard{AllowVLAN: o.allowVLAN}, log)
	return a, func(ctx context.Context, tasks *errgroup.Group) {
		tasks.Go(func() error { return f.Run(ctx) })
		tasks.Go(func() error { return g.Run(ctx) })
	}
}

// newSyncer returns the syncer of a model, which then knows the addresses of this node.
func newSyncer(m *npc.Model, fs []npc.Family, b iptables.Backend, r prometheus.Registerer, log *slog.Logger, e *events) (*npc.Syncer, error) {
	own, err := nodeaddr.Read()
	if err != nil {
		return nil, err
	}
	m.SetNodeAddrs(own)
	s, err := npc.NewSyncer(m, fs, b, npc.NewMetrics(r, m), log, e.policy)
	if err != nil {
		return nil, err
	}
	s.OnConflict(e.conflict)
	return s, nil
}

// prepare checks what does not depend on the node or on a server.
func (o *options) prepare(stderr io.Writer) (*slog.Logger, npc.Config, error) {
	log, err := o.logger(stderr)
	if err != nil {
		return nil, npc.Config{}, err
	}
	if err := o.checkBackend(); err != nil {
		return nil, npc.Config{}, err
	}
	if err := checkAddr("--metrics-addr", o.metricsAddr); err != nil {
		return nil, npc.Config{}, err
	}
	if err := checkAddr("--pprof-addr", o.pprofAddr); err != nil {
		return nil, npc.Config{}, err
	}
	config, err := o.config()
	if err != nil {
		return nil, npc.Config{}, err
	}
	config.TCPLiberal = npcnode.TCPLiberal()
	config.Booted = booted
	klog.SetSlogLogger(log)
	return log, config, nil
}

// open opens the API server, or the directory of manifests; client is nil for the latter. The API server is not asked
// anything yet.
func open(o *options, node string, log *slog.Logger) (source.Source, kubernetes.Interface, error) {
	if o.manifests != "" {
		src, err := source.FromManifests(o.manifests, node, log)
		return src, nil, err
	}
	client, _, err := apiclient.New(o.kubeconfig, version())
	if err != nil {
		return source.Source{}, nil, err
	}
	return source.FromAPI(client, node), client, nil
}

// findNode fails if the API server says that there is no such node. One that does not answer is no error: it will.
func findNode(ctx context.Context, client kubernetes.Interface, node string, log *slog.Logger) error {
	if client == nil {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, askAgain)
	defer cancel()
	_, err := snapshot.NodeRanges(asking, client, node)
	if apierrors.IsNotFound(errors.Cause(err)) {
		return err
	}
	if err != nil && ctx.Err() == nil {
		log.Warn("the API server does not answer, trying again", "error", err)
	}
	return nil
}

// familiesOfNode are those that the kernel of this node has.
func familiesOfNode() []npc.Family {
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		return []npc.Family{npc.IPv4}
	}
	return []npc.Family{npc.IPv4, npc.IPv6}
}

// followNodeAddrs keeps the model's addresses of this node up to date until the context ends.
func followNodeAddrs(ctx context.Context, client kubernetes.Interface, m *npc.Model, log *slog.Logger) error {
	f := nodeaddr.Follower{Set: m.SetNodeAddrs, Log: log}
	if client != nil {
		f.Ask = func(ctx context.Context) ([]netip.Addr, error) {
			ctx, cancel := context.WithTimeout(ctx, askAgain)
			defer cancel()
			return snapshot.NodeAddrs(ctx, client, m.NodeName)
		}
	}
	return f.Run(ctx)
}

// findRanges waits for the node's ranges of pod addresses, which may be assigned late.
func findRanges(ctx context.Context, client kubernetes.Interface, m *npc.Model, log *slog.Logger) error {
	for {
		ranges, err := snapshot.NodeRanges(ctx, client, m.NodeName)
		if len(ranges) > 0 {
			m.SetRanges(ranges)
			return nil
		}
		if err != nil {
			log.Debug("cannot find the node's ranges of pod addresses, trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(askAgain):
		}
	}
}

// notReady returns why the node is not enforced; it is empty if it is.
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
