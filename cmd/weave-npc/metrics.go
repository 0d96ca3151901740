package main

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/weave-npc/weave-npc/npc/source"
	"github.com/weave-npc/weave-npc/ulogd"
)

// newRegistry is a registry with what is known of the process itself.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "weavenpc_build_info", Help: "What this was built from; always 1.",
		ConstLabels: prometheus.Labels{"version": version(), "goversion": runtime.Version()}})
	info.Set(1)
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), info)
	return r
}

// showReadiness registers whether the node is enforced as the objects want it.
func showReadiness(r prometheus.Registerer, notReady func() string) {
	gauge(r, "weavenpc_ready", "Whether this node is enforced as namespaces, pods and policies want it; /readyz says in words why not.",
		func() bool { return notReady() == "" })
}

// showInputs registers what could not be read of the objects.
func showInputs(r prometheus.Registerer, src source.Source) {
	number := func(name, help string, value func() int) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return float64(value()) }))
	}
	number("weavenpc_unread_inputs", "Kinds of objects, manifest files and directories that have never been read, and the name of this node if "+
		"neither a Node nor a pod has it; /readyz names them.", src.Unread)
	number("weavenpc_manifest_errors", "Manifest files and directories that are not in force as they are written now.", src.Errors)
	number("weavenpc_manifest_ignored_objects", "Objects in manifests of kinds that are not used.", src.Ignored)
}

// gauge registers a gauge that is 1 or 0.
func gauge(r prometheus.Registerer, name, help string, holds func() bool) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
		if holds() {
			return 1
		}
		return 0
	}))
}

// countReports registers what is counted of the way that reports of blocked packets take.
func countReports(r prometheus.Registerer, s *ulogd.Stats) {
	counter := func(name, help string, value func() uint64) {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
			func() float64 { return float64(value()) }))
	}
	counter("weavenpc_nflog_packets_total", "Blocked packets that the kernel reported and that were read.", s.Packets.Load)
	counter("weavenpc_nflog_lost_packets_total", "Blocked packets whose report the kernel could not hand over.", s.Lost.Load)
	counter("weavenpc_nflog_undecodable_packets_total", "Reports of blocked packets that are no IP packets.", s.Undecodable.Load)
	counter("weavenpc_nflog_unrecorded_packets_total", "Blocked packets that could not be written to --ulogd-pcap.", s.Unrecorded.Load)
	counter("weavenpc_ulogd_restarts_total", "Times that ulogd2 was started again.", s.Restarts.Load)
	gauge(r, "weavenpc_ulogd_running", "Whether ulogd2 runs, so that blocked packets are reported.", s.Running.Load)
}
