package flow

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc"
)

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
	protocol, ok := protocolNumber(name)
	n, err := strconv.ParseUint(port, 10, 16)
	switch {
	case !ok, protocol == npc.ICMP && port != "", protocol != npc.ICMP && (err != nil || n == 0):
		return Service{}, noService(text, name, port)
	}
	return Service{protocol, uint16(n)}, nil
}

// ParseNamed reads "tcp/http", or "http" (of TCP): a protocol and the name that pods give to a port. ok is false if the
// text cannot be that.
func ParseNamed(text string) (protocol uint8, name string, ok bool) {
	word, name, slash := strings.Cut(strings.ToLower(text), "/")
	if !slash {
		word, name = "tcp", word
	}
	protocol, ok = npc.ProtocolNumber(word)
	if _, isProtocol := protocolNumber(name); isProtocol {
		ok = false // tcp is a protocol without a port, not a port's name
	}
	return protocol, name, ok && len(validation.IsValidPortName(name)) == 0
}

// protocolNumber returns the number of a protocol that a service can have.
func protocolNumber(name string) (uint8, bool) {
	if name == "icmp" {
		return npc.ICMP, true
	}
	return npc.ProtocolNumber(name)
}

// noService returns the error for a text that is no protocol and port, with a suggestion if there is one.
func noService(text, name, port string) error {
	protocol, known := protocolNumber(name)
	_, swapped := protocolNumber(port)
	number, err := strconv.Atoi(port)
	why := ""
	switch {
	case text == "":
		return errors.New("the port is missing: give one such as tcp/80, udp/53 or sctp/80, or icmp")
	case known && protocol == npc.ICMP:
		why = ": icmp has no ports; give icmp"
	case known && port == "":
		why = fmt.Sprintf(": %s is a protocol, whose port is missing, as in %s/80", name, name)
	case known && err == nil:
		why = fmt.Sprintf(": ports are 1 to 65535, and %d is none", number)
	case swapped && port != "":
		why = fmt.Sprintf("; did you mean %s/%s?", port, name)
	case !known && err == nil:
		near := spelling.Nearest(name, slices.Values([]string{"tcp", "udp", "sctp"}), 1)
		why = fmt.Sprintf("; did you mean %s/%d?", cmp.Or(near, "tcp"), number) // http goes over it
	case strings.Trim(cmp.Or(port, name), "0123456789,-") == "":
		why = ": give one port"
	case strings.Contains(name, ":"):
		why = fmt.Sprintf("; did you mean %s?", strings.Replace(name, ":", "/", 1))
	}
	return errors.Errorf("%q is no port such as tcp/80, udp/53 or sctp/80, nor icmp%s", text, why)
}

// String returns the service as ParseService reads it.
func (s Service) String() string {
	switch s.Protocol {
	case npc.TCP, npc.UDP, npc.SCTP:
		return fmt.Sprintf("%s/%d", npc.ProtocolName(s.Protocol), s.Port)
	case npc.ICMP, npc.ICMPv6:
		return "icmp"
	}
	return fmt.Sprintf("protocol %d", s.Protocol)
}

// MarshalText returns String, so that JSON has a service as text.
func (s Service) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText writes, and what ParseService does.
func (s *Service) UnmarshalText(text []byte) error {
	if number, other := strings.CutPrefix(string(text), "protocol "); other {
		n, err := strconv.ParseUint(number, 10, 8)
		if err != nil {
			return errors.Errorf("%q is no protocol: they are 0 to 255", text)
		}
		*s = Service{Protocol: uint8(n)}
		return nil
	}
	read, err := ParseService(string(text))
	if err != nil {
		return err
	}
	*s = read
	return nil
}
