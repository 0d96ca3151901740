package ports_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/iptables/ports"
)

// BenchmarkFrames measures what a frame of a bound pod costs more than without bound sources. The thread that sends it
// also runs the bridge. What has passed the table is dropped.
func BenchmarkFrames(b *testing.B) {
	w := newWire(b)
	w.link("own", w.newBridge())
	nft(b, "add table bridge probe; add chain bridge probe c { type filter hook prerouting priority -390; policy drop; }")
	b.Cleanup(func() { nft(b, "delete table bridge probe") })
	own := endOf(5000)
	for _, n := range []int{3, 110, 1000} {
		off, on := pods(ports.Off, n), pods(ports.On, n)
		for _, s := range []*ports.State{&off, &on} {
			bind(s, w.index["own"], own, true)
		}
		for name, f := range map[string][]byte{"v4": udp(b, own.mac, own.v4, 1, 2), "v6": udp(b, own.mac, own.v6, 1, 2),
			"ARP": arp(b, own.mac, own.mac, own.v4, 1), "echo": icmp6(b, own.mac, own.v6, 128, 64, 0, 1, 0, 1),
			"advertisement": neighbour(b, own.mac, own.v6, 136, own.v6), "forged": udp(b, own.mac, netip.MustParseAddr("192.0.2.1"), 1, 2)} {
			b.Run(fmt.Sprintf("%s/ports=%d", name, n), func(b *testing.B) { w.compare(b, f, off, on) })
		}
	}
}

// compare reports the least cost of a frame in two states. It takes turns, as other work on the machine comes and goes.
func (w *wire) compare(b *testing.B, frame []byte, off, on ports.State) {
	const turn = 5000
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var cpu unix.CPUSet
	cpu.Set(0)
	if err := unix.SchedSetaffinity(0, &cpu); err != nil {
		b.Fatal(err)
	}
	var least [2]time.Duration
	for range max(b.N/turn, 20) {
		for i, s := range []ports.State{off, on} {
			write(b, s)
			time.Sleep(50 * time.Millisecond) // the kernel frees the former table
			before := time.Now()
			for range turn {
				if _, err := unix.Write(w.sockets["own"], frame); err != nil {
					b.Fatal(err)
				}
			}
			if cost := time.Since(before); least[i] == 0 || cost < least[i] {
				least[i] = cost
			}
		}
	}
	b.ReportMetric(float64(least[0])/turn, "off-ns/frame")
	b.ReportMetric(float64(least[1])/turn, "on-ns/frame")
	b.ReportMetric(float64(least[1]-least[0])/turn, "more-ns/frame")
}
