package npc

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Namespace is what is kept of a v1 Namespace.
type Namespace struct {
	Name   string
	UID    types.UID
	Labels map[string]string
	// DefaultDeny is the ingress isolation that the Kubernetes 1.6 annotation
	// net.beta.kubernetes.io/network-policy asks for. It counts only with Config.LegacyNetpol.
	DefaultDeny bool
}

// Node is what is kept of a v1 Node.
type Node struct {
	Name   string
	UID    types.UID
	Labels map[string]string
	// Addrs are the entries of status.addresses that are IP addresses, of whatever type, unmapped and without
	// duplicates.
	Addrs []netip.Addr
}

// Pod is what the model keeps of a v1 Pod.
type Pod struct {
	Namespace string
	Name      string
	UID       types.UID
	Labels    map[string]string
	// Workload is what made the pod; nil if nothing did. Pods of one workload share it, so that it must not be changed.
	Workload *Workload
	// Node is spec.nodeName; empty while the pod is not scheduled.
	Node string
	// Addrs are status.podIPs, unmapped, without duplicates and without those that do not parse.
	Addrs []netip.Addr
	// HostAddrs are status.hostIPs: addresses of the pod's node, which no pod of another node may claim.
	HostAddrs []netip.Addr
	// Ports are the named ports of the containers and of the init containers that restart always.
	Ports []NamedPort
	// Unlabelled is set if the pod's labels or ports are too many to be kept, so that it is not known which policies
	// select it: selectors that depend on labels allow it nothing, and it is isolated as if all policies of its namespace
	// did so.
	Unlabelled  bool
	HostNetwork bool
	// Finished is set if the phase is Succeeded or Failed.
	Finished bool
	// Deleting is set if the pod has a deletion timestamp.
	Deleting bool
	// StaleAddrs is set if Addrs were reported for a former sandbox of the pod, so that whose they are now is not
	// known.
	StaleAddrs bool
	// LastStart is when one of the containers was last started; zero if it is not reported.
	LastStart time.Time
	// Started is status.startTime; zero if the kubelet has not reported it.
	Started time.Time
	Created time.Time
}

// Workload is the object that makes pods, such as a Deployment, in the namespace of its pods.
type Workload struct{ Kind, Name string }

// String returns the kind and the name.
func (w Workload) String() string { return w.Kind + "/" + w.Name }

// Key returns the pod's namespace/name.
func (p *Pod) Key() string { return ObjectKey(p.Namespace, p.Name) }

// StandsForWorkload reports whether a pod was made of a workload's template and stands for all its pods. It has the name
// of its workload, or, if another pod has that, the name and the kind. What controllers of Kubernetes make has more to
// its name; those of other kinds, which have no template here, may give a pod their own.
func (p *Pod) StandsForWorkload() bool {
	if p.Workload == nil {
		return false
	}
	switch p.Workload.Kind {
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob":
	default:
		return false
	}
	rest, ok := strings.CutPrefix(p.Name, p.Workload.Name)
	return ok && (rest == "" || strings.HasPrefix(rest, "."+strings.ToLower(p.Workload.Kind)))
}

// bootTolerance is how much earlier than the node's start a container may have been started by its time stamp, before
// that counts as another boot: clocks are set, and time stamps are rounded.
const bootTolerance = 10 * time.Second

// ReportedBefore reports whether the pod's status is from before its node was started: no container has been started
// since. The network of such a pod does not exist any more, and may be created again with another address.
func (p *Pod) ReportedBefore(boot time.Time) bool {
	return !p.LastStart.IsZero() && p.LastStart.Before(boot.Add(-bootTolerance))
}

// NamedPort is a container port that has a name.
type NamedPort struct {
	Name string
	// Protocol is the IP protocol number: 6, 17 or 132.
	Protocol uint8
	Port     uint16
}

// Missing is what of the objects is not known although it may exist.
type Missing uint8

// What may be missing.
const (
	// NothingMissing: everything that existed has been read once.
	NothingMissing Missing = iota
	// NodeMissing: no Node and no pod has the name of this node, which is probably not its name.
	NodeMissing
	// ObjectsMissing: a file has never been read.
	ObjectsMissing
	// ClusterPoliciesMissing: the API server has ClusterNetworkPolicies, or does not report whether it has, and they
	// have never been read. All other kinds have been.
	ClusterPoliciesMissing
)

// HasNetwork reports whether the pod has a network of its own, or will have one: it is neither finished nor on the
// network of its node.
func (p *Pod) HasNetwork() bool { return !p.HostNetwork && !p.Finished }

// Claims returns the addresses that the pod has by its status: none if it is on the host network or finished, or if
// they are stale.
func (p *Pod) Claims() []netip.Addr {
	if !p.HasNetwork() || p.StaleAddrs {
		return nil
	}
	return p.Addrs
}

// ClaimsAlike reports whether another state of the pod has the same claims, which count as much.
func (p *Pod) ClaimsAlike(q *Pod) bool {
	return p.Node == q.Node && p.Deleting == q.Deleting && p.Started.Equal(q.Started) && p.Created.Equal(q.Created) &&
		p.UID == q.UID && slices.Equal(p.Claims(), q.Claims())
}

// OwnsBefore reports whether a node takes a for the owner of an address that both a and b claim.
func OwnsBefore(a, b *Pod, node string) bool {
	if local := a.Node == node; local != (b.Node == node) {
		return local
	}
	if a.Deleting != b.Deleting {
		return b.Deleting
	}
	if c := a.Started.Compare(b.Started); c != 0 {
		return c > 0
	}
	if c := a.Created.Compare(b.Created); c != 0 {
		return c > 0
	}
	return a.UID > b.UID
}
