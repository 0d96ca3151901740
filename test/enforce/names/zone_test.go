package names

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// resolverPort is the port of the resolver: all hosts answer something on port 53.
const resolverPort = 5353

// outsideNets are the networks whose addresses a host outside has, besides its own.
var outsideNets = map[int]netip.Prefix{4: netip.MustParsePrefix("203.0.113.0/24"), 6: netip.MustParsePrefix("2001:db8:cb::/64")}

// serve starts a resolver on UDP and TCP at a host's main addresses until the test ends.
func serve(t *testing.T, h *lab.Host) {
	t.Helper()
	e2e.EachFamily(func(family int) {
		at := netip.AddrPortFrom(h.Addr(family), resolverPort).String()
		if err := h.Do(func() error {
			packets, err := net.ListenPacket("udp", at)
			if err != nil {
				return err
			}
			streams, err := net.Listen("tcp", at)
			if err != nil {
				return err
			}
			t.Cleanup(func() { _, _ = packets.Close(), streams.Close() })
			go servePackets(packets)
			go serveStreams(streams)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}

func servePackets(c net.PacketConn) {
	buf := make([]byte, 65535)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		if answer := answerTo(buf[:n]); answer != nil {
			_, _ = c.WriteTo(answer, from)
		}
	}
}

func serveStreams(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for {
				question, err := readMessage(c)
				if err != nil {
					return
				}
				if _, err := c.Write(framed(answerTo(question))); err != nil {
					return
				}
			}
		}()
	}
}

func readMessage(r io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(r, message)
	return message, err
}

func framed(message []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...)
}

// answerTo returns the answer to a question, with the TTL of a second; nil if it is none. nK.example.com has the
// address with the number K of each network outside; kK.example.com is another name of nK.example.org, and
// aK.example.org and cK.example.com are such of nK.example.com. tK.evil.org has texts.
// Names that begin with q are not answered.
func answerTo(message []byte) []byte {
	var p dnsmessage.Parser
	header, err := p.Start(message)
	if err != nil {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	name := strings.ToLower(q.Name.String())
	if strings.HasPrefix(name, "q") {
		return nil
	}
	header.Response, header.RecursionAvailable = true, true
	b := dnsmessage.NewBuilder(nil, header)
	b.EnableCompression()
	_ = b.StartQuestions()
	_ = b.Question(q)
	_ = b.StartAnswers()
	own := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1}
	if real := realName(name); real != "" {
		cname := dnsmessage.MustNewName(real)
		_ = b.CNAMEResource(own, dnsmessage.CNAMEResource{CNAME: cname})
		own.Name = cname
	}
	label, _, _ := strings.Cut(name[1:], ".")
	k, err := strconv.ParseUint(label, 10, 8)
	if err == nil {
		switch q.Type {
		case dnsmessage.TypeA:
			_ = b.AResource(own, dnsmessage.AResource{A: outside(4, byte(k)).As4()})
		case dnsmessage.TypeAAAA:
			_ = b.AAAAResource(own, dnsmessage.AAAAResource{AAAA: outside(6, byte(k)).As16()})
		case dnsmessage.TypeTXT:
			_ = b.TXTResource(own, dnsmessage.TXTResource{TXT: texts(int(k))})
		}
	}
	out, err := b.Finish()
	if err != nil {
		return nil
	}
	return out
}

// realName returns the name that a name in lower case is an alias of, or an empty text.
func realName(name string) string {
	com, isCom := strings.CutSuffix(name, "com.")
	org, isOrg := strings.CutSuffix(name, "org.")
	switch {
	case isCom && name[0] == 'k':
		return "n" + com[1:] + "org."
	case isCom && name[0] == 'c':
		return "n" + com[1:] + "com."
	case isOrg && name[0] == 'a':
		return "n" + org[1:] + "com."
	}
	return ""
}

// outside returns an address outside by its number.
func outside(family int, number byte) netip.Addr {
	if family == 4 {
		a := outsideNets[4].Addr().As4()
		a[3] = number
		return netip.AddrFrom4(a)
	}
	a := outsideNets[6].Addr().As16()
	a[15] = number
	return netip.AddrFrom16(a)
}

// openOutside gives the host outside all addresses of outsideNets, with a server, and the nodes routes to them.
func openOutside(t *testing.T, w *e2e.Cluster) {
	t.Helper()
	out := w.Hosts["out"]
	for family, n := range outsideNets {
		ip := "-" + strconv.Itoa(family)
		e2e.Run(t, out, "ip", ip, "route", "add", "local", n.String(), "dev", "lo")
		for _, name := range []string{"n1", "n2"} {
			e2e.Run(t, w.Hosts[name], "ip", ip, "route", "add", n.String(), "via", out.Addr(family).String())
		}
	}
	listen(t, out, serverPort, func(net.Conn) {})
	listen(t, out, echoPort, func(c net.Conn) { _, _ = io.Copy(c, c) })
}

// listen serves a TCP port of all addresses of a host until the test ends.
func listen(t *testing.T, h *lab.Host, port int, serve func(net.Conn)) {
	t.Helper()
	if err := h.Do(func() error {
		l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					serve(c)
					_ = c.Close()
				}()
			}
		}()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// serverPort is the TCP port of the host outside, and echoPort one where it echoes.
const serverPort, echoPort = 8080, 8081

// base makes the pods of the tests: web and db on a node with the resolver mon.
func base() e2e.Change {
	asResolver := []func(*e2e.Cluster, *corev1.Pod){e2e.At("mon"), e2e.Labelled("k8s-app=kube-dns"),
		e2e.Port("dns", resolverPort, corev1.ProtocolUDP), e2e.Port("dns-tcp", resolverPort, corev1.ProtocolTCP)}
	return e2e.Do(e2e.Namespace("shop", "team=a"), e2e.Namespace("kube-system", ""),
		e2e.Pod("shop/web", e2e.Labelled("app=web")), e2e.Pod("shop/db", e2e.Labelled("app=db")),
		e2e.Pod("kube-system/dns", asResolver...),
		e2e.Pod("shop/api", e2e.Labelled("app=api")))
}

// byName is a policy by which web reaches names, the resolvers and nothing else.
func byName(names ...string) e2e.Change { return byNameFrom("web", "0", names...) }

// byNameFrom is such a policy for the pods of an app, with a priority.
func byNameFrom(app, priority string, names ...string) e2e.Change {
	return e2e.ClusterPolicy("names"+strings.TrimPrefix("-"+app, "-web"), e2e.Admin(priority,
		strings.Replace(e2e.WebAlone, "app: web", "app: "+app, 1), fmt.Sprintf(
			`egress: [{action: Accept, to: [{domainNames: ["%s"]}]}, {action: Accept, to: [{namespaces: {matchLabels: `+
				`{kubernetes.io/metadata.name: kube-system}}}, {networks: [$n14/32, $n16/128]}]}, {action: Deny, to: [{networks: [0.0.0.0/0, "::/0"]}]}]`,
			strings.Join(names, `", "`))))
}
