package ipset

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
)

// BenchmarkAdd100k creates a set of 100,000 commented addresses. "x-raw" is the ratio to sending the same messages,
// encoded before, to a new set, in the median of the rounds.
func BenchmarkAdd100k(b *testing.B) {
	const count = 100000
	set := Set{Name: "x", Type: HashIP, Family: IPv4}
	elements := addresses(count)
	c := open(b)
	var ours, ratios []float64
	for b.Loop() {
		start := freshTime()
		apply(b, c, Op{Kind: Create, Set: set, Elements: elements})
		took := time.Since(start)
		apply(b, c, Op{Kind: Destroy, Set: set})
		ours = append(ours, float64(took)/count)
		ratios = append(ratios, float64(took)/float64(raw(b, c, set, elements)))
	}
	b.ReportMetric(median(ours), "ns/entry")
	b.ReportMetric(median(ratios), "x-raw")
	b.ReportMetric(0, "ns/op")
}

// raw is how long the kernel takes for elements of a new set.
func raw(b *testing.B, c *Conn, set Set, elements []Element) time.Duration {
	b.Helper()
	var messages [][]byte
	first := c.seq + 1
	for rest := elements; len(rest) > 0; {
		var e encoder
		c.seq++
		rest = rest[e.change(Add, set.Name, rest, messageSize, c.seq):]
		messages = append(messages, e.buf)
	}
	var e encoder
	c.seq++
	e.create(set, hashSize(len(elements), set.limit()), 0, c.seq)
	exchange(b, c, c.seq, e.buf)
	start := freshTime()
	exchange(b, c, first, messages...)
	took := time.Since(start)
	c.out.buf = nil
	if n := len(get(b, c, set.Name).Members); n != len(elements) {
		b.Fatalf("%d elements", n)
	}
	apply(b, c, Op{Kind: Destroy, Set: set})
	return took
}

// exchange sends messages whose sequence numbers follow each other, and waits for each answer.
func exchange(b *testing.B, c *Conn, first uint32, messages ...[]byte) {
	b.Helper()
	for i, message := range messages {
		c.out.buf = message
		if err := c.send(); err != nil {
			b.Fatal(err)
		}
		if err := c.receive(first+uint32(i), 1, func(packet) (bool, error) { return true, nil }); err != nil {
			b.Fatal(err)
		}
	}
}

// freshTime is the time after garbage was collected that is not what is measured.
func freshTime() time.Time {
	runtime.GC()
	return time.Now()
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// many is 5,000 sets of 20 addresses.
func many() []Op {
	ops := make([]Op, 5000)
	for i := range ops {
		set := Set{Name: fmt.Sprintf("weave-%025d", i), Type: HashIP, Family: IPv4}
		ops[i] = Op{Kind: Create, Set: set, Elements: addresses(20)}
	}
	return ops
}

func BenchmarkList5000x20(b *testing.B) {
	c := open(b)
	apply(b, c, many()...)
	b.ReportAllocs()
	for b.Loop() {
		if lists, err := c.List("weave-"); err != nil || len(lists) != 5000 {
			b.Fatal(len(lists), err)
		}
	}
}

func BenchmarkHeaders5000(b *testing.B) {
	c := open(b)
	apply(b, c, many()...)
	b.ReportAllocs()
	for b.Loop() {
		if headers, err := c.Headers("weave-"); err != nil || len(headers) != 5000 {
			b.Fatal(len(headers), err)
		}
	}
}

// BenchmarkCreate1000x20 creates and destroys 1,000 sets of 20 addresses, again and again in one namespace.
func BenchmarkCreate1000x20(b *testing.B) {
	c := open(b)
	ops := many()[:1000]
	var destroy []Op
	for _, op := range slices.Backward(ops) {
		destroy = append(destroy, Op{Kind: Destroy, Set: op.Set})
	}
	for b.Loop() {
		apply(b, c, ops...)
		apply(b, c, destroy...)
	}
}
