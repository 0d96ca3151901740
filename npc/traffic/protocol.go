package traffic

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ProtocolName returns a protocol's name in lower case, as iptables takes it, or its number if policies cannot name it.
func ProtocolName(number uint8) string {
	switch number {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_SCTP:
		return "sctp"
	}
	return strconv.Itoa(int(number))
}

// ProtocolNumber returns the number of a protocol that has ports, by its name in any case.
func ProtocolNumber(name string) (number uint8, ok bool) {
	switch strings.ToLower(name) {
	case "tcp":
		return unix.IPPROTO_TCP, true
	case "udp":
		return unix.IPPROTO_UDP, true
	case "sctp":
		return unix.IPPROTO_SCTP, true
	}
	return 0, false
}
