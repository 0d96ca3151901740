package host

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// program loads an eBPF program of a type that returns a number, and returns its descriptor.
func program(t *testing.T, kind, result uint32) int {
	t.Helper()
	code := [2]struct {
		op, registers uint8
		offset        int16
		value         uint32
	}{{op: 0xb7, value: result}, {op: 0x95}} // r0 = result; exit
	license := []byte("GPL\x00")
	load := struct {
		kind, length  uint32
		code, license uint64
		_, _          uint32
		_             uint64
		_, _          uint32
		name          [16]byte
	}{kind: kind, length: uint32(len(code)), code: uint64(uintptr(unsafe.Pointer(&code))),
		license: uint64(uintptr(unsafe.Pointer(&license[0])))}
	const progLoad = 5
	fd, _, errno := unix.Syscall(unix.SYS_BPF, progLoad, uintptr(unsafe.Pointer(&load)), unsafe.Sizeof(load))
	runtime.KeepAlive(code)
	runtime.KeepAlive(license)
	if errno != 0 {
		t.Fatalf("loading an eBPF program: %v", errno)
	}
	t.Cleanup(func() { unix.Close(int(fd)) })
	return int(fd)
}

// Types of eBPF programs.
const (
	schedCls = 3
	xdp      = 6
)

// TestRedirects attaches what may redirect packets to interfaces, one after the other.
func TestRedirects(t *testing.T) {
	newNetwork(t)
	bridge := addBridge(t, "cni0")
	pod := add(t, &netlink.Veth{LinkAttrs: named("pod0"), PeerName: "peer0"}, bridge)
	up := add(t, &netlink.Veth{LinkAttrs: named("up0"), PeerName: "peer1"}, nil)
	ifb := add(t, &netlink.Ifb{LinkAttrs: named("bwp0")}, nil)
	find := func(about string, want ...string) {
		t.Helper()
		if got, err := FindRedirects(); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", about, got, err, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	find("nothing")
	clsact := func(l netlink.Link) {
		t.Helper()
		must(netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index,
			Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}))
	}
	attributes := func(l netlink.Link, parent uint32, priority uint16) netlink.FilterAttrs {
		return netlink.FilterAttrs{LinkIndex: l.Attrs().Index, Parent: parent, Priority: priority, Protocol: unix.ETH_P_ALL}
	}
	redirect := func(to netlink.Link, priority uint16) {
		t.Helper()
		must(netlink.FilterAdd(&netlink.U32{FilterAttrs: attributes(pod, netlink.HANDLE_MIN_INGRESS, priority),
			Actions: []netlink.Action{netlink.NewMirredAction(to.Attrs().Index)}}))
	}
	classify := func(l netlink.Link, parent uint32) {
		t.Helper()
		must(netlink.FilterAdd(&netlink.BpfFilter{FilterAttrs: attributes(l, parent, 1), Fd: program(t, schedCls, 0),
			Name: "pass", DirectAction: true}))
	}
	clsact(pod)
	clsact(up)
	redirect(ifb, 1)
	find("a limit of a pod's rate")
	classify(up, netlink.HANDLE_MIN_EGRESS)
	find("a program at what is sent, which FORWARD has seen")
	redirect(up, 2)
	find("a redirection", "pod0 (tc to up0)")
	classify(up, netlink.HANDLE_MIN_INGRESS)
	find("a program of tc too", "pod0 (tc to up0)", "up0 (eBPF of tc)")
	const pass = 2
	must(netlink.LinkSetXdpFdWithFlags(up, program(t, xdp, pass), nl.XDP_FLAGS_SKB_MODE))
	find("a program of XDP too", "pod0 (tc to up0)", "up0 (XDP)", "up0 (eBPF of tc)")
	var said bytes.Buffer
	ended, end := context.WithCancel(t.Context())
	end()
	must(FollowRedirects(ended, slog.New(slog.NewTextHandler(&said, nil))))
	if s := said.String(); !strings.Contains(s, "level=WARN") || !strings.Contains(s, "up0 (XDP)") {
		t.Errorf("it logs %q", s)
	}
}

func TestRedirectsInWords(t *testing.T) {
	const means = ": policies do not apply to packets that these redirect past FORWARD"
	for want, r := range map[string]Redirects{
		"":                                 nil,
		"eth0 (XDP)" + means:               {"eth0 (XDP)"},
		"a, b, c, d, e and 2 more" + means: {"a", "b", "c", "d", "e", "f", "g"},
	} {
		if got := r.String(); got != want {
			t.Errorf("%q: %q", []string(r), got)
		}
	}
}
