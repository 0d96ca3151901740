package binding

import (
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/iptables/ports"
	"github.com/weave-npc/weave-npc/npc"
)

// Config is what the operator wants.
type Config struct {
	Mode ports.Mode
	// Audit is how long a node that had pods has to be free of doubtful frames before forged sources are dropped.
	Audit     time.Duration
	AllowVLAN bool
	// Types are the EtherTypes that pods may send beside IPv4, IPv6 and ARP.
	Types []uint16
	// Prefixes are bound by what the kernel has alone.
	Prefixes []netip.Prefix
	// Routing are the namespaces whose pods route for others.
	Routing []string
	// Booting is set if no pod can run yet: there is nothing to audit.
	Booting bool
}

// Owner is the pod that the API gives an address.
type Owner struct {
	UID             types.UID
	Namespace, Name string
	// Local is set for a pod of this node with a network of its own.
	Local bool
}

// String returns the namespace and the name.
func (o Owner) String() string { return npc.ObjectKey(o.Namespace, o.Name) }

// remade reports whether two owners are one pod, whose object may have been made again, as that of a static pod is.
func (o Owner) remade(other Owner) bool {
	return o.Namespace == other.Namespace && o.Name == other.Name
}

// API answers what the objects of the API hold.
type API struct {
	// Owner returns the pod that has an address, and whether there is one.
	Owner func(netip.Addr) (Owner, bool)
	// InRange reports whether an address may be that of a local pod.
	InRange func(netip.Addr) bool
	// Reserved returns the addresses that a port must not send from unless they are bound to it, in an audit and at a
	// port of an unknown pod too. It may be nil.
	Reserved func() []netip.Addr
}

// unboundReason is why the sources of a port are not bound.
type unboundReason string

// The reasons.
const (
	noAddress unboundReason = "no-address" // the kernel has no address behind the port, or cannot tell
	noPod     unboundReason = "no-pod"     // no pod of this node has an address that is behind the port
	second    unboundReason = "second"     // the pod has another port
	routing   unboundReason = "routing"    // the pod is in a namespace that routes
)

// unboundReasons returns all reasons.
func unboundReasons() []unboundReason { return []unboundReason{noAddress, noPod, second, routing} }
