// Command plot draws what the benchmarks print, from its input, as the SVG files of docs/performance.md into the
// directory that it is given. What was measured several times is drawn by its median.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"github.com/pkg/errors"
)

// chart is one file.
type chart struct {
	file, title, x, y string
	ratios            bool // that are drawn as they are, and not their logarithms
	lines             []line
}

// line is what a metric of some benchmarks was, against the number in their names.
type line struct {
	label string
	name  *regexp.Regexp // of the benchmark; its only group is x
	value func(metrics map[string]float64) float64
}

func metric(unit string, scale float64) func(map[string]float64) float64 {
	return func(m map[string]float64) float64 { return m[unit] * scale }
}

// floor returns a function that computes the floor of a metric, from the metric and its ratio to the floor.
func floor(unit, ratio string) func(map[string]float64) float64 {
	return func(m map[string]float64) float64 { return m[unit] / m[ratio] }
}

func charts() []chart {
	events := chart{file: "events.svg", title: "An event, from the call to the plan", x: "pods", y: "µs"}
	for _, kind := range [...]string{
		"unrelated-pod", "related-pod", "local-pod", "policy", "peer-of-a-policy", "namespace",
	} {
		name := regexp.MustCompile("^BenchmarkEvent/" + kind + "/pods=([0-9]+)/")
		events.lines = append(events.lines, line{kind, name, metric("ns/op", 1e-3)})
	}
	start := regexp.MustCompile("^BenchmarkStart/pods=([0-9]+)/.*/local=")
	follow := regexp.MustCompile("^BenchmarkFollow/pods=([0-9]+)/")
	first := chart{file: "first-packet.svg", title: "A packet that opens a connection", x: "local policies", y: "µs"}
	named := chart{file: "named-namespaces.svg", title: "The same, by namespaces that a peer matches",
		x: "namespaces", y: "µs"}
	established := chart{file: "established-packet.svg", title: "A packet of a connection, to others' rules alone",
		x: "policies", y: "times", ratios: true}
	connections := chart{file: "connections.svg", title: "Connections of two isolated pods, to no policies at all",
		x: "policies", y: "times", ratios: true}
	pair := regexp.MustCompile("^BenchmarkConnections/policies=([1-9][0-9]*)/")
	for _, backend := range [...]string{"nft", "legacy"} {
		connections.lines = append(connections.lines, line{backend + ", connect", pair, metric(backend+"-x/floor-connect", 1)},
			line{backend + ", unanswered UDP", pair, metric(backend+"-x/floor-unreplied", 1)})
		for _, scene := range [...]struct{ name, path string }{
			{"one rule", ""}, {"kube-proxy, to", "kube-proxy/to-pod/"}, {"kube-proxy, from", "kube-proxy/from-pod/"},
		} {
			name := regexp.MustCompile("^BenchmarkEstablishedPacket/" + backend + "/" + scene.path +
				"pods=0/namespaces=[0-9]+/policies=([0-9]+)/")
			established.lines = append(established.lines,
				line{backend + ", " + scene.name, name, metric("x/floor", 1)})
		}
		policies := regexp.MustCompile("^BenchmarkFirstPacket/" + backend +
			"/pods=0/namespaces=[0-9]+/policies=([0-9]+)/")
		spaces := regexp.MustCompile("^BenchmarkFirstPacket/" + backend + "/named=([0-9]+)")
		first.lines = append(first.lines, line{backend + ", isolated", policies, metric("isolated-ns", 1e-3)},
			line{backend + ", not isolated", policies, metric("free-ns", 1e-3)},
			line{backend + ", floor", policies, metric("floor-ns", 1e-3)})
		named.lines = append(named.lines, line{backend + ", isolated", spaces, metric("isolated-ns", 1e-3)},
			line{backend + ", floor", spaces, metric("floor-ns", 1e-3)})
	}
	return []chart{events, first, named, established, connections, {
		file: "follow.svg", title: "An event, from the API server's socket to the kernel", x: "pods", y: "µs",
		lines: []line{
			{"time", follow, metric("p50-us", 1)}, {"time, informers", follow, floor("p50-us", "x/floor-p50")},
			{"processor", follow, metric("related-cpu-us", 1)},
			{"processor, informers", follow, floor("related-cpu-us", "x/floor-related-cpu")},
			{"unrelated, processor", follow, metric("cpu-us", 1)},
			{"unrelated, informers", follow, floor("cpu-us", "x/floor-cpu")},
		},
	}, {
		file: "start.svg", title: "From the start to enforced policies", x: "pods", y: "ms", lines: []line{
			{"weave-npc", start, metric("start-ms", 1)},
			{"informers alone", start, floor("start-ms", "x/floor-start")},
		},
	}, {
		file: "memory.svg", title: "Resident memory", x: "pods", y: "MB", lines: []line{
			{"weave-npc", start, metric("resident-MB", 1)},
			{"informers alone", start, floor("resident-MB", "x/floor-resident")},
		},
	}}
}

func main() {
	if err := run(os.Stdin, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, args []string) error {
	if len(args) != 1 {
		return errors.New("give the directory to write to")
	}
	results, err := read(in)
	if err != nil {
		return err
	}
	for _, c := range charts() {
		text, ok := c.draw(results)
		if !ok {
			fmt.Fprintf(os.Stderr, "plot: nothing was measured for %s\n", c.file)
			continue
		}
		if err := os.WriteFile(filepath.Join(args[0], c.file), []byte(text), 0o644); err != nil {
			return errors.Wrap(err, "writing a plot")
		}
	}
	return nil
}
