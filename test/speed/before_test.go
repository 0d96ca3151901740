package speed

import (
	"os"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/synthetic"
)

// beforeVariable names another weave-npc, such as that of an earlier commit.
const beforeVariable = "WEAVE_NPC_TEST_BEFORE"

// BenchmarkStartAgainstAnother starts weave-npc as BenchmarkStart does, and another one in turn with it, and compares
// medians.
func BenchmarkStartAgainstAnother(b *testing.B) {
	other := os.Getenv(beforeVariable)
	if other == "" {
		b.Skipf("$%s names no weave-npc to compare with", beforeVariable)
	}
	binary := build(b)
	for _, c := range append([]synthetic.Cluster{{Namespaces: 1}}, synthetic.Sizes()[1:]...) {
		b.Run(c.String(), func(b *testing.B) {
			s := serve(b, objects(b, c))
			type figures struct{ time, memory []float64 }
			var before, now figures
			measure := func(binary string, f *figures) {
				clean(b, binary)
				p := startOurs(b, binary, s)
				defer p.end()
				time.Sleep(quiescence)
				f.time, f.memory = append(f.time, p.ready.Seconds()), append(f.memory, p.resident(b))
			}
			for b.Loop() {
				measure(other, &before)
				measure(binary, &now)
			}
			clean(b, binary)
			b.ReportMetric(median(now.time)*1e3, "start-ms")
			b.ReportMetric(median(now.time)/median(before.time), "x/before-start")
			b.ReportMetric(median(now.memory)/1e6, "resident-MB")
			b.ReportMetric(median(now.memory)/median(before.memory), "x/before-resident")
			b.ReportMetric(0, "ns/op")
		})
	}
}
