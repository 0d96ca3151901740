package observe

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// TestS99_ConnectionsOfAFloodAreRecorded or counted as lost, each of them.
func TestS99_ConnectionsOfAFloodAreRecorded(t *testing.T) {
	rate, length := 2000, 3*time.Second
	if text := os.Getenv(floodVariable); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
		rate = 20000
	}
	w := startRecording(t, lab.NFT, recorded())
	d := w.Daemons[0]
	e2e.Run(t, d.Node.Host, "conntrack", "-F") // which brings the settings
	e2e.Run(t, d.Node.Host, "sysctl", "-qw", "net.netfilter.nf_conntrack_udp_timeout=4")
	e2e.Run(t, w.Hosts["mon"], "iptables-nft", strings.Fields("-w -t raw -A PREROUTING -p udp --dport 9 -j DROP")...)
	before := e2e.UsageOf(t, d.Cmd.Process.Pid)
	from, to := w.Hosts["web"].Addr4(), w.Hosts["mon"].Addr4()
	packet := make([]byte, 32)
	packet[0], packet[8], packet[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(packet[2:], uint16(len(packet)))
	copy(packet[12:], from.AsSlice())
	copy(packet[16:], to.AsSlice())
	binary.BigEndian.PutUint16(packet[22:], 9)
	binary.BigEndian.PutUint16(packet[24:], uint16(len(packet)-20))
	f := startSending(t, w, "web", "mon", rate, unix.SOCK_RAW, unix.IPPROTO_RAW, func(fd, n int) error {
		binary.BigEndian.PutUint16(packet[20:], uint16(1024+n%64000)) // after three seconds and more, when the kernel has forgotten it
		binary.BigEndian.PutUint16(packet[22:], uint16(9+n/64000%2*1000))
		return unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: to.As4()})
	})
	time.Sleep(length)
	f.stop()
	sent := <-f.sent
	var recorded, lost, reached int
	await.Within(t, e2e.Timeout, func() bool {
		recorded, lost, reached = 0, d.Metric(t, "weavenpc_flows_lost_events_total"), f.reached(t)
		for _, r := range flowsOf(t, d, "--from", "shop/web", "--to", "ops/mon") {
			recorded += int(r.Count)
		}
		return recorded+lost == reached && reached >= sent/4
	}, func() string {
		return fmt.Sprintf("of %d connections, %d have reached the node, %d are recorded and %d lost", sent, reached,
			recorded, lost)
	})
	after := e2e.UsageOf(t, d.Cmd.Process.Pid)
	t.Logf("%d connections in %s, %d recorded, %d lost; weave-npc %s of CPU, %d KiB (before %d)", sent, length,
		recorded, lost, after.CPU-before.CPU,
		after.RSS, before.RSS)
}
