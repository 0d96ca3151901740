package daemon

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/npc/source"
	"github.com/weave-npc/weave-npc/npc/source/relayclient"
	"github.com/weave-npc/weave-npc/ulogd"
)

// newRegistry returns a registry with the metrics of the process itself.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "weavenpc_build_info",
		Help:        "Version of weave-npc and of Go that it was built with; always 1.",
		ConstLabels: prometheus.Labels{"version": cli.Version(), "goversion": runtime.Version()}})
	info.Set(1)
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), info)
	return r
}

// registerReadiness registers whether policies are enforced on this node.
func registerReadiness(r prometheus.Registerer, notReady func() string) {
	condition(r, "weavenpc_ready", "Whether policies are enforced on this node; /readyz gives the reason if not.",
		func() bool { return notReady() == "" })
}

// registerInputs registers the numbers of inputs that could not be read.
func registerInputs(r prometheus.Registerer, src source.Source) {
	gauge(r, "weavenpc_unsynced_inputs",
		"Kinds of objects, manifest files and directories that have never been read, and the name of this node if "+
			"neither a Node nor a pod has it; /readyz names them.", src.Unsynced)
	gauge(r, "weavenpc_manifest_errors",
		"Manifest files and directories whose present content is not in force.", src.Errors)
	gauge(r, "weavenpc_manifest_ignored_objects", "Objects in manifests of kinds that are not used.", src.Ignored)
}

// registerRelay registers what is read through the relay, and at the API server instead of it.
func registerRelay(r prometheus.Registerer, s *relayclient.Stats) {
	for through, p := range map[string]*relayclient.Place{"relay": &s.Relay, "api": &s.API} {
		labels := prometheus.Labels{"through": through}
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weavenpc_relay_watches", ConstLabels: labels,
			Help: "With --relay, kinds of objects that are watched, " +
				"by whether that is through the relay or at the API server."},
			func() float64 { return float64(p.Watches.Load()) }))
		counter(r, "weavenpc_relay_moves_total",
			"With --relay, watches that went on here after they were at another replica, or at the other of the two.",
			labels, p.Moves.Load)
		counter(r, "weavenpc_relay_lists_total", "With --relay, lists of one kind.", labels, p.Lists.Load)
	}
}

// gauge registers a gauge of what a function returns.
func gauge[N int | uint64](r prometheus.Registerer, name, help string, value func() N) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
		func() float64 { return float64(value()) }))
}

// condition registers a gauge that is 1 while a condition holds, else 0.
func condition(r prometheus.Registerer, name, help string, holds func() bool) {
	gauge(r, name, help, func() int {
		if holds() {
			return 1
		}
		return 0
	})
}

// counter registers a counter of what a function returns.
func counter(r prometheus.Registerer, name, help string, labels prometheus.Labels, value func() uint64) {
	r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels},
		func() float64 { return float64(value()) }))
}

// registerReports registers the counters of reports of blocked packets, from the kernel to the log.
func registerReports(r prometheus.Registerer, s *ulogd.Stats) {
	counter(r, "weavenpc_nflog_packets_total", "Reports of blocked packets that were read.", nil, s.Packets.Load)
	counter(r, "weavenpc_nflog_lost_packets_total", "Reports of blocked packets that the kernel lost.", nil, s.Lost.Load)
	counter(r, "weavenpc_nflog_undecodable_packets_total",
		"Reports of blocked packets that could not be decoded as IP packets.", nil, s.Undecodable.Load)
	counter(r, "weavenpc_nflog_unrecorded_packets_total",
		"Blocked packets that could not be written to --ulogd-pcap.", nil, s.Unrecorded.Load)
	counter(r, "weavenpc_ulogd_restarts_total", "Times that ulogd2 was started again.", nil, s.Restarts.Load)
	condition(r, "weavenpc_ulogd_running", "Whether ulogd2 runs, so that blocked packets are reported.", s.Running.Load)
}
