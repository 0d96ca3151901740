package faults

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
	"github.com/weave-npc/weave-npc/test/refmodel"
)

// verdicts reports whether a packet may leave its source, and whether it may reach its destination.
type verdicts func(from, to string, p refmodel.Packet) (out, in bool)

// verdicts returns the verdicts in a state.
func (k *killing) verdicts(t *testing.T, state int) verdicts {
	t.Helper()
	w := k.evaluatedAs(state).Evaluated(t, k.w)
	return func(_, _ string, p refmodel.Packet) (out, in bool) { return w.Evaluate(refmodel.Everywhere, p) }
}

// before returns the verdicts before a transition.
func (k *killing) before(t *testing.T) verdicts {
	t.Helper()
	if k.reset == nil || k.stands {
		return k.verdicts(t, k.current)
	}
	return func(from, to string, _ refmodel.Packet) (out, in bool) {
		return true, k.w.Verdict(t, k.arrives, from, to)
	}
}

// evaluatedAs returns a state's objects for the reference model.
func (k *killing) evaluatedAs(state int) *e2e.Objects {
	if k.evaluated != nil {
		return k.w.Objects(k.evaluated[state])
	}
	return k.objects[state]
}

// flows returns the flows whose verdicts are the same in both states.
func (k *killing) flows(before, after verdicts, from, to int) []lab.StreamFlow {
	var flows []lab.StreamFlow
	for _, source := range slices.Sorted(maps.Keys(k.w.Hosts)) {
		for _, destination := range slices.Sorted(maps.Keys(k.w.Hosts)) {
			if !k.models(source, destination) {
				continue
			}
			same := k.same(source, from, to) && k.same(destination, from, to) && !slices.Contains(k.dropped, source) &&
				!slices.Contains(k.dropped, destination)
			for _, f := range k.flowsBetween(source, destination) {
				p := e2e.PacketOf(f.From.Addr(f.Family), f.To.Addr(f.Family), f.Proto, f.Port)
				out1, in1 := before(source, destination, p)
				out2, in2 := after(source, destination, p)
				f.Denied = !out1 && !out2 || !in1 && !in2
				if f.Denied || same && out1 && out2 && in1 && in2 {
					flows = append(flows, f)
				}
			}
		}
	}
	return flows
}

// models reports whether flows between two hosts are evaluated. Nodes send packets of their own as well.
func (k *killing) models(source, destination string) bool {
	if k.isNode(destination) {
		return k.nodes && k.w.IsPod(source)
	}
	return !k.isNode(source) && !k.w.Undecided(source, destination)
}

// isNode reports whether a host is a node.
func (k *killing) isNode(host string) bool {
	return slices.ContainsFunc(k.w.Nodes(), func(n *lab.Node) bool { return n.Host == k.w.Hosts[host] })
}

func (k *killing) flowsBetween(from, to string) []lab.StreamFlow {
	var flows []lab.StreamFlow
	e2e.EachFamily(func(family int) {
		f := lab.StreamFlow{From: k.w.Hosts[from], To: k.w.Hosts[to], Family: family}
		if f.From.Addr(family).IsValid() {
			udp, icmp := f, f
			udp.Proto, udp.Port, icmp.Proto = "udp", e2e.StreamPort, "icmp"
			flows = append(flows, udp, icmp)
		}
	})
	return flows
}

// same reports whether a host is no pod, or the same pod in both states: one that comes, goes or follows another may
// have to wait for what it is allowed.
func (k *killing) same(host string, before, after int) bool {
	h := k.w.Hosts[host]
	if k.w.NodeOf(h) == nil {
		return true
	}
	b, a := ownerOf(k.objects[before], h), ownerOf(k.objects[after], h)
	return b != "" && a == b
}

// ownerOf returns the pod that has a host's addresses; empty if there is none.
func ownerOf(o *e2e.Objects, h *lab.Host) string {
	for name, p := range o.Pods {
		if p.Status.PodIP == h.Addrs()[0].String() && p.Status.Phase == corev1.PodRunning {
			return name + " " + string(p.UID)
		}
	}
	return ""
}
