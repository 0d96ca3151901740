package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weave-npc/weave-npc/npc/traffic"
)

// Flow is a new connection, or the first packet of what has none.
type Flow struct {
	From    End     `json:"from"`
	To      End     `json:"to"`
	Service Service `json:"port"`
	// Node, if not empty, is the one node whose part is asked for; its policies judge only its own pods.
	Node string `json:"node,omitempty"`
}

// End is one end of a flow: a pod, by namespace/name, that has the address, or none yet; or an address alone, that of the pod
// that owns it or of none.
type End struct {
	Pod  string     `json:"pod,omitempty"`
	Addr netip.Addr `json:"address"`
}

// String names the end.
func (e End) String() string {
	switch {
	case e.Pod == "":
		return e.Addr.String()
	case !e.Addr.IsValid():
		return e.Pod
	}
	return fmt.Sprintf("%s (%s)", e.Pod, e.Addr)
}

// Service is a protocol, by its IP number, and the destination's port, if the protocol has ports.
type Service struct {
	Protocol uint8
	Port     uint16
}

// ParseService reads "tcp/5432", "udp/53", "sctp/80", "5432" (of TCP) or "icmp".
func ParseService(text string) (Service, error) {
	name, port, slash := strings.Cut(strings.ToLower(text), "/")
	if !slash {
		if _, err := strconv.Atoi(name); err == nil {
			name, port = "tcp", name
		}
	}
	protocol, ok := traffic.ProtocolNumber(name)
	n, err := strconv.ParseUint(port, 10, 16)
	switch {
	case !ok, protocol == unix.IPPROTO_ICMP && port != "", protocol != unix.IPPROTO_ICMP && (err != nil || n == 0):
		return Service{}, noService(text, name, port)
	}
	return Service{protocol, uint16(n)}, nil
}

// noService returns why a text is no protocol and port, and what it may have been meant for.
func noService(text, name, port string) error {
	protocol, known := traffic.ProtocolNumber(name)
	_, swapped := traffic.ProtocolNumber(port)
	number, err := strconv.Atoi(port)
	why := ""
	switch {
	case text == "":
		return errors.New("the port is missing: give one such as tcp/80, udp/53 or sctp/80, or icmp")
	case known && protocol == unix.IPPROTO_ICMP:
		why = ": icmp has no ports; give icmp"
	case known && port == "":
		why = fmt.Sprintf(": %s is a protocol, whose port is missing, as in %s/80", name, name)
	case known && err == nil:
		why = fmt.Sprintf(": ports are 1 to 65535, and %d is none", number)
	case swapped && port != "":
		why = fmt.Sprintf("; did you mean %s/%s?", port, name)
	case !known && err == nil:
		why = DidYouMean(name, slices.Values(traffic.ProtocolNames()))
	}
	return errors.Errorf("%q is no port such as tcp/80, udp/53 or sctp/80, nor icmp%s", text, why)
}

// Service reads what ParseService does, and a port by the name that a pod of the ends gives to it: "tcp/http", or "http" (of TCP).
func (w *World) Service(text string, to []End) (Service, error) {
	s, err := ParseService(text)
	if err == nil {
		return s, nil
	}
	protocol, name, slash := strings.Cut(strings.ToLower(text), "/")
	if !slash {
		protocol, name = "tcp", protocol
	}
	number, ok := traffic.ProtocolNumber(protocol)
	if _, isProtocol := traffic.ProtocolNumber(name); isProtocol {
		ok = false // tcp is a protocol without a port, and no port's name
	}
	if !ok || number == unix.IPPROTO_ICMP || len(validation.IsValidPortName(name)) > 0 {
		return Service{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range to {
		pod := w.own(e, "").pod
		if pod == nil {
			return Service{}, errors.Errorf("%q is the name of a port, and %s is no pod that could have one", text, e)
		}
		for _, p := range pod.Ports {
			if p.Name == name && p.Protocol == number {
				return Service{number, p.Port}, nil
			}
		}
	}
	return Service{}, errors.Errorf("%s has no %s port of the name %s", to[0], protocol, name)
}

// String is what ParseService reads.
func (s Service) String() string {
	switch s.Protocol {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP:
		return fmt.Sprintf("%s/%d", traffic.ProtocolName(s.Protocol), s.Port)
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		return "icmp"
	}
	return fmt.Sprintf("protocol %d", s.Protocol)
}

// MarshalText makes it a text in JSON.
func (s Service) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Flows are those between any two ends of one family. An end without an address goes with every other.
func Flows(from, to []End, s Service) []Flow {
	var out []Flow
	for _, a := range from {
		for _, b := range to {
			if !a.Addr.IsValid() || !b.Addr.IsValid() || a.Addr.Is4() == b.Addr.Is4() {
				out = append(out, Flow{From: a, To: b, Service: s})
			}
		}
	}
	return out
}
