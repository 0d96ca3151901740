package recorder

import (
	"net/netip"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/verdict"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

// Names names the owners of addresses, and evaluates connections.
type Names interface {
	// PodAt returns the pod that has an address, and whether there is one.
	PodAt(netip.Addr) (npc.Pod, bool)
	// NameOf returns "node" for an address of a node.
	NameOf(netip.Addr) string
	// IsLocal reports whether an address is that of a pod of this node.
	IsLocal(netip.Addr) bool
	// Evaluate returns the verdict on a flow or, if that takes more than most comparisons, the namespace whose rules take
	// them.
	Evaluate(most int, f verdict.Flow) (v verdict.Verdict, costly string)
	// Differences returns the verdict on a flow, and those of the groups of staged policies that decide otherwise.
	Differences(verdict.Flow) (verdict.Verdict, []verdict.Difference)
	// Groups returns the content of each group, which changes when its policies change; nil while not all policies are
	// known.
	Groups() map[string]string
}

// Domains know the domain names of addresses.
type Domains interface {
	// NamesAt returns a few names that an address is known to a local pod by.
	NamesAt(pod, a netip.Addr) []string
}

// mostInHaste is how many comparisons with rules, of about 10 ns, are made for a connection in haste.
const mostInHaste = 1_000

// evaluator names the ends of connections, and the rule that decides. It evaluates groups of staged policies too. In
// haste it does so without groups, and without rules that take many comparisons.
type evaluator struct {
	Names
	domains Domains
	haste   bool
}

// Evaluate implements flowlog.Evaluator.
func (j evaluator) Evaluate(src, dst netip.Addr, s flow.Service) (of flowlog.Evaluation, concerned bool) {
	if !j.IsLocal(src) && !j.IsLocal(dst) {
		return of, false
	}
	of.From, _ = j.end(src)
	to, ports := j.end(dst)
	if of.To = to; !to.IsPod() && !to.NodeAddr {
		of.To.DomainNames = j.domains.NamesAt(src, dst)
	}
	for _, p := range ports {
		if p.Protocol == s.Protocol && p.Port == s.Port {
			of.PortNames = append(of.PortNames, p.Name)
		}
	}
	f := verdict.Flow{From: src, To: dst, Service: s}
	var is verdict.Verdict
	var differences []verdict.Difference
	if j.haste {
		var costly string
		of.Unevaluated = true
		if is, costly = j.Names.Evaluate(mostInHaste, f); costly != "" {
			of.RuleUnknown = true
			return of, true
		}
	} else {
		is, differences = j.Differences(f)
	}
	of.Verdict, of.By = outcome(is)
	for _, d := range differences {
		s := flowlog.Staged{Group: d.Group, Policy: d.Policy, Content: d.Content}
		verdict, by := outcome(d.Verdict)
		if s.Verdict = verdict; len(by) > 0 {
			s.By = &by[0].RuleRef
		}
		of.Staged = append(of.Staged, s)
	}
	if is.Also != (verdict.By{}) {
		of.By = append(of.By, applied(is.Also, npc.Ingress))
	}
	return of, true
}

// outcome returns a verdict and the rule that gives it; none if none does.
func outcome(v verdict.Verdict) (out flowlog.Verdict, by []flowlog.Applied) {
	if out = flowlog.Denied; v.Allowed {
		out = flowlog.Allowed
	}
	if v.By != (verdict.By{}) {
		by = append(by, applied(v.By, v.Direction))
	}
	return out, by
}

func applied(by verdict.By, d npc.Direction) flowlog.Applied {
	rule := flowlog.RuleRef{Tier: by.Tier, Policy: by.Policy, Number: by.Number, Direction: d.String()}
	return flowlog.Applied{RuleRef: rule, Content: by.Content}
}

// end returns who has an address, and the named ports of a pod.
func (j evaluator) end(a netip.Addr) (flowlog.End, []npc.NamedPort) {
	p, ok := j.PodAt(a)
	if !ok {
		return flowlog.End{Addr: a, NodeAddr: j.NameOf(a) == "node"}, nil
	}
	workload := npc.Workload{Kind: "Pod", Name: p.Name}
	if p.Workload != nil {
		workload = *p.Workload
	}
	end := flowlog.End{Namespace: p.Namespace, Workload: workload.String(), Pod: p.Name, Labels: p.Labels, Addr: a}
	return end, p.Ports
}
