package enforce

import (
	"net/netip"
	"time"

	"github.com/weave-npc/weave-npc/npc/policy/quota"
)

// FailClosedMode determines when packets of unknown addresses in the node's range are dropped.
type FailClosedMode string

// The modes of the fail-closed filter.
const (
	FailClosedAuto   FailClosedMode = "auto"
	FailClosedNever  FailClosedMode = "never"
	FailClosedAlways FailClosedMode = "always"
)

// Config is what an operator decides. It does not change while weave-npc runs.
type Config struct {
	// NodeName is the node whose pods are local.
	NodeName string
	// PodInterface is the bridge that local pods are attached to; empty if local pods are identified by address.
	PodInterface string
	// PodRanges are the ranges of the local pods' addresses as the operator gives them; without any,
	// SetRanges brings the node's own.
	PodRanges []netip.Prefix
	// BridgePort is the port of the bridge behind which other nodes' pods are.
	BridgePort string
	// ForwardJump has a jump put first in FORWARD; without it the CNI jumps to WEAVE-NPC and WEAVE-NPC-EGRESS.
	ForwardJump bool
	// AllowAction is what an allowed packet gets with ForwardJump: ACCEPT or RETURN.
	AllowAction string
	FailClosed  FailClosedMode
	// NFLogGroup is the NFLOG group of packets dropped on ingress; those dropped on egress have the next one, and copies of
	// answers of resolvers the one after that.
	NFLogGroup uint16
	// AllowMcast lets all multicast pass; without it, none from or to local pods does.
	AllowMcast bool
	// Helpers are the names of the helpers of conntrack whose expected connections pass without being evaluated.
	Helpers []string
	// MaxListSize is the most members that a list:set has; a selector of more namespaces gets a flat set.
	MaxListSize int
	// LegacyNetpol gives policies the meaning that they had in Kubernetes 1.6.
	LegacyNetpol bool
	// Booted, if not nil, returns when this node was started, by its clock.
	Booted func() time.Time
	// Budget limits what policies may cost; the zero Limits are the defaults.
	Budget quota.Limits
	// TerminateMark is the bit of a connection's mark that ends it when a change denies it; 0 if changes end no
	// connections.
	TerminateMark uint32
	// LateMark is, if changes end no connections, the bit of those that end because they began before their pod was
	// known; 0 if none do.
	LateMark uint32
	// DNSQueue is the number of the queue for answers of resolvers with domain names that policies accept.
	DNSQueue uint16
	// DNSResolvers are resolvers whose answers count besides those of the cluster's own.
	DNSResolvers []netip.AddrPort
	// TCPLiberal is set if conntrack takes TCP segments out of window as valid, so that INVALID is no reason to drop.
	TCPLiberal bool
}
