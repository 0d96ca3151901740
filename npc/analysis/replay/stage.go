package replay

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

// stage is the cluster states that the records are replayed in. During a long recording, addresses change their owners
// and pods their labels. In one state, no address has two owners and no pod has two sets of labels.
type stage struct {
	known  *cluster.View
	empty  *cluster.Cluster    // what is known without its pods
	alike  map[string]*npc.Pod // likeness -> one of the pods that have it
	states []*state
	// learned holds the domain names of addresses, as they were recorded; nil if there are none.
	learned map[netip.Addr][]string
}

func newStage(c *cluster.Cluster) *stage {
	s := &stage{known: c.View(), empty: c.Clone(), alike: map[string]*npc.Pod{}}
	for _, key := range slices.Sorted(maps.Keys(s.known.Pods)) {
		p := s.known.Pods[key]
		s.alike[flowlog.Likeness(p.Namespace, p.Labels)] = p
		s.empty.DeletePod(p.Namespace, p.Name, "")
		if len(p.HostAddrs) > 0 {
			s.empty.AddNodeAddrs(p.Node, p.HostAddrs)
		}
	}
	return s
}

// place puts a record into the first state that it does not contradict.
func (s *stage) place(i int, r flowlog.Record) {
	from, to := s.pod(r, r.From, r.To, nil), s.pod(r, r.To, r.From, r.PortNames)
	at := slices.IndexFunc(s.states, func(w *state) bool {
		return w.hasRoom(r.From.Addr, from) && w.hasRoom(r.To.Addr, to) && w.agrees(to, r)
	})
	if at < 0 {
		at = len(s.states)
		s.states = append(s.states, newState(s.empty.Clone()))
	}
	in := s.states[at]
	for _, e := range []flowlog.End{r.From, r.To} {
		s.reconcile(in, e)
	}
	in.add(i, r, from, to)
	if len(r.To.DomainNames) > 0 {
		if s.learned == nil {
			s.learned = map[netip.Addr][]string{}
		}
		s.learned[r.To.Addr] = union(s.learned[r.To.Addr], r.To.DomainNames)
	}
}

// pod returns the pod that an end of a record is, nil if it is none. Its names of the port count if the cluster has no
// pod like it.
func (s *stage) pod(r flowlog.Record, e, other flowlog.End, names []string) *npc.Pod {
	if !e.IsPod() {
		return nil
	}
	p := &npc.Pod{Namespace: e.Namespace, Name: cmp.Or(e.Pod, e.Workload), Labels: e.Labels,
		Addrs: []netip.Addr{e.Addr}}
	if same := s.known.Pods[p.Key()]; same != nil {
		p.Node = same.Node
	} else if !other.IsPod() {
		p.Node = r.Node // which records connections of its own pods
	}
	if like := s.alike[flowlog.Likeness(e.Namespace, e.Labels)]; like != nil {
		p.Ports = like.Ports
		return p
	}
	for _, name := range names {
		p.Ports = append(p.Ports, npc.NamedPort{Name: name, Protocol: r.Port.Protocol, Port: r.Port.Port})
	}
	return p
}

// reconcile adds what else of an end is known: that an address is a node's, and that a namespace has its name as a
// label, as each has.
func (s *stage) reconcile(w *state, e flowlog.End) {
	if !e.IsPod() {
		for _, n := range s.known.NodesAt(e.Addr) {
			w.AddNodeAddrs(n.Name, []netip.Addr{e.Addr})
		}
		return
	}
	if _, known := s.known.Namespaces[e.Namespace]; !known {
		w.SetNamespace(npc.Namespace{Name: e.Namespace,
			Labels: map[string]string{corev1.LabelMetadataName: e.Namespace}})
	}
}

// verdicts returns the verdict of each record that was placed, by its index.
func (s *stage) verdicts() map[int]explain.Verdict {
	all := map[int]explain.Verdict{}
	for _, w := range s.states {
		if s.learned != nil {
			w.SetLearned(s.learned)
		}
		view := w.View()
		for i, f := range w.flows {
			all[i] = explain.Explain(view, f)
		}
	}
	return all
}
