package npc

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Protocols by their numbers in packets (IANA).
const (
	ICMP   = 1
	TCP    = 6
	UDP    = 17
	ICMPv6 = 58
	SCTP   = 132
)

// protocols has one line for each protocol that has ports, which are those that policies can name.
var protocols = [...]struct {
	api    corev1.Protocol // as in Kubernetes objects, always in capitals
	name   string          // as in iptables rules and on the command line
	number uint8           // as in packets (IANA)
}{
	{corev1.ProtocolTCP, "tcp", TCP},
	{corev1.ProtocolUDP, "udp", UDP},
	{corev1.ProtocolSCTP, "sctp", SCTP},
}

// PortProtocols are the numbers of the protocols that have ports, in the order of the rules.
var PortProtocols = [...]uint8{TCP, UDP, SCTP}

// PortProtocol returns the number of the protocol of a port of a Kubernetes object. It is TCP if the object has none,
// and 0 if the protocol has no ports or is not known.
func PortProtocol(p corev1.Protocol) uint8 {
	if p == "" {
		return TCP
	}
	for _, known := range protocols {
		if known.api == p {
			return known.number
		}
	}
	return 0
}

// APIProtocol returns a protocol as Kubernetes objects name it; it is empty if the protocol has no ports.
func APIProtocol(number uint8) corev1.Protocol {
	for _, known := range protocols {
		if known.number == number {
			return known.api
		}
	}
	return ""
}

// ProtocolName returns a protocol's name in lower case, as iptables takes it, or its number if the protocol has no
// ports.
func ProtocolName(number uint8) string {
	for _, known := range protocols {
		if known.number == number {
			return known.name
		}
	}
	return strconv.Itoa(int(number))
}

// ProtocolNumber returns the number of a protocol that has ports, by its name in any case.
func ProtocolNumber(name string) (number uint8, ok bool) {
	for _, known := range protocols {
		if strings.EqualFold(known.name, name) {
			return known.number, true
		}
	}
	return 0, false
}
