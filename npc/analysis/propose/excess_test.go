package propose_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/refmodel"
)

// nothingElseIsAllowed asks about all pairs of pods and some addresses. What is allowed to or from a pod whose workload
// was recorded must be what was seen of that workload, or of one that labels cannot distinguish from it.
func (s *scene) nothingElseIsAllowed(policies []networkingv1.NetworkPolicy, limit int) {
	w := s.State
	w.Policies = policies
	ends := []netip.Addr{netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("2001:db8:2::9")}
	for _, p := range s.Pods {
		ends = append(ends, p.Addrs...)
	}
	for _, r := range s.records {
		ends = append(ends, r.From.Addr, r.To.Addr)
	}
	slices.SortFunc(ends, netip.Addr.Compare)
	ends = slices.Compact(ends)
	for _, a := range ends {
		for _, b := range ends {
			evaluated := [2]bool{s.hasPolicy(s.podAt(a)), s.hasPolicy(s.podAt(b))}
			if a.Is4() != b.Is4() || a == b || evaluated == [2]bool{} {
				continue
			}
			for _, service := range services {
				out, in := w.Evaluate(refmodel.Everywhere, fixture.ModelPacket(a, b, service))
				if out && evaluated[0] && !s.justified(s.podAt(a), b, service, true, limit) {
					s.Fatalf("egress %s -> %s, %s is allowed, seen was\n%sby\n%s", s.about(a), s.about(b), service, s.text(), asText(policies))
				}
				if in && evaluated[1] && !s.justified(s.podAt(b), a, service, false, limit) {
					s.Fatalf("ingress %s -> %s, %s is allowed, seen was\n%sby\n%s", s.about(a), s.about(b), service, s.text(), asText(policies))
				}
			}
		}
	}
}

// about returns an address with the labels of its pod.
func (s *scene) about(a netip.Addr) string {
	if p := s.podAt(a); p != nil {
		return fmt.Sprintf("%s (%s %v %v)", a, p.Namespace, p.Labels, p.Ports)
	}
	return a.String()
}

// text returns the recording in lines.
func (s *scene) text() (lines string) {
	for _, r := range s.records {
		lines += fmt.Sprintf("%s -> %s, %s %s, %d replied\n", s.about(r.From.Addr), s.about(r.To.Addr), r.Port, r.Verdict, r.Replied)
	}
	return lines
}

func (s *scene) podAt(a netip.Addr) *refmodel.Pod {
	for i := range s.Pods {
		if slices.Contains(s.Pods[i].Addrs, a) {
			return &s.Pods[i]
		}
	}
	return nil
}

// lasting returns labels without the only one here that passes.
func lasting(labels map[string]string) map[string]string {
	labels = maps.Clone(labels)
	delete(labels, "pod-template-hash")
	return labels
}

func same(p *refmodel.Pod, e flowlog.End) bool {
	return e.IsPod() && p.Namespace == e.Namespace && maps.Equal(lasting(p.Labels), lasting(e.Labels))
}

// hasPolicy reports whether connections of a pod's workload count.
func (s *scene) hasPolicy(p *refmodel.Pod) bool {
	return p != nil && p.Namespace == "shop" &&
		slices.ContainsFunc(s.counting(), func(r flowlog.Record) bool { return same(p, r.From) || same(p, r.To) })
}

// areKnown reports whether a pod's labels are in the recording or in manifests.
func (s *scene) areKnown(p *refmodel.Pod) bool {
	return s.known || slices.ContainsFunc(s.records, func(r flowlog.Record) bool { return same(p, r.From) || same(p, r.To) })
}

// isPods reports whether an address is known to be a pod's. Of a pod with two, the recording may have one.
func (s *scene) isPods(a netip.Addr) bool {
	return s.podAt(a) != nil && (s.known || slices.ContainsFunc(s.records, func(r flowlog.Record) bool { return r.From.Addr == a || r.To.Addr == a }))
}

// mayBe reports whether a selector of a recorded end may match a pod: it has the labels, and the recording does not
// show its further ones.
func (s *scene) mayBe(p *refmodel.Pod, e flowlog.End) bool {
	if s.areKnown(p) || !e.IsPod() || p.Namespace != e.Namespace {
		return same(p, e)
	}
	for k, v := range lasting(e.Labels) {
		if has, ok := p.Labels[k]; !ok || has != v {
			return false
		}
	}
	return true
}

// justified reports whether a pod's connections in a direction are what was seen, if labels can distinguish that.
func (s *scene) justified(own *refmodel.Pod, other netip.Addr, service flow.Service, egress bool, limit int) bool {
	pod, dst := s.podAt(other), own
	if egress {
		dst = s.podAt(other)
	}
	outside := map[netip.Addr]bool{}
	for _, r := range s.counting() {
		mine, theirs := r.To, r.From
		if egress {
			mine, theirs = r.From, r.To
		}
		if !same(own, mine) {
			continue
		}
		if !theirs.IsPod() {
			outside[theirs.Addr] = true
		}
		port := r.Port == service || r.Port.Port == 0 || dst != nil && slices.ContainsFunc(named(dst, service), func(n string) bool {
			return slices.Contains(r.PortNames, n) && !s.isAmbiguous(n, dst)
		})
		dns := egress && pod != nil && theirs.Namespace == "kube-system" && pod.Namespace == "kube-system" && service.Port == 53 && r.Port.Port == 53 &&
			theirs.Labels["k8s-app"] == "kube-dns" && pod.Labels["k8s-app"] == "kube-dns"
		if dns || port && pod != nil && s.mayBe(pod, theirs) || port && pod == nil && theirs.Addr == other {
			return true
		}
	}
	return !s.isPods(other) && len(outside) > limit // ranges may contain it; how wide they are, others ask
}

// isAmbiguous reports whether pods with the labels of a destination are known to give a name to different ports: the
// number is more exact then.
func (s *scene) isAmbiguous(name string, dst *refmodel.Pod) bool {
	ports := map[uint16]bool{}
	for _, r := range s.records {
		if same(dst, r.To) && slices.Contains(r.PortNames, name) {
			ports[r.Port.Port] = true
		}
	}
	for _, p := range s.Pods {
		for _, port := range p.Ports {
			if s.known && p.Namespace == dst.Namespace && maps.Equal(lasting(p.Labels), lasting(dst.Labels)) && port.Name == name {
				ports[uint16(port.ContainerPort)] = true
			}
		}
	}
	return len(ports) > 1
}
