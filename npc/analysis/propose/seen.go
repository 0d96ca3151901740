package propose

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

// seen is connections of a workload in one direction that a rule has to allow.
type seen struct {
	peer
	item        item
	count       uint64
	first, last time.Time
}

// peer is the other end of connections, with the port that they go to.
type peer struct {
	workload *workload // nil for what is no pod
	addr     netip.Addr
	name     string
	service  flow.Service
}

// isDNS reports whether the peer is the cluster's DNS, and is asked as such.
func (p peer) isDNS() bool {
	return p.workload != nil && p.workload.isDNS() && slices.Contains(dnsItems(), itemOf(p.service))
}

// compare orders what was seen as it is listed.
func (s *seen) compare(o *seen) int {
	return cmp.Or(cmp.Compare(s.name, o.name), s.addr.Compare(o.addr),
		cmp.Compare(s.service.Protocol, o.service.Protocol),
		cmp.Compare(s.service.Port, o.service.Port))
}

// side is a workload in one direction.
type side struct {
	*workload
	npc.Direction
}

// log is what was seen of the workloads of a namespace.
type log map[side]map[peer]*seen

// in returns what was seen of a workload in a direction, in order.
func (l log) in(w *workload, d npc.Direction) []*seen {
	return slices.SortedFunc(maps.Values(l[side{w, d}]), (*seen).compare)
}

// read returns those of the records that policies of a namespace have to allow.
func read(records []flowlog.Record, namespace string, c *counts, known *cluster.View) log {
	all := log{}
	for _, record := range records {
		if record.Verdict != flowlog.Allowed || record.Replied == 0 || isExempt(record, known) {
			continue
		}
		i := itemOf(record.Port)
		if record.To.IsPod() {
			i = c.of(record.To).ports.item(record.Port)
		}
		for d, ends := range map[npc.Direction][2]flowlog.End{npc.Egress: {record.From, record.To},
			npc.Ingress: {record.To, record.From}} {
			own, other := ends[0], ends[1]
			if !own.IsPod() || own.Namespace != namespace {
				continue
			}
			at, p := side{c.of(own), d}, peer{addr: other.Addr, name: other.String(), service: record.Port}
			if other.IsPod() {
				p.workload, p.addr = c.of(other), netip.Addr{}
			}
			if all[at] == nil {
				all[at] = map[peer]*seen{}
			}
			if all[at][p] == nil {
				all[at][p] = &seen{peer: p, item: i, first: record.First, last: record.Last}
			}
			all[at][p].add(record)
		}
	}
	return all
}

func (s *seen) add(r flowlog.Record) {
	s.count += r.Count
	if r.First.Before(s.first) {
		s.first = r.First
	}
	if r.Last.After(s.last) {
		s.last = r.Last
	}
}

// isExempt reports whether no NetworkPolicy applies to connections: from a pod to itself, between a pod and its node,
// and multicast. A workload's last connection may have been from a pod to itself, and others between its pods.
func isExempt(record flowlog.Record, known *cluster.View) bool {
	from, to := record.From, record.To
	switch {
	case from.IsPod() && to.IsPod():
		return from.Namespace == to.Namespace && from.Pod == to.Pod && from.Addr == to.Addr &&
			(record.Count == 1 || strings.HasPrefix(to.Workload, "Pod/"))
	case from.IsPod():
		return to.Addr.IsMulticast() || isNodeOf(from, record.Node, to.Addr, known)
	}
	return isNodeOf(to, record.Node, from.Addr, known)
}

// isNodeOf reports whether an address is of a pod's own node, which recorded its connections. Only manifests show that.
func isNodeOf(pod flowlog.End, recorder string, a netip.Addr, known *cluster.View) bool {
	if known == nil {
		return false
	}
	node := recorder
	if p := known.Pods[npc.ObjectKey(pod.Namespace, pod.Pod)]; p != nil {
		node = p.Node
	}
	return known.NodeHas(node, a) ||
		slices.ContainsFunc(known.NodesAt(a), func(n npc.Node) bool { return n.Name == node })
}
