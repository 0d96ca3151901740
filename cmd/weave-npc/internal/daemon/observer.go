package daemon

import (
	"context"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/daemon/httpserver"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/observe/dropped"
	"github.com/weave-npc/weave-npc/npc/observe/recorder"
	"github.com/weave-npc/weave-npc/ulogd"
)

// observer reports what happens on this node: metrics, readiness, profiles, blocked packets, connections. Enforcement
// does not depend on it.
type observer struct {
	blocked          *dropped.Reporter
	recorder         *recorder.Recorder // nil without --record-flows
	reports          ulogd.Config
	server, profiles *httpserver.Server
}

// newObserver opens the addresses and files that the flags name.
func (d *daemon) newObserver() (*observer, error) {
	ports, err := d.options.ports()
	if err != nil {
		return nil, err
	}
	x := &observer{blocked: dropped.NewReporter(d.controller.Lookup(), controller.NamesOf(d.controller), ports,
		d.registry, d.log)}
	x.reports = ulogd.Config{Groups: x.blocked.Groups(d.config.NFLogGroup), Mark: rules.BlockedMark,
		Recording: d.options.ulogdPcap, RecordingSize: d.options.ulogdPcapSize << 20,
		Log: d.log, Stats: new(ulogd.Stats)}
	if err := x.reports.Check(); err != nil {
		return nil, errors.Wrap(err, "--ulogd-pcap")
	}
	if x.recorder, err = d.newRecorder(); err != nil {
		return nil, err
	}
	notReady := httpserver.Prompt(d.notReady)
	registerReports(d.registry, x.reports.Stats)
	registerReadiness(d.registry, notReady)
	registerInputs(d.registry, d.source)
	registerNames(d.registry, controller.NamesOf(d.controller))
	if d.relay != nil {
		registerRelay(d.registry, d.relay.Stats())
	}
	if x.server, err = httpserver.Listen("--metrics-addr", d.options.metricsAddr, d.registry, notReady,
		d.guard.Reporter.Notice); err != nil {
		return nil, err
	}
	x.profiles, err = httpserver.ListenProfiles("--pprof-addr", d.options.pprofAddr)
	return x, err
}

// newRecorder opens what --record-flows asks for; nil if that is nothing.
func (d *daemon) newRecorder() (*recorder.Recorder, error) {
	if !d.options.flows {
		return nil, nil
	}
	r := recorder.New(recorder.Config{Node: d.config.NodeName, Records: d.options.flowsRecords,
		Directory: d.options.flowsDir, Socket: d.options.flowsSocket,
		Names: d.controller.Lookup(), Domains: controller.NamesOf(d.controller), Registry: d.registry, Log: d.log})
	return r, errors.Wrap(r.Open(), "--record-flows")
}

// start runs the observer until the context ends.
func (x *observer) start(ctx context.Context, tasks *errgroup.Group) {
	tasks.Go(func() error { return x.server.Run(ctx, x.reports.Log) })
	tasks.Go(func() error { return x.profiles.Run(ctx, x.reports.Log) })
	tasks.Go(func() error { return x.blocked.Run(ctx) })
	handle := x.blocked.Handle
	if x.recorder != nil {
		tasks.Go(func() error { return x.recorder.Run(ctx) })
		handle = func(p ulogd.Packet) {
			x.blocked.Handle(p)
			x.recorder.Denied(p)
		}
	}
	tasks.Go(func() error { return ulogd.Run(ctx, x.reports, handle) })
}
