package controller

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc/dataplane"
	"github.com/weave-npc/weave-npc/npc/naming"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

const (
	// partTargets is how many targets the policies may have whose rules stand one after the other, on average. With more the rules and their pods
	// are divided.
	partTargets = 8
	// maxDigits is how many binary digits tell the parts of a namespace from each other at most.
	maxDigits = 6
)

// part is a share of a namespace's isolated pods in one direction, and all rules that are for them: pods that the same targets choose are in the
// same part, so that a pod that takes another's place touches no rule. A rule that is for pods of several parts stands in each.
type part struct {
	ns *namespace
	// name tells humans which part of which namespace it is, and gives the bits by which a way finds it.
	name, bits string
	// policies are those whose rules the chains have.
	policies map[*policy]struct{}
	chains   [len(traffic.Families)]*dataplane.Chain
	isolated [len(traffic.Families)]*dataplane.Set
	// through are the branches on the way to the chains.
	through []*branch
}

// digits is how many binary digits tell the parts apart that the rules are to have.
func (rs *ruleSet) digits(partTargets int) int {
	if len(rs.users) <= partTargets {
		return 0
	}
	targets := map[string]struct{}{}
	for p := range rs.users {
		targets[p.targetKey] = struct{}{}
	}
	return min(bits.Len(uint((len(targets)-1)/partTargets)), maxDigits)
}

// choosing are the policies whose rules are for a pod, and the digits of the part that they belong to; there is none without such policies.
func (rs *ruleSet) choosing(q *pod, digits int) (policies []*policy, of string) {
	var targets []string
	for p := range rs.users {
		if _, chosen := p.selected[q]; chosen {
			policies, targets = append(policies, p), append(targets, p.targetKey)
		}
	}
	slices.Sort(targets)
	return policies, partBits(naming.Hash(slices.Compact(targets)...))[:digits]
}

// sharing is what parts there are to be: digits -> policies with rules there, and where the pods belong.
type sharing struct {
	policies map[string]map[*policy]struct{}
	pods     map[*pod]string
}

// sharing shares out a namespace's pods and rules, so that a part has the policies of so many targets on average.
func (rs *ruleSet) sharing(ns *namespace, partTargets int) sharing {
	sh := sharing{map[string]map[*policy]struct{}{}, map[*pod]string{}}
	digits := rs.digits(partTargets)
	if digits == 0 {
		if len(rs.users) > 0 {
			sh.policies[""] = rs.users
		}
		for q := range ns.local {
			sh.pods[q] = ""
		}
		return sh
	}
	for q := range ns.local {
		policies, of := rs.choosing(q, digits)
		if len(policies) == 0 {
			continue
		}
		sh.pods[q] = of
		if sh.policies[of] == nil {
			sh.policies[of] = map[*policy]struct{}{}
		}
		for _, p := range policies {
			sh.policies[of][p] = struct{}{}
		}
	}
	return sh
}

// share shares out a namespace's pods and rules among the parts. It is to be called when policies were activated or deactivated, or select
// other pods.
func (m *Controller) share(ns *namespace) {
	for _, d := range traffic.Directions {
		if rs := ns.rules[d]; rs != nil {
			m.shareRules(ns, d, rs)
		}
	}
}

func (m *Controller) shareRules(ns *namespace, d traffic.Direction, rs *ruleSet) {
	sh, w, reshaped := rs.sharing(ns, m.partTargets), m.ways[d], false
	for digits, policies := range sh.policies {
		pt := rs.parts[digits]
		if pt == nil {
			pt = m.newPart(ns, d, digits)
			rs.parts[digits], reshaped = pt, true
			w.leadTo(pt, true)
		}
		pt.hold(d, policies)
	}
	var gone []*part
	for digits, pt := range rs.parts {
		if sh.policies[digits] == nil {
			gone, reshaped = append(gone, pt), true
			pt.hold(d, nil)
			delete(rs.parts, digits)
			w.leadTo(pt, false)
		}
	}
	var moved []*pod
	for q := range ns.local {
		var to *part
		if digits, ok := sh.pods[q]; ok {
			to = rs.parts[digits]
		}
		if q.parts[d] != to {
			q.parts[d] = to
			moved = append(moved, q)
		}
	}
	if reshaped {
		m.pave(w)
	}
	for _, q := range moved {
		m.place(q)
	}
	for _, pt := range gone {
		pt.drop()
	}
	if len(rs.parts) == 0 {
		ns.rules[d] = nil
	}
}

// newPart makes a part of a namespace. Digits tell it from the others, if there are others.
func (m *Controller) newPart(ns *namespace, d traffic.Direction, digits string) *part {
	pt := &part{ns: ns, name: ns.Name, policies: map[*policy]struct{}{}}
	if digits != "" {
		pt.name += " part " + digits
	}
	pt.bits = partBits(pt.name)
	for f, t := range m.tables {
		c := t.Chains.AddShard(naming.PartChain(d, ns.Name, digits), ns.Name, fmt.Sprintf("what policies of %s allow, %s", pt.name, d), m.base(m.uplinks), d)
		pt.chains[f] = c
		pt.isolated[f] = t.Sets.Add(naming.PartSet(t.Family, d, ns.Name, digits), ipset.HashIP,
			fmt.Sprintf("local pods in %s that policies isolate, %s", pt.name, d))
		pt.isolated[f].Dispatch(c, d, 0)
	}
	return pt
}

// drop drops the part's chains and sets.
func (pt *part) drop() {
	for f, c := range pt.chains {
		c.Drop()
		pt.isolated[f].Drop()
	}
}

// hold has the part's chains hold the rules of some policies, and no others.
func (pt *part) hold(d traffic.Direction, policies map[*policy]struct{}) {
	for p := range pt.policies {
		if _, still := policies[p]; !still {
			delete(pt.policies, p)
			for _, r := range p.renders[d] {
				pt.chains[r.family].Disown(p.owner, r.match)
			}
		}
	}
	for p := range policies {
		if _, already := pt.policies[p]; !already {
			pt.policies[p] = struct{}{}
			for _, r := range p.renders[d] {
				pt.chains[r.family].Own(p.owner, r.match, r.number)
			}
		}
	}
}
