package main

import (
	"context"
	"log/slog"

	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/weave-npc/weave-npc/npc/controller"
	"github.com/weave-npc/weave-npc/npc/rules"
	"github.com/weave-npc/weave-npc/ulogd"
)

// observer tells what is going on. Enforcement does not know that it exists.
type observer struct {
	blocked          *blocked
	reports          ulogd.Config
	server, profiles *server
}

// observe opens what the flags ask for.
func (o *options) observe(m *controller.Controller, r *prometheus.Registry, log *slog.Logger, notReady func() string) (*observer, error) {
	ports, err := o.ports()
	if err != nil {
		return nil, err
	}
	x := &observer{blocked: newBlocked(m, ports, r, log)}
	x.reports = ulogd.Config{Groups: x.blocked.groups(m.NFLogGroup), Mark: rules.BlockedMark, Recording: o.ulogdPcap, RecordingSize: o.ulogdPcapSize << 20,
		Log: log, Stats: new(ulogd.Stats)}
	if err := x.reports.Check(); err != nil {
		return nil, errors.Wrap(err, "--ulogd-pcap")
	}
	countReports(r, x.reports.Stats)
	notReady = neverLate(notReady)
	showReadiness(r, notReady)
	if x.server, err = listen(o.metricsAddr, r, notReady); err != nil {
		return nil, err
	}
	x.profiles, err = listenProfiles(o.pprofAddr)
	return x, err
}

func (x *observer) start(ctx context.Context, tasks *errgroup.Group) {
	tasks.Go(func() error { return x.server.run(ctx, x.reports.Log) })
	tasks.Go(func() error { return x.profiles.run(ctx, x.reports.Log) })
	tasks.Go(func() error { return x.blocked.run(ctx) })
	tasks.Go(func() error { return ulogd.Run(ctx, x.reports, x.blocked.handle) })
}
