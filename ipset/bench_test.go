package ipset

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// BenchmarkAdd100k creates a set of 100,000 commented addresses. "x-raw" is the ratio to sending the same messages,
// encoded before.
func BenchmarkAdd100k(b *testing.B) {
	const count = 100000
	set := Set{Name: "x", Type: HashIP, Family: IPv4}
	elements := addresses(count)
	c := open(b)
	var ours, raw time.Duration
	for b.Loop() {
		start := time.Now()
		apply(b, c, Op{Kind: Create, Set: set, Elements: elements})
		ours += time.Since(start)
		apply(b, c, Op{Kind: Destroy, Set: set})

		var messages [][]byte
		apply(b, c, Op{Kind: Create, Set: set, Elements: elements}, Op{Kind: Flush, Set: set})
		for rest := elements; len(rest) > 0; {
			var e encoder
			c.seq++
			rest = rest[e.change(Add, "x", rest, messageSize, c.seq):]
			messages = append(messages, e.buf)
		}
		first := c.seq - uint32(len(messages)) + 1
		start = time.Now()
		for i, message := range messages {
			c.out.buf = message
			if err := c.send(); err != nil {
				b.Fatal(err)
			}
			if err := c.receive(first+uint32(i), 1, func(p packet) (bool, error) { return true, nil }); err != nil {
				b.Fatal(err)
			}
		}
		raw += time.Since(start)
		c.out.buf = nil
		if n := get(b, c, "x").Elements; n != count {
			b.Fatalf("%d elements", n)
		}
		apply(b, c, Op{Kind: Destroy, Set: set})
	}
	b.ReportMetric(float64(ours.Nanoseconds())/float64(b.N*count), "ns/entry")
	b.ReportMetric(float64(ours)/float64(raw), "x-raw")
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
