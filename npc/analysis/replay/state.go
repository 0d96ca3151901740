package replay

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

// state is a cluster with pods as they were recorded.
type state struct {
	*cluster.Cluster
	owners map[netip.Addr]string // address -> key of its pod, empty for what is no pod's
	pods   map[string]*npc.Pod
	named  map[port]string   // how the pods name their ports
	flows  map[int]flow.Flow // index of the record -> what is asked
}

// port is one of a pod's.
type port struct {
	pod string
	flow.Service
}

func newState(c *cluster.Cluster) *state {
	return &state{Cluster: c, owners: map[netip.Addr]string{}, pods: map[string]*npc.Pod{}, named: map[port]string{},
		flows: map[int]flow.Flow{}}
}

// hasRoom reports whether an address can be a pod's, or no pod's if it is nil.
func (w *state) hasRoom(a netip.Addr, p *npc.Pod) bool {
	owner, known := w.owners[a]
	if p == nil {
		return owner == ""
	}
	if known && owner != p.Key() {
		return false
	}
	same := w.pods[p.Key()]
	return same == nil || same.Node == p.Node && maps.Equal(same.Labels, p.Labels)
}

// agrees reports whether a destination names the port of a record as it does in the other records.
func (w *state) agrees(to *npc.Pod, r flowlog.Record) bool {
	if to == nil {
		return true
	}
	names, known := w.named[port{to.Key(), r.Port}]
	return !known || names == joined(r.PortNames)
}

func joined(names []string) string { return strings.Join(slices.Sorted(slices.Values(names)), ",") }

// add adds the ends of a record as pods, and what is to be asked.
func (w *state) add(i int, r flowlog.Record, from, to *npc.Pod) {
	f := flow.Flow{From: w.end(r.From.Addr, from), To: w.end(r.To.Addr, to), Service: r.Port}
	if to != nil {
		w.named[port{to.Key(), r.Port}] = joined(r.PortNames)
	}
	if f.From == f.To {
		// The last connection was from a pod to itself. It can leave the pod only through a Service. The others may
		// have been between pods.
		f.ThroughService = true
		if r.Count > 1 && !strings.HasPrefix(r.To.Workload, "Pod/") {
			another := *w.pods[f.To.Pod]
			another.Name, another.Addrs = another.Name+" (another)", nil
			w.SetPod(another)
			f.To = flow.End{Pod: another.Key()}
		}
	}
	w.flows[i] = f
}

// end returns an end, and adds its pod if it is one.
func (w *state) end(a netip.Addr, p *npc.Pod) flow.End {
	if p == nil {
		w.owners[a] = ""
		return flow.End{Addr: a}
	}
	key := p.Key()
	if same := w.pods[key]; same != nil {
		same.Addrs, same.Ports = union(same.Addrs, p.Addrs), union(same.Ports, p.Ports)
		p = same
	}
	w.owners[a], w.pods[key] = key, p
	w.SetPod(*p)
	return flow.End{Pod: key, Addr: a}
}

// union returns a slice that has what either has.
func union[T comparable](a, b []T) []T {
	out := slices.Clone(a)
	for _, item := range b {
		if !slices.Contains(out, item) {
			out = append(out, item)
		}
	}
	return out
}
