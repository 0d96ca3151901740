// Package daemon has the daemon that enforces policies on a node.
//
//	root := daemon.Command()
//
//	command, flags ─▶ options ─▶ run ─▶ newDaemon ─▶ enforce; awaitModules and once more if the kernel lacks some
//
//	source.Source ─▶ stagedPolicies ─▶ controller ◀──▶ syncer ─▶ kernel
//	nodeobject (addresses, pod ranges of the Node), host (uplinks) ─▶ controller
//	kernel ─▶ ulogd ─▶ observer (log of blocked packets, recorder) ─▶ httpserver (metrics, readiness)
//	policies not enforced as specified: staged, syncer ─▶ eventReporter ─▶ Kubernetes Events
//
// The package connects the parts, and contains none of what they do. It imports nothing that answers questions: that is
// the job of packages kubectl and node. It needs Linux.
package daemon

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"sync/atomic"

	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli/sharedflags"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/daemon/httpserver"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/iptables/ports"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/binding"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/enforce/host"
	"github.com/weave-npc/weave-npc/npc/enforce/syncer"
	"github.com/weave-npc/weave-npc/npc/policy/staged"
	"github.com/weave-npc/weave-npc/npc/source"
	"github.com/weave-npc/weave-npc/npc/source/apiclient"
	"github.com/weave-npc/weave-npc/npc/source/relayclient"
)

// daemon has the parts of weave-npc. None of them runs before enforce or dryRun.
type daemon struct {
	options *options
	config  enforce.Config
	log     *slog.Logger

	source source.Source
	client kubernetes.Interface // nil with --manifests
	relay  *relayclient.Relay   // nil without --relay

	backend       iptables.Backend
	backendReason string // why this backend
	families      []npc.Family

	registry   *prometheus.Registry
	controller *controller.Controller
	stage      *stagedPolicies
	syncer     *syncer.Syncer
	attachment host.Attachment
	uplinks    *host.BridgeFollower
	guard      *binding.Guard
	reporter   *eventReporter
	// lack is what the kernel lacks while policies cannot be enforced; nil if nothing.
	lack atomic.Pointer[host.Lack]
}

func newDaemon(ctx context.Context, o *options, stderr io.Writer) (d *daemon, err error) {
	d = &daemon{options: o}
	if d.log, d.config, err = o.validate(stderr); err != nil {
		return nil, err
	}
	bindings, err := o.bindingConfig()
	if err != nil {
		return nil, err
	}
	if d.source, d.client, err = open(o, d.config.NodeName, d.log); err != nil {
		return nil, err
	}
	if d.relay, err = through(o, d.source, d.log); err != nil {
		return nil, err
	}
	if d.backend, d.backendReason, err = iptables.Detect(ctx, o.backend); err != nil {
		return nil, err
	}
	d.families = host.Families()
	d.registry, d.controller = newRegistry(), controller.New(d.config)
	d.reporter = newEventReporter(ctx, d.client, d.config.NodeName)
	if d.stage, err = newStage(stageConfig{Mode: staged.Mode(o.staged), Directory: o.stagedManifests,
		Enforced: d.withPorts(), Controller: d.controller, Report: d.reporter.Staged,
		Registry: d.registry, Log: d.log}); err != nil {
		return nil, err
	}
	if d.syncer, err = newSyncer(d.controller, d.families, d.backend, d.registry, d.log, d.reporter); err != nil {
		return nil, err
	}
	d.attach()
	d.bind(bindings)
	return d, nil
}

// attach finds out how the pods of this node are attached, and passes the present uplinks to the controller, for the
// first transaction.
func (d *daemon) attach() {
	config, c := d.config, d.controller
	d.attachment = host.Attachment{Interface: config.PodInterface, BridgePort: config.BridgePort,
		InRange: c.Lookup().InRange}
	d.uplinks = &host.BridgeFollower{Interface: config.PodInterface, Bridges: d.attachment.Bridges,
		Uplink: config.BridgePort,
		Found:  func(u host.Uplinks) { c.SetUplinks(u.Names, u.Behind, u.Here) }, Log: d.log}
	d.uplinks.Look()
}

// bind prepares the guard of the pods' ports.
func (d *daemon) bind(config binding.Config) {
	lookup, node := d.controller.Lookup(), d.config.NodeName
	owner := func(a netip.Addr) (binding.Owner, bool) {
		p, found := lookup.PodAt(a)
		return binding.Owner{UID: p.UID, Namespace: p.Namespace, Name: p.Name,
			Local: p.Node == node && !p.HostNetwork}, found
	}
	d.guard = binding.NewGuard(binding.Options{Attachment: d.attachment, Config: config,
		API: binding.API{Owner: owner, InRange: lookup.InRange,
			Reserved: func() []netip.Addr { return controller.ResolversOf(d.controller) }},
		Isolating: lookup.AnyIsolated, Synced: d.controller.Synced, Unlisted: d.controller.SetUnlisted, Kernel: ports.Tables{}, Generation: iptables.Generation,
		Reporter: binding.NewReporter(d.registry, d.log, d.reporter.Forged), Log: d.log})
}

// notReady returns why policies are not enforced on this node; it is empty if they are.
func (d *daemon) notReady() string {
	if why := d.source.WhyUnsynced(); why != "" {
		return why + "; what the kernel holds stays"
	}
	if why := d.syncer.Ready(); why != "" {
		if lack := d.lack.Load(); lack != nil {
			why += "; " + lack.String()
		}
		return why
	}
	if why := host.Missing(d.attachment.Interface); why != "" {
		return why
	}
	if err := controller.NamesOf(d.controller).Err(); err != nil {
		return "domainNames of policies match nothing: " + err.Error()
	}
	lookup := d.controller.Lookup()
	return d.attachment.BypassReason(d.families, func(a netip.Addr) bool { return lookup.NameOf(a) == "node" })
}

// newSyncer passes the addresses of this node to a controller, and returns its syncer.
func newSyncer(c *controller.Controller, fs []npc.Family, b iptables.Backend, r prometheus.Registerer, log *slog.Logger,
	e *eventReporter,
) (*syncer.Syncer, error) {
	own, err := host.ReadAddrs()
	if err != nil {
		return nil, err
	}
	c.SetNodeAddrs(own)
	s, err := syncer.New(c, fs, b, syncer.NewMetrics(r, c, fs), log, e.Policy)
	if err != nil {
		return nil, err
	}
	s.OnConflict(e.Conflict)
	return s, nil
}

// open returns the source of objects, and the client of its API server; the client is nil with --manifests. It sends no
// request yet.
func open(o *options, node string, log *slog.Logger) (source.Source, kubernetes.Interface, error) {
	if o.manifests != "" {
		src, err := source.FromManifests(o.manifests, node, log)
		return src, nil, err
	}
	client, config, err := apiclient.New(o.kubeconfig, cli.Version())
	if err != nil {
		return source.Source{}, nil, err
	}
	policies, err := apiclient.NewPolicyClient(client, config)
	if err != nil {
		return source.Source{}, nil, err
	}
	return source.FromAPI(client, policies, node), client, nil
}

// through has a source read through the relay of --relay. It returns nil without one, and sends no request yet.
func through(o *options, src source.Source, log *slog.Logger) (*relayclient.Relay, error) {
	switch {
	case o.relay.Address == "":
		return nil, nil //nolint:nilnil // as said
	case o.manifests != "":
		return nil, errors.New("--relay and --manifests: give one of them")
	}
	config := o.relay
	config.Version, config.Log = cli.Version(), log
	r, err := relayclient.New(config)
	if err != nil {
		return nil, errors.Wrap(err, "--relay")
	}
	client, access, err := r.Client()
	if err != nil {
		return nil, err
	}
	policies, err := apiclient.NewPolicyClient(client, access)
	if err != nil {
		return nil, err
	}
	src.Through(r, client, policies)
	return r, nil
}

// validate checks the flags, and returns the logger and the configuration that they ask for. It contacts no server.
func (o *options) validate(stderr io.Writer) (*slog.Logger, enforce.Config, error) {
	log, err := newLogger(stderr, o.logLevel, o.logFormat)
	if err != nil {
		return nil, enforce.Config{}, err
	}
	if err := sharedflags.CheckBackend(o.backend); err != nil {
		return nil, enforce.Config{}, err
	}
	if err := httpserver.CheckAddr("--metrics-addr", o.metricsAddr); err != nil {
		return nil, enforce.Config{}, err
	}
	if err := httpserver.CheckAddr("--pprof-addr", o.pprofAddr); err != nil {
		return nil, enforce.Config{}, err
	}
	config, err := o.config()
	if err != nil {
		return nil, enforce.Config{}, err
	}
	config.TCPLiberal = host.TCPLiberal()
	config.Booted = host.Booted
	klog.SetSlogLogger(log)
	return log, config, nil
}
