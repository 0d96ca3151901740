package lab

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"syscall"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// Serve starts a server on a port of all the host's addresses, until the host is closed.
//
//	tcp   sends the host's name and a newline, then echoes what it is sent until the client closes
//	udp   answers every datagram with the host's name
//	sctp  answers an INIT with an INIT ACK, and an INIT for a port without a server with an ABORT
//
// ICMP echo needs no server.
func (h *Host) Serve(proto string, port uint16) error {
	var serve func(uint16) error
	switch proto {
	case "tcp":
		serve = h.serveTCP
	case "udp":
		serve = h.serveUDP
	case "sctp":
		serve = h.serveSCTP
	default:
		return errors.Errorf("no server speaks %q", proto)
	}
	return errors.Wrapf(serve(port), "serving %s port %d on host %s", proto, port, h.name)
}

func (h *Host) serveTCP(port uint16) error {
	for _, network := range []string{"tcp4", "tcp6"} {
		var listener net.Listener
		err := h.inside(func() (err error) {
			var config net.ListenConfig
			config.SetMultipathTCP(false)
			listener, err = config.Listen(context.Background(), network, anyAddress(port))
			return err
		})
		if err != nil {
			return err
		}
		h.keep(listener)
		go h.acceptTCP(listener)
	}
	return nil
}

func (h *Host) acceptTCP(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // closed with the host
		}
		h.keep(conn)
		go func() {
			defer h.forget(conn)
			if _, err := io.WriteString(conn, h.name+"\n"); err == nil {
				_, _ = io.Copy(conn, conn) // the client's end of the matter shows what went wrong
			}
		}()
	}
}

func (h *Host) serveUDP(port uint16) error {
	for _, network := range []string{"udp4", "udp6"} {
		var conn net.PacketConn
		err := h.inside(func() (err error) {
			config := net.ListenConfig{Control: setDestination}
			conn, err = config.ListenPacket(context.Background(), network, anyAddress(port))
			return err
		})
		if err != nil {
			return err
		}
		h.keep(conn)
		go h.answerUDP(conn.(*net.UDPConn))
	}
	return nil
}

func (h *Host) answerUDP(conn *net.UDPConn) {
	datagram, control := make([]byte, 65536), make([]byte, 256)
	for {
		_, n, _, from, err := conn.ReadMsgUDPAddrPort(datagram, control)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error about an earlier answer
		}
		// An answer that cannot be sent is one that the client misses.
		_, _, _ = conn.WriteMsgUDPAddrPort([]byte(h.name), fromSameAddress(control[:n]), from)
	}
}

// setDestination makes a socket report to which of the host's addresses a datagram was sent.
func setDestination(network, _ string, conn syscall.RawConn) error {
	var failed error
	err := conn.Control(func(fd uintptr) {
		if network == "udp4" {
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		} else {
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
		}
	})
	if err != nil {
		return err
	}
	return failed
}

// fromSameAddress turns the control message that came with a datagram into one that makes the answer come from the
// address that the datagram was sent to. Of the interface only IPv6 keeps the index, which link-local addresses need.
func fromSameAddress(control []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= 12:
			// struct in_pktinfo: interface index, local address, destination address.
			info := &unix.Inet4Pktinfo{Spec_dst: [4]byte(m.Data[4:8])}
			return unix.PktInfo4(info)
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= 20:
			info := &unix.Inet6Pktinfo{Addr: [16]byte(m.Data[:16])}
			if net.IP(m.Data[:16]).IsLinkLocalUnicast() {
				info.Ifindex = binary.NativeEndian.Uint32(m.Data[16:20])
			}
			return unix.PktInfo6(info)
		}
	}
	return nil
}

func anyAddress(port uint16) string { return ":" + strconv.Itoa(int(port)) }
