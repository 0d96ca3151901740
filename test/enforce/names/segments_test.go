package names

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// embedded is an answer in a text, with its length before it as in a stream, and that of the address 222.
func embedded() string {
	return string(framed(raw("\x03n77\x07example\x03com\x00", "\xc0\x0c", outside(4, 222))))
}

// texts returns texts that are answers, behind some bytes.
func texts(before int) []string {
	out := []string{strings.Repeat("-", before)}
	for range 3 {
		out = append(out, strings.Repeat(embedded(), 4))
	}
	return out
}

// TestS110_SegmentsThatLookLikeAnswers has web choose where segments of the resolver's answers begin: at answers in
// their texts.
func TestS110_SegmentsThatLookLikeAnswers(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := forging(t, backend, lab.Bridge, trusting("*.example.com"))
		web, began := w.Hosts["web"], 0
		capture, err := web.Capture("eth0")
		if err != nil {
			t.Fatal(err)
		}
		defer capture.Close()
		for before := range len(embedded()) {
			readTexts(t, w, before)
		}
		reaches(t, w, mustLookUp(t, w, "tcp", "n1.example.com.", 4), true)
		await.Within(t, e2e.Timeout, func() bool {
			began = 0
			for _, f := range capture.Frames() {
				p := gopacket.NewPacket(f.Data, layers.LayerTypeEthernet, gopacket.NoCopy)
				if tcp, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP); ok && !f.Outgoing &&
					strings.HasPrefix(string(tcp.Payload), embedded()) {
					began++
				}
			}
			return began > 0
		}, func() string { return "no segment begins with an answer" })
		t.Logf("%d segments begin with an answer", began)
		unlearned(t, w, "in a text", outside(4, 222))
		reaches(t, w, outside(4, 222), false)
	})
}

// readTexts has web ask for texts with the smallest segments and buffer that the kernel allows.
func readTexts(t *testing.T, w *e2e.Cluster, before int) {
	t.Helper()
	const least = 88
	dialer := net.Dialer{Timeout: e2e.Timeout, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, least)
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1)
		})
	}}
	if err := w.Hosts["web"].Do(func() error {
		c, err := dialer.DialContext(t.Context(), "tcp", netip.AddrPortFrom(w.Hosts["mon"].Addr4(), resolverPort).String())
		if err != nil {
			return err
		}
		defer c.Close()
		return askForTexts(c, before)
	}); err != nil {
		t.Fatal(err)
	}
}

// askForTexts asks for texts in a stream, and reads them a few bytes at a time.
func askForTexts(c net.Conn, before int) error {
	q := dnsmessage.Message{Questions: []dnsmessage.Question{{Class: dnsmessage.ClassINET, Type: dnsmessage.TypeTXT,
		Name: dnsmessage.MustNewName("t" + strconv.Itoa(before) + ".evil.org.")}}}
	message, err := q.Pack()
	if err != nil {
		return err
	}
	_ = c.SetDeadline(time.Now().Add(e2e.Timeout))
	if _, err := c.Write(framed(message)); err != nil {
		return err
	}
	_, err = readMessage(slowly{c})
	return err
}

// slowly reads a few bytes at a time.
type slowly struct{ net.Conn }

func (r slowly) Read(b []byte) (int, error) { return r.Conn.Read(b[:min(len(b), 7)]) }
