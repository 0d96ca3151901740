package host

import (
	"bufio"
	"encoding/hex"
	"io"
	"net/netip"
	"os"
	"strings"

	"github.com/pkg/errors"
)

// ipvsTable is the kernel's text of the IPVS services of a network namespace. It is missing without the module ip_vs.
const ipvsTable = "/proc/net/ip_vs"

// ipvsReason returns why IPVS has packets bypass iptables; empty if it forwards to nodes alone, as in front of API
// servers, or nothing.
func ipvsReason(ofNode func(netip.Addr) bool) string {
	file, err := os.Open(ipvsTable)
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	to := netip.AddrPort{}
	if err == nil {
		defer file.Close()
		to, err = ipvsDestination(file, ofNode)
	}
	switch {
	case err != nil:
		return "what IPVS forwards cannot be read: " + err.Error()
	case to.IsValid():
		return "IPVS forwards to " + to.String() + " (" + ipvsTable + "): what it forwards to pods does not pass " +
			"FORWARD; use a proxy of Services that uses iptables or nftables"
	}
	return ""
}

// ipvsDestination returns the first destination of the services in a table that is not a node's; invalid if there is
// none. It returns an error for a destination that it cannot parse.
func ipvsDestination(table io.Reader, ofNode func(netip.Addr) bool) (netip.AddrPort, error) {
	lines := bufio.NewScanner(table)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "->" || fields[1] == "RemoteAddress:Port" {
			continue
		}
		to, err := parseIPVS(fields[1])
		if err != nil {
			return to, errors.Wrapf(err, "%s, line %d", ipvsTable, n)
		}
		if a := to.Addr(); !a.IsLoopback() && !ofNode(a) {
			return to, nil
		}
	}
	return netip.AddrPort{}, lines.Err()
}

// parseIPVS parses the address and the port of a destination: 0A200102:1F90 or [fd00:...:0002]:0035.
func parseIPVS(s string) (netip.AddrPort, error) {
	i := strings.LastIndexByte(s, ':') + 1
	port, err := hex.DecodeString(s[i:])
	if err != nil || len(port) != 2 {
		return netip.AddrPort{}, errors.Errorf("%q: no address and port", s)
	}
	host := strings.Trim(s[:max(0, i-1)], "[]")
	a, err := netip.ParseAddr(host)
	if err != nil {
		var b []byte
		if b, err = hex.DecodeString(host); err != nil || len(b) != 4 {
			return netip.AddrPort{}, errors.Errorf("%q: no address and port", s)
		}
		a = netip.AddrFrom4([4]byte(b))
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(port[0])<<8|uint16(port[1])), nil
}
