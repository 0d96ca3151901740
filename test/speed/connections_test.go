package speed

import (
	"strings"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/synthetic"
)

// BenchmarkConnections opens connections between two pods of a bridge, and uses them: with a bridge alone, with
// br_netfilter and conntrack (the floor), and with weave-npc on each backend, in turns. A ratio is the median of those
// of all turns. "connections" and "throughput" are rates, the others times.
func BenchmarkConnections(b *testing.B) {
	binary, all := build(b), bridges(b)
	for _, pair := range synthetic.Pairs() {
		b.Run(pair.String(), func(b *testing.B) {
			for _, br := range all {
				br.enforce(b, binary, pair)
			}
			time.Sleep(quiescence)
			takeTurns(b, all, map[string][]float64{}) // resolves neighbours
			measured := map[string][]float64{}        // unit -> value of each turn
			for b.Loop() {
				for range 100 {
					takeTurns(b, all, measured)
				}
			}
			for unit, values := range measured {
				b.ReportMetric(median(values), unit)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// takeTurns measures everything with each bridge, once, and adds the ratios to those of earlier turns. Another bridge
// is the first the next time.
func takeTurns(b *testing.B, all []*bridge, measured map[string][]float64) {
	b.Helper()
	for _, br := range all {
		if err := br.flush(); err != nil {
			b.Fatal(err)
		}
	}
	for _, m := range measurements() {
		values := map[string][]float64{} // kind -> a value for each name of the measurement
		for _, br := range all {
			v, err := br.measure(m.measure)
			if err != nil {
				b.Fatal(err)
			}
			values[br.kind] = v
		}
		for i, name := range m.names {
			floor := values["floor"][i]
			measured["floor-"+name] = append(measured["floor-"+name], floor)
			for kind, v := range values {
				if kind != "floor" {
					unit := kind + "-x/floor-" + name[:strings.IndexAny(name, "/-")]
					measured[unit] = append(measured[unit], v[i]/floor)
				}
			}
		}
	}
	first := all[0]
	copy(all, all[1:])
	all[len(all)-1] = first
}
