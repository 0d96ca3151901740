package controller

import (
	"net/netip"

	"github.com/weave-npc/weave-npc/npc/index"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/traffic"
	"github.com/weave-npc/weave-npc/npc/verdict"
)

// judge answers what policies say of flows of local pods. It remembers what it finds of a pod until something changes.
type judge struct {
	*state
	sides map[*index.Pod]*[len(traffic.Directions)]verdict.Side
}

// forget has everything looked up anew.
func (j *judge) forget() { clear(j.sides) }

// Judge returns what policies make of flows, in order. It appends to out.
func (l Lookup) Judge(flows []verdict.Flow, out []verdict.Verdict) []verdict.Verdict {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	for _, f := range flows {
		out = append(out, l.c.judge.verdict(f))
	}
	return out
}

// LocalAddrs returns the addresses of the local pods.
func (l Lookup) LocalAddrs() map[netip.Addr]struct{} {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.c.state.index.Addresses.Local()
}

// verdict judges a flow as the chains do with a packet that opens a connection. What has a local pod's address that another one claims is
// judged by nobody here.
func (j *judge) verdict(f verdict.Flow) (v verdict.Verdict) {
	v.Allowed = true
	x := j.index.Addresses
	from, to := x.Owner(f.From), x.Owner(f.To)
	if f.To.IsMulticast() {
		return v
	}
	toItself := f.From == f.To || from != nil && from == to
	judge := func(own *index.Pod, a netip.Addr, d traffic.Direction, q verdict.Question) {
		if own == nil || !own.Local() || !v.Allowed || j.policies.contested(a)[d] {
			return
		}
		v.Judged = true
		q.Service, q.Destination, q.Exempt = f.Service, to, q.Exempt || toItself
		if allowed, by := j.side(own, d).Judge(j.index, q); !allowed || v.By == (verdict.By{}) {
			v.Allowed, v.Direction, v.By = allowed, d, by.Name()
		} else {
			v.Also = by.Name()
		}
	}
	judge(from, f.From, traffic.Egress, verdict.Question{Peer: f.To, PeerPod: to, Exempt: to == nil && x.IsOfNode(f.To)})
	if from != nil || !x.IsOfNode(f.From) { // a node reaches its pods
		judge(to, f.To, traffic.Ingress, verdict.Question{Peer: f.From, PeerPod: from})
	}
	return v
}

// side returns what policies say of a local pod in a direction.
func (j *judge) side(p *index.Pod, d traffic.Direction) *verdict.Side {
	sides := j.sides[p]
	if sides == nil {
		sides = &[len(traffic.Directions)]verdict.Side{}
		isolated := j.isolation.Of(p)
		for i := range sides {
			d := traffic.Direction(i)
			sides[d] = verdict.Side{Rules: j.isolation.Rules(p, d), Isolated: isolated[d]}
			for _, tier := range policy.Tiers {
				sides[d].Tiers[tier] = j.tiers.Rules(p, tier, d)
			}
		}
		j.sides[p] = sides
	}
	return &sides[d]
}
