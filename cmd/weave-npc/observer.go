package main

import (
	"context"
	"log/slog"

	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/blocked"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/httpserver"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/rules"
	"github.com/weave-npc/weave-npc/ulogd"
)

// observer reports what happens on this node: metrics, readiness, profiles, blocked packets. Enforcement does not depend on it.
type observer struct {
	blocked          *blocked.Reporter
	reports          ulogd.Config
	server, profiles *httpserver.Server
}

// newObserver opens the addresses and files that the flags name.
func (o *options) newObserver(c npc.Config, m *npc.Model, r *prometheus.Registry, log *slog.Logger, notReady func() string) (*observer, error) {
	ports, err := o.ports()
	if err != nil {
		return nil, err
	}
	x := &observer{blocked: blocked.NewReporter(m, ports, r, log)}
	x.reports = ulogd.Config{Groups: x.blocked.Groups(c.NFLogGroup), Mark: rules.BlockedMark, Recording: o.ulogdPcap, RecordingSize: o.ulogdPcapSize << 20,
		Log: log, Stats: new(ulogd.Stats)}
	if err := x.reports.Check(); err != nil {
		return nil, errors.Wrap(err, "--ulogd-pcap")
	}
	registerReports(r, x.reports.Stats)
	notReady = httpserver.Prompt(notReady)
	registerReadiness(r, notReady)
	if x.server, err = httpserver.Listen("--metrics-addr", o.metricsAddr, r, notReady); err != nil {
		return nil, err
	}
	x.profiles, err = httpserver.ListenProfiles("--pprof-addr", o.pprofAddr)
	return x, err
}

// start runs the observer until the context ends.
func (x *observer) start(ctx context.Context, tasks *errgroup.Group) {
	tasks.Go(func() error { return x.server.Run(ctx, x.reports.Log) })
	tasks.Go(func() error { return x.profiles.Run(ctx, x.reports.Log) })
	tasks.Go(func() error { return x.blocked.Run(ctx) })
	tasks.Go(func() error { return ulogd.Run(ctx, x.reports, x.blocked.Handle) })
}
