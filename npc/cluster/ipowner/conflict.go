package ipowner

import (
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/npc"
)

// Kind is the kind of a conflict about an address.
type Kind string

// The kinds of conflicts, which are labels of a metric.
const (
	// OfNode is a claim to an address that this node has itself.
	OfNode Kind = "node"
	// HostIPs is an address of a local pod that another pod's status.hostIPs contains.
	HostIPs Kind = "host-ips"
	// LocalPod is an address that two pods of this node claim.
	LocalPod Kind = "local-pod"
	// RemotePod is an address of a local pod that a pod of another node claims too.
	RemotePod Kind = "remote-pod"
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{OfNode, HostIPs, LocalPod, RemotePod} }

// reconciled returns the minimum duration of a conflict before it is reported. The next pod of an address may claim it
// shortly before the end of the former one is known.
func (k Kind) reconciled() time.Duration {
	if k == LocalPod || k == RemotePod {
		return 5 * time.Second
	}
	return 0
}

// consequence returns the effect of a conflict in words.
func (k Kind) consequence() string {
	switch k {
	case OfNode:
		return "the address is this node's: the pod counts as waiting for its address"
	case HostIPs:
		return "another pod's status.hostIPs contains the address of a local pod, which stays enforced"
	case LocalPod:
		return "two pods of this node claim one address: nothing is allowed in a direction that either is isolated in"
	}
	return "a pod of another node claims the address of a local pod, which stays enforced"
}

// Ref names a pod.
type Ref struct {
	Namespace, Name string
	UID             types.UID
}

// String returns namespace/name.
func (r Ref) String() string { return npc.ObjectKey(r.Namespace, r.Name) }

// Conflict is a local pod's claim to an address that something contradicts.
type Conflict struct {
	Addr netip.Addr
	Kind Kind
	Pod  Ref
	// Other is the pod whose object contradicts the claim; zero if the node does.
	Other Ref
}

// Message describes the conflict and its effect.
func (c Conflict) Message() string {
	text := c.Addr.String() + " of pod " + c.Pod.String()
	if c.Other != (Ref{}) {
		text += ", contradicted by pod " + c.Other.String()
	}
	return text + ": " + c.Kind.consequence()
}

const (
	// repeatAfter is the minimum time before a recurring conflict is reported again.
	repeatAfter = 10 * time.Minute
	// maxRemembered bounds the conflicts that are remembered. Conflicts beyond it are counted, but not reported.
	maxRemembered = 1000
)

// Watcher reports lasting conflicts, each of them once.
type Watcher struct {
	Log *slog.Logger
	// Report, if not nil, is called with each reported conflict.
	Report func(Conflict)

	known map[Conflict]*sighting
}

type sighting struct {
	since, last, reported time.Time
}

// Look passes the current conflicts to the watcher.
func (w *Watcher) Look(now time.Time, conflicts []Conflict) {
	for _, c := range conflicts {
		s := w.known[c]
		if s == nil {
			if len(w.known) >= maxRemembered {
				continue
			}
			if w.known == nil {
				w.known = map[Conflict]*sighting{}
			}
			s = &sighting{since: now}
			w.known[c] = s
		}
		if s.since.IsZero() {
			s.since = now
		}
		s.last = now
		if now.Sub(s.since) < c.Kind.reconciled() || !s.reported.IsZero() && now.Sub(s.reported) < repeatAfter {
			continue
		}
		if s.reported.IsZero() || s.since.After(s.reported) {
			s.reported = now
			w.Log.Warn("conflict about an address", "kind", string(c.Kind), "address", c.Addr,
				"pod", c.Pod.String(), "other", c.Other.String(),
				"consequence", c.Kind.consequence())
			if w.Report != nil {
				w.Report(c)
			}
		}
	}
	for _, c := range slices.Collect(maps.Keys(w.known)) {
		s := w.known[c]
		if s.last.Equal(now) {
			continue
		}
		if !s.since.IsZero() && !s.reported.IsZero() {
			w.Log.Info("no conflict about an address any more", "address", c.Addr, "pod", c.Pod.String())
		}
		s.since = time.Time{}
		if s.reported.IsZero() || now.Sub(s.reported) >= repeatAfter {
			delete(w.known, c)
		}
	}
}
