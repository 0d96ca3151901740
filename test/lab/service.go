package lab

import (
	"context"
	"net/netip"
	"strconv"

	"github.com/pkg/errors"
)

// Backend is a flavour of the iptables command.
type Backend string

// The flavours.
const (
	NFT    Backend = "nft"
	Legacy Backend = "legacy"
)

// Service is a virtual address that a node translates to a pod's, as kube-proxy does in iptables mode.
type Service struct {
	Backend Backend
	Proto   string // tcp, udp or sctp
	Virtual netip.AddrPort
	Pod     netip.AddrPort
}

// AddService adds a service's rules to the node's nat table: for what passes the node, for what the node sends, and the
// masquerading of a pod that reaches itself. They last as long as the node.
func (n *Node) AddService(ctx context.Context, s Service) error {
	iptables := "iptables-" + string(s.Backend)
	if s.Virtual.Addr().Is6() {
		iptables = "ip6tables-" + string(s.Backend)
	}
	pod := s.Pod.Addr().String()
	translate := []string{
		"-d", s.Virtual.Addr().String(), "-p", s.Proto, "--dport", strconv.Itoa(int(s.Virtual.Port())),
		"-j", "DNAT", "--to-destination", s.Pod.String(),
	}
	for _, rule := range [][]string{
		append([]string{"PREROUTING"}, translate...),
		append([]string{"OUTPUT"}, translate...),
		{"POSTROUTING", "-s", pod, "-d", pod, "-m", "conntrack", "--ctstate", "DNAT", "-j", "MASQUERADE"},
	} {
		args := append([]string{"-w", "-t", "nat", "-A"}, rule...)
		if _, err := n.Command(ctx, iptables, args...).Output(); err != nil {
			return errors.Wrapf(err, "adding service %s", s.Virtual)
		}
	}
	return nil
}
