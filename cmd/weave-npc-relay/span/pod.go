package span

import (
	"net/netip"
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/labelset"
)

// pod is the state of one pod.
type pod struct {
	ns     *namespace
	name   string
	labels labelset.Set
	ports  []npc.NamedPort
	node   *node // nil while it is not scheduled
	// subject is set if policies apply to the pod's packets.
	subject       bool
	claims, hosts []netip.Addr
	// terms are those that match the pod, and rules the policies that select it if it is on a node.
	terms  []*term
	rules  []*rules
	object any
	// round is that of the last collection that has the pod.
	round uint64
}

// collection is pods, each once, with those that are near to them. There is one at a time.
type collection struct {
	addresses *addresses
	round     uint64
	pods      []*pod
}

func (x *Spans) collect() collection {
	x.round++
	return collection{addresses: &x.addresses, round: x.round}
}

// add adds a pod and those near to it.
func (c *collection) add(p *pod) {
	c.once(p)
	for q := range c.addresses.near(p, p.claims) {
		c.once(q)
	}
}

func (c *collection) once(p *pod) {
	if p.round != c.round {
		p.round = c.round
		c.pods = append(c.pods, p)
	}
}

// SetPod takes a pod as it now is. A pod of its name with another UID has to be deleted before.
func (x *Spans) SetPod(f npc.Pod, object any) []Change {
	ns := x.namespace(f.Namespace)
	p, known := ns.pods[f.Name]
	if !known {
		p = &pod{ns: ns, name: f.Name}
		ns.pods[p.name] = p
		x.pods++
	}
	p.touch(x, p.claims)
	p.touch(x, f.Claims())
	x.addresses.remove(p)
	alike := known && p.labels.Equal(f.Labels) && slices.Equal(p.ports, f.Ports)
	if !alike {
		p.labels, p.ports = x.interner.Of(f.Labels), slices.Clip(f.Ports)
	}
	p.claims, p.hosts, p.object = f.Claims(), f.HostAddrs, object
	x.addresses.add(p)
	if !alike {
		p.follow(x)
	}
	before, subject := p.node, !f.HostNetwork && !f.Finished
	if after := x.node(f.Node); after != before || !alike || subject != p.subject {
		p.subject = subject
		p.place(x, after)
	}
	x.turn.changed = p
	changes := x.settle()
	x.releaseNode(before)
	return changes
}

// DeletePod removes a pod. The object is that of its end.
func (x *Spans) DeletePod(namespace, name string, object any) []Change {
	ns := x.namespaces[namespace]
	if ns == nil || ns.pods[name] == nil {
		return nil
	}
	p, before := ns.pods[name], ns.pods[name].node
	p.touch(x, p.claims)
	delete(ns.pods, name)
	x.pods--
	p.place(x, nil)
	for _, t := range p.terms {
		delete(t.members, p)
	}
	x.addresses.remove(p)
	p.terms, p.claims, p.hosts, p.object = nil, nil, nil, object
	x.turn.changed, x.turn.ended = p, true
	changes := x.settle()
	x.releaseNode(before)
	x.releaseNamespace(ns)
	return changes
}

// follow finds the terms that match a pod.
func (p *pod) follow(x *Spans) {
	before := p.terms
	p.terms = make([]*term, 0, len(before))
	found := func(t *term) {
		if t.matches(p) {
			p.terms = append(p.terms, t)
		}
	}
	p.ns.terms.Each(p.labels, found)
	x.cluster.Each(p.labels, found)
	p.terms = slices.Clip(p.terms)
	for _, t := range before {
		if !slices.Contains(p.terms, t) {
			delete(t.members, p)
		}
	}
	for _, t := range p.terms {
		t.members[p] = struct{}{}
	}
}

// place puts a pod on a node, and finds the policies that select it there.
func (p *pod) place(x *Spans, to *node) {
	from, before := p.node, p.rules
	p.node, p.rules = to, nil
	if to != nil && p.subject {
		for _, r := range p.ns.policies {
			r.choose(x, p)
		}
		for _, r := range x.clusterPolicies {
			r.choose(x, p)
		}
	}
	for _, r := range before {
		r.use(x, from, -1)
	}
	if from != to {
		if from != nil {
			delete(from.pods, p)
		}
		if to != nil {
			to.pods[p] = struct{}{}
		}
	}
}

// turn is one change of the objects, until all has followed it.
type turn struct {
	// before is whom the pods were for of which something else than the terms of nodes may have changed.
	before map[*pod]bits
	// changed is the pod that is changed, or ended; nil if it is something else.
	changed *pod
	ended   bool
	// terms are those that nodes may need that did not, or no longer.
	terms                 []*term
	enters, stays, leaves []Change
}

// touch remembers whom a pod is for that is about to change, and those near to addresses that it claims or will claim.
func (p *pod) touch(x *Spans, claims []netip.Addr) {
	if x.turn.before == nil {
		x.turn.before = map[*pod]bits{}
	}
	remember := func(p *pod) {
		if _, known := x.turn.before[p]; !known {
			x.turn.before[p] = slices.Clone(p.needs(x, &x.scratch[0], scope{last: len(x.watched)}))
		}
	}
	remember(p)
	for q := range x.addresses.near(p, claims) {
		remember(q)
	}
}

// scope is a part of the numbers of nodes, in words, and whether what they needed before is meant.
type scope struct {
	first, last int
	before      bool
}

// needs returns the watched nodes that need a pod, in memory that is used again. Words before the first are not set.
func (p *pod) needs(x *Spans, buffer *bits, in scope) bits {
	buffer.grow(in.last)
	out := (*buffer)[:in.last]
	clear(out[in.first:])
	p.add(out, in)
	for q := range x.addresses.needing(p) {
		q.add(out, in)
	}
	for i := in.first; i < in.last; i++ {
		out[i] &= x.watched[i]
	}
	return out
}

// add adds the nodes that need a pod for itself.
func (p *pod) add(out bits, in scope) {
	if p.node != nil && p.node.id/64 >= in.first && p.node.id/64 < in.last {
		out.set(p.node.id)
	}
	for _, t := range p.terms {
		nodes := t.nodes
		if in.before && t.was != nil {
			nodes = t.was
		}
		for i := in.first; i < min(in.last, len(nodes)); i++ {
			out[i] |= nodes[i]
		}
	}
}

// settle returns what has become of the spans: first what enters, then the changed pod, then what leaves.
func (x *Spans) settle() []Change {
	turn := &x.turn
	moved, in := x.move()
	for _, p := range moved {
		if _, touched := turn.before[p]; !touched {
			in.before = true
			before := p.needs(x, &x.scratch[0], in)
			in.before = false
			p.compare(x, before, p.needs(x, &x.scratch[1], in), in.first)
		}
	}
	for p, before := range turn.before {
		p.compare(x, before, p.needs(x, &x.scratch[1], scope{last: len(x.watched)}), 0)
	}
	for _, t := range turn.terms {
		t.was, t.moved = nil, nil
	}
	changes := append(append(turn.enters, turn.stays...), turn.leaves...)
	*turn = turn.next()
	return changes
}

// next returns an empty turn.
func (t *turn) next() turn {
	clear(t.terms)
	if len(t.before) > 64 {
		return turn{terms: t.terms[:0]}
	}
	clear(t.before)
	return turn{before: t.before, terms: t.terms[:0]}
}

// move has terms needed where they are now. It returns the pods that are for other watched nodes by that, and the part of the nodes that changed.
func (x *Spans) move() ([]*pod, scope) {
	in, found := scope{first: len(x.watched)}, x.collect()
	for _, t := range x.turn.terms {
		was, watched := append(bits(nil), t.nodes...), false
		for id := range t.moved.all() {
			if x.byID[id].terms[t] > 0 {
				t.nodes.set(id)
			} else {
				t.nodes.clear(id)
			}
			if was.has(id) != t.nodes.has(id) && x.watched.has(id) {
				in.first, in.last, watched = min(in.first, id/64), max(in.last, id/64+1), true
			}
		}
		if !watched {
			continue
		}
		t.was = was
		if t.was == nil {
			t.was = bits{}
		}
		for p := range t.members {
			found.add(p)
		}
	}
	return found.pods, in
}

// compare notes what a pod does to the spans, by the nodes that need it before and after, from a word on.
func (p *pod) compare(x *Spans, before, after bits, first int) {
	turn, own := &x.turn, p == x.turn.changed
	enters, stays, leaves := split(before, after, first)
	note := func(to *[]Change, e Event, nodes part) {
		if nodes.words != nil {
			*to = append(*to, Change{e, p.object, nodes})
		}
	}
	switch {
	case own && turn.ended:
		note(&turn.stays, Ends, leaves)
	case own:
		note(&turn.stays, Enters, enters)
		note(&turn.stays, Changes, stays)
		note(&turn.leaves, Leaves, leaves)
	default:
		note(&turn.enters, Enters, enters)
		note(&turn.leaves, Leaves, leaves)
	}
}
