package domainnames

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
)

// BenchmarkLookup compares the median of lookups whose answers are held with that of another pod's, whose answers are
// not: ratio and added-us. The two take turns.
func BenchmarkLookup(b *testing.B) {
	for _, backend := range []lab.Backend{lab.NFT, lab.Legacy} {
		b.Run(string(backend), func(b *testing.B) {
			w := newWire(b, backend)
			other := w.pod("shop/other")
			w.iptables(npc.IPv4, "-I", "FORWARD", "-d", other.Addr4().String(), "-j", "ACCEPT")
			w.start()
			held, free := w.dial("udp", npc.IPv4), w.dialFrom(other, "udp", npc.IPv4)
			var times [2][]time.Duration
			for n := 0; b.Loop(); n++ {
				for i, conn := range []net.Conn{held, free} {
					began := time.Now()
					if err := ask(conn, npc.IPv4, fmt.Sprintf("n%d.d", n%1000)); err != nil {
						b.Fatal(err)
					}
					times[i] = append(times[i], time.Since(began))
				}
			}
			median := func(of []time.Duration) time.Duration { slices.Sort(of); return of[len(of)/2] }
			with, without := median(times[0]), median(times[1])
			b.ReportMetric(float64(with)/float64(without), "ratio")
			b.ReportMetric(float64(with-without)/float64(time.Microsecond), "added-us")
		})
	}
}

// BenchmarkAnswers has many connections of a pod ask at once. It reports how many answers the learner's thread handles
// in a second of its time, in the kernel and out of it.
func BenchmarkAnswers(b *testing.B) {
	const clients = 64
	w := newWire(b, lab.NFT)
	l := w.open(io.Discard)
	ctx, stop := context.WithCancel(b.Context())
	used := make(chan time.Duration)
	go func() {
		runtime.LockOSThread()
		_ = l.Run(ctx) // it returns no error
		var usage unix.Rusage
		_ = unix.Getrusage(unix.RUSAGE_THREAD, &usage) // without it nothing was used
		used <- time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}()
	await.That(b, "reading the queue", func() bool { return l.why() == nil })
	var asked atomic.Int64
	var all sync.WaitGroup
	for range clients {
		conn := w.dial("udp", npc.IPv4)
		all.Go(func() {
			for n := asked.Add(1); n <= int64(b.N); n = asked.Add(1) {
				if err := ask(conn, npc.IPv4, fmt.Sprintf("n%d.d", n%10000)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	answers := l.snapshot().Answers
	stop()
	b.ReportMetric(float64(answers)/(<-used).Seconds(), "answers/cpu-s")
}
