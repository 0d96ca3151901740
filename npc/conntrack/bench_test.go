package conntrack

import (
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// many makes TCP connections of 1,000 clients.
func many(b *testing.B, table *Table, count int) {
	b.Helper()
	all := make([]made, count)
	for i := range all {
		a := netip.AddrFrom4([4]byte{10, 40, byte(i % 1000 >> 8), byte(i % 1000)}).String()
		all[i] = made{source: a, destination: "10.32.1.3", protocol: unix.IPPROTO_TCP, sourcePort: uint16(1 + i/1000), port: 80, attrs: tcpInfo(3, 0, 0)}
	}
	create(b, table, all...)
}

// cpu returns the processor time of this thread.
func cpu(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkEntries lists a table with 100,000 connections; none, one in a thousand or all are wanted, or marked.
func BenchmarkEntries(b *testing.B) {
	table := open(b, unix.AF_INET)
	many(b, table, 100_000)
	one := netip.MustParseAddr("10.40.1.1")
	var some []Entry
	all := func(_, _ netip.Addr) bool { return true }
	ofOne := func(a, _ netip.Addr) bool { return a == one }
	if err := table.Entries(ofOne, func(e Entry) { some = append(some, e) }); err != nil {
		b.Fatal(err)
	}
	if _, err := table.Terminate(some, bit, true); err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		list func(handle func(Entry)) error
		want int
	}{
		{"none", func(h func(Entry)) error { return table.Entries(func(_, _ netip.Addr) bool { return false }, h) }, 0},
		{"of one", func(h func(Entry)) error { return table.Entries(ofOne, h) }, 100},
		{"all", func(h func(Entry)) error { return table.Entries(all, h) }, 100_000},
		{"marked", func(h func(Entry)) error {
			marked, err := table.Marked(bit)
			for _, e := range marked {
				h(e)
			}
			return err
		}, 100},
	} {
		b.Run(c.name, func(b *testing.B) {
			runtime.LockOSThread() // the thread's time is measured
			defer runtime.UnlockOSThread()
			start := cpu(b)
			for b.Loop() {
				got := 0
				if err := c.list(func(Entry) { got++ }); err != nil || got != c.want {
					b.Fatalf("%d, %v", got, err)
				}
			}
			b.ReportMetric(float64((cpu(b)-start).Milliseconds())/float64(b.N), "cpu-ms/op")
		})
	}
}

// BenchmarkTerminate terminates TCP connections and restores them.
func BenchmarkTerminate(b *testing.B) {
	table := open(b, unix.AF_INET)
	const count = 20_000
	var cut, restored time.Duration
	for b.Loop() {
		b.StopTimer()
		clearTable(b, table)
		many(b, table, count)
		all := list(b, table)
		b.StartTimer()
		start := cpu(b)
		if gone, err := table.Terminate(all, bit, true); gone > 0 || err != nil {
			b.Fatal(gone, err)
		}
		middle := cpu(b)
		if err := table.Restore(all, bit); err != nil {
			b.Fatal(err)
		}
		cut, restored = cut+middle-start, restored+cpu(b)-middle
	}
	b.ReportMetric(float64(cut.Nanoseconds())/float64(b.N*count), "cpu-ns/terminate")
	b.ReportMetric(float64(restored.Nanoseconds())/float64(b.N*count), "cpu-ns/restored")
}
