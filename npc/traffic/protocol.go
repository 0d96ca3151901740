package traffic

import (
	"strconv"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// protocols has one line for each protocol that has a name.
var protocols = [...]struct {
	api    corev1.Protocol // as in ports of Kubernetes objects; empty for a protocol that has no ports
	name   string          // as in iptables rules and on the command line
	number uint8           // as in packets (IANA)
}{
	{corev1.ProtocolTCP, "tcp", unix.IPPROTO_TCP},
	{corev1.ProtocolUDP, "udp", unix.IPPROTO_UDP},
	{corev1.ProtocolSCTP, "sctp", unix.IPPROTO_SCTP},
	{"", "icmp", unix.IPPROTO_ICMP},
}

// PortProtocols are the numbers of the protocols that have ports, in the order in which rules have them.
var PortProtocols = [...]uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP}

// PortProtocol returns the number of the protocol of a port of a Kubernetes object. It is TCP if the object has none, and 0 if the
// protocol has no ports or is not known.
func PortProtocol(p corev1.Protocol) uint8 {
	if p == "" {
		return unix.IPPROTO_TCP
	}
	for _, known := range protocols {
		if known.api == p {
			return known.number
		}
	}
	return 0
}

// APIProtocol returns a protocol that has ports as Kubernetes objects name it.
func APIProtocol(number uint8) corev1.Protocol {
	for _, known := range protocols {
		if known.number == number {
			return known.api
		}
	}
	return ""
}

// ProtocolName returns the name of a protocol in lower case, or its number if it has no name.
func ProtocolName(number uint8) string {
	for _, known := range protocols {
		if known.number == number {
			return known.name
		}
	}
	return strconv.Itoa(int(number))
}

// ProtocolNumber returns the number of the protocol that has a name in lower case.
func ProtocolNumber(name string) (number uint8, ok bool) {
	for _, known := range protocols {
		if known.name == name {
			return known.number, true
		}
	}
	return 0, false
}

// ProtocolNames returns the names of all protocols that have one.
func ProtocolNames() []string {
	var names []string
	for _, known := range protocols {
		names = append(names, known.name)
	}
	return names
}
