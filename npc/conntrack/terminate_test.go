package conntrack

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/await"
)

// TestS96_ACutTCPConnectionStaysCut whichever end speaks first, and when the other does after the kernel would have
// forgotten the connection that the reset closed. The other direction is allowed: taken up in reverse, it would pass.
func TestS96_ACutTCPConnectionStaysCut(t *testing.T) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		for _, reject := range []bool{true, false} {
			for _, clientFirst := range []bool{true, false} {
				name := fmt.Sprintf("IPv6=%t/reset=%t/clientFirst=%t", family == unix.AF_INET6, reject, clientFirst)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					n := newNetwork(t, family, reject)
					staysTerminated(n, reject, clientFirst)
				})
			}
		}
	}
}

func staysTerminated(n *network, reject, clientFirst bool) {
	t := n.t
	first, second := n.tcp()
	if !clientFirst {
		first, second = second, first
	}
	// What is closed, or not answered three times, is forgotten after a second. A SYN would be too, which IPv6 may answer
	// later, while the router looks for duplicates of its address: the connection would then be taken up in mid-stream.
	n.sysctl("netfilter/nf_conntrack_tcp_timeout_close", 1)
	n.sysctl("netfilter/nf_conntrack_tcp_timeout_max_retrans", 1)
	n.sysctl("netfilter/nf_conntrack_tcp_max_retrans", 1)
	n.sysctl("netfilter/nf_conntrack_tcp_loose", 1)
	table := n.table()
	n.rule("-A", "FORWARD", "-p", "tcp") // counts
	n.cut(table)
	expect := func(who string, err error) {
		t.Helper()
		if reject != errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s end has %v", who, err)
		}
	}
	n.speak(first, second, false)
	expect("the first", readError(first, reject))
	if state := n.only(table).state; reject != (state == stateClose) {
		t.Errorf("the state is %d", state)
	}
	time.Sleep(1500 * time.Millisecond)
	n.speak(second, first, false)
	expect("the second", readError(second, reject))
	n.speak(first, second, false)
	marked, err := n.table().Marked(bit) // as after a restart
	n.must(err)
	if len(marked) != 1 || !marked[0].Pinned() || marked[0].Source != n.client || marked[0].expiry < 1000 {
		t.Errorf("marked are %+v", marked)
	}
	if got := n.passed(); got != 0 {
		t.Errorf("%d packets passed", got)
	}
}

// readError returns the error of a read, which waits for a reset that has to come as long as a busy machine needs.
func readError(c interface {
	SetReadDeadline(time.Time) error
	Read([]byte) (int, error)
}, reset bool) error {
	within := 300 * time.Millisecond
	if reset {
		within = await.Scaled(20 * time.Second)
	}
	_ = c.SetReadDeadline(time.Now().Add(within))
	_, err := c.Read(make([]byte, 100))
	return err
}

// TestS96_UDPIsTerminatedUntilIdle: datagrams are stopped, and each keeps the connection alive.
func TestS96_UDPIsTerminatedUntilIdle(t *testing.T) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		n := newNetwork(t, family, true)
		client, server := n.udp()
		n.sysctl("netfilter/nf_conntrack_udp_timeout", 6) // of what comes next
		n.sysctl("netfilter/nf_conntrack_udp_timeout_stream", 6)
		table := n.table()
		n.cut(table)
		for range 4 {
			n.speak(client, server, false)
			n.speak(server, client, false)
		}
		e := n.only(table)
		if e.Pinned() || e.Mark != bit || e.Protocol != unix.IPPROTO_UDP || e.Port != 53 || e.Source != n.client || e.Destination != n.server {
			t.Errorf("it is %+v", e)
		}
		time.Sleep(6500 * time.Millisecond)
		n.speak(client, server, true)
		if e = n.only(table); e.Mark != 0 {
			t.Errorf("a new connection has the mark %#x", e.Mark)
		}
	}
}

// TestS98_OtherBitsStay while ours is set and cleared, and ours while others are.
func TestS98_OtherBitsStay(t *testing.T) {
	n := newNetwork(t, unix.AF_INET, true)
	client, server := n.udp()
	table := n.table()
	n.rule("-t", "mangle", "-A", "PREROUTING", "-j", "CONNMARK", "--set-xmark", "0x50/0xf0")
	n.speak(client, server, true)
	mark := func(when string, want uint32) {
		t.Helper()
		if e := n.only(table); e.Mark != want {
			t.Errorf("%s the mark is %#x, not %#x", when, e.Mark, want)
		}
	}
	mark("before", 0x50)
	n.cut(table)
	mark("terminated,", 0x50|bit)
	n.must(table.Restore([]Entry{n.only(table)}, bit))
	mark("restored,", 0x50)
	n.cut(table)
	n.rule("-t", "mangle", "-R", "PREROUTING", "1", "-j", "CONNMARK", "--set-xmark", "0xa0000000/0xf00000f0")
	n.speak(client, server, false)
	mark("with other bits while it is terminated,", 0xa0000000|bit)
	marked, err := table.Marked(bit)
	n.must(err)
	if len(marked) != 1 {
		t.Fatalf("marked are %+v", marked)
	}
	n.must(table.Restore(marked, bit))
	mark("restored,", 0xa0000000)
	if marked, err := table.Marked(bit); len(marked) > 0 || err != nil {
		t.Errorf("marked are %+v, %v", marked, err)
	}
	n.speak(client, server, true)
}

// TestWhatIsTakenUpInMidStreamIsLiberal, and also reversed, if the server speaks first.
func TestWhatIsTakenUpInMidStreamIsLiberal(t *testing.T) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		n := newNetwork(t, family, true)
		client, server := n.tcp()
		table := n.table()
		if e := n.only(table); e.Liberal || e.Source != n.client || e.Port != 8080 || e.Protocol != unix.IPPROTO_TCP {
			t.Errorf("begun by the client: %+v", e)
		}
		clearTable(t, table)
		n.speak(server, client, true)
		if e := n.only(table); !e.Liberal || e.Source != n.server {
			t.Errorf("taken up: %+v", e)
		}
		n.cut(table)
		n.speak(client, server, false)
	}
}

// TestRestore in each state.
func TestRestore(t *testing.T) {
	t.Run("established", func(t *testing.T) {
		n := newNetwork(t, unix.AF_INET, true)
		client, server := n.tcp()
		table := n.table()
		n.cut(table)
		before := n.only(table)
		n.must(table.Restore([]Entry{before}, bit))
		if e := n.only(table); e.Mark != 0 || !e.Pinned() || e.Name != before.Name {
			t.Errorf("restored: %+v", e)
		}
		n.speak(client, server, true)
		n.speak(server, client, true)
		n.cut(table) // pinned already
		n.speak(server, client, false)
		if e := n.only(table); e.Mark != bit || !e.Pinned() {
			t.Errorf("terminated again: %+v", e)
		}
	})
	t.Run("closed", func(t *testing.T) {
		n := newNetwork(t, unix.AF_INET, true)
		client, server := n.tcp()
		table := n.table()
		n.cut(table)
		n.speak(client, server, false)
		e := n.only(table)
		n.must(table.Restore([]Entry{e}, bit))
		if left := n.entries(table); len(left) > 0 {
			t.Errorf("left are %+v", left)
		}
		n.must(table.Restore([]Entry{e}, bit)) // gone
		n.tcp()
	})
	t.Run("gone", func(t *testing.T) {
		n := newNetwork(t, unix.AF_INET, true)
		n.udp()
		table := n.table()
		e := n.only(table)
		clearTable(t, table)
		n.must(table.Restore([]Entry{e}, bit))
	})
}
