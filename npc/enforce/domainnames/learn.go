package domainnames

import (
	"bytes"
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/domainnames/internal/nfqueue"
)

const (
	// retryFor is how long an answer waits for a set that does not take its addresses, perhaps because it is about to be
	// made. Then it is dropped, and asked for again.
	retryFor = 2 * time.Second
	// retryEvery is how often it is tried meanwhile.
	retryEvery = 20 * time.Millisecond
	// maxDeferred bounds the packets that wait, and maxDeferredOfPod those of a pod with their facts but for the last: all
	// are tried again together. The others are dropped at once.
	maxDeferred      = 1024
	maxDeferredOfPod = 256
)

// evaluated is a packet with its verdict, which depends on whether the sets take its facts.
type evaluated struct {
	since   time.Time
	id      uint32
	verdict verdict
	reset   []byte // what replaces the packet, if the verdict is that
	flow    flow
	found   []fact // of no list yet
	facts   []fact
	// malformed is set if no pod can read the packet either.
	malformed bool
	// stream is set if it has bytes of a TCP stream.
	stream bool
}

// read waits for packets and gives them their verdicts once their addresses are in the sets. What the controller sets
// before it writes the rules that queue a packet is taken over before that packet is looked at.
func (l *Learner) read() error {
	var packets [][]byte
	var ids []uint32
	err := l.queue.Receive(func(id uint32, raw []byte) {
		packets, ids = append(packets, bytes.Clone(raw)), append(ids, id)
	})
	now := time.Now()
	l.update(now)
	batch := l.deferred
	l.deferred = nil
	for i, raw := range packets {
		e := l.evaluate(raw, now)
		e.id = ids[i]
		batch = append(batch, e)
	}
	if len(batch) == 0 {
		return err
	}
	l.note("verdicts", l.queue.Decide(l.learn(batch, now)), "DNS answers get no verdicts")
	l.deleteGone()
	return err
}

// evaluate finds the facts in a packet.
func (l *Learner) evaluate(raw []byte, now time.Time) (e evaluated) {
	e.since = now
	p, err := parsePacket(raw)
	if err != nil {
		e.verdict, e.malformed = drop, true
		return e
	}
	pod := p.to.Addr()
	e.flow = flow{p.from, p.to}
	keys, known := l.Names.inputs.lookup(pod)
	if known && len(keys) == 0 && !l.formers.hadSubject(pod) {
		l.streams.remove(e.flow) // it is followed no longer
		return e
	}
	take := func(message []byte) {
		if r, ok := parseReply(message); ok {
			e.found = append(e.found, l.facts(r, p.from.Addr(), now)...)
			if !l.lists(keys, r) {
				l.Names.lookedUp(pod, r, l.Domain, now)
			}
		}
	}
	if p.proto == unix.IPPROTO_UDP {
		take(p.payload)
	} else if e.verdict = l.streams.take(p, now, take); e.verdict == reset {
		e.reset, e.found = p.reset(), nil
	}
	e.stream = p.proto == unix.IPPROTO_TCP && len(p.payload) > 0
	return e
}

// lists reports whether a name that an answer counts for is on one of some lists.
func (l *Learner) lists(keys []string, r reply) bool {
	return slices.ContainsFunc(r.names(l.Domain), func(name string) bool {
		return slices.ContainsFunc(l.index.match(name), func(m match) bool { return slices.Contains(keys, m.list.Key) })
	})
}

// facts returns what an answer says about names of lists. Which lists these are is left open.
func (l *Learner) facts(r reply, resolver netip.Addr, now time.Time) (out []fact) {
	for link, name := range r.names(l.Domain) {
		if len(l.index.match(name))+len(l.formers.match(name)) == 0 {
			continue
		}
		for _, f := range r.found {
			if f.link >= link && l.Alive[npc.FamilyOf(f.addr)].Name != "" {
				out = append(out, fact{name: name, addr: f.addr, resolver: resolver, when: now, until: now.Add(f.ttl + l.Grace)})
			}
		}
	}
	if len(out) > 0 && r.surplus > 0 {
		l.mu.Lock()
		l.memory.evicted += uint64(r.surplus)
		l.mu.Unlock()
	}
	return out
}

// subject returns the facts for each list that they count for because the pod is a subject of it, or was one of a former
// list. If no pod is known to have the address, they also wait.
func (l *Learner) subject(pod netip.Addr, facts []fact) (out []fact) {
	if len(facts) == 0 {
		return nil
	}
	keys, known := l.Names.inputs.await(pod)
	if !known {
		l.Names.inputs.giveUp(l.waiting.add(pod, facts)...)
		return l.formers.subject(pod, facts)
	}
	for _, f := range facts {
		for _, m := range l.index.match(f.name) {
			if m.list.Sets[npc.FamilyOf(f.addr)].Name != "" && slices.Contains(keys, m.list.Key) {
				f.list, f.pattern = m.list, m.pattern
				out = append(out, f)
			}
		}
	}
	return append(out, l.formers.subject(pod, facts)...)
}

// learn adds the facts of a batch to the sets, holds those that the sets took, and returns the verdicts. What is refused
// waits. If the lists change meanwhile, new ones did not take over these facts: it begins again.
func (l *Learner) learn(batch []evaluated, now time.Time) (decisions []nfqueue.Decision) {
	var refused map[element]bool
	var err error
	for held := false; !held; {
		var facts []fact
		for i := range batch {
			batch[i].facts = l.subject(batch[i].flow.to.Addr(), batch[i].found)
			facts = append(facts, batch[i].facts...)
		}
		refused, err = l.add(facts, now)
		if held = l.hold(facts, refused); !held {
			l.update(now)
		}
	}
	var counts Counts
	// behind has streams with a segment that waits, or was dropped (false): what follows may be that again, without facts.
	behind, share := map[flow]bool{}, map[netip.Addr]int{} // share is what of a pod waits
	for i := range batch {
		e := &batch[i]
		waits, isBehind := behind[e.flow]
		isBehind = isBehind && e.stream && e.verdict == accept
		isRefused := isBehind || slices.ContainsFunc(e.facts, func(f fact) bool {
			return refused[element{f.list, f.addr}] && !l.formers.has(f.list)
		})
		waits = isRefused && (waits || !isBehind) && now.Sub(e.since) < l.retryFor && len(l.deferred) < maxDeferred &&
			share[e.flow.to.Addr()] < maxDeferredOfPod
		if isRefused && e.stream {
			behind[e.flow] = waits
		}
		if waits {
			if e.since.Equal(now) {
				counts.Late++
			}
			l.deferred = append(l.deferred, *e)
			share[e.flow.to.Addr()] += 1 + len(e.facts)
			continue
		}
		if isRefused {
			e.verdict = drop
			l.streams.remove(e.flow) // it is past the message; what is sent again is reset
		}
		switch {
		case isRefused || e.malformed:
			counts.Refused++
		case e.verdict == reset:
			counts.Resets++
		}
		decisions = append(decisions, nfqueue.Decision{ID: e.id, Drop: e.verdict == drop, Replace: e.reset})
	}
	if err == nil || counts.Refused > 0 {
		l.note("adding", err, "addresses of domain names cannot be added: DNS answers with them are dropped")
	}
	l.mu.Lock()
	l.counts.Answers += uint64(len(decisions))
	l.counts.Late += counts.Late
	l.counts.Refused += counts.Refused
	l.counts.Resets += counts.Resets
	l.mu.Unlock()
	return decisions
}

// add adds the addresses of facts to the sets, one operation a set. It returns the elements that were refused, and why.
func (l *Learner) add(facts []fact, now time.Time) (refused map[element]bool, why error) {
	refused = map[element]bool{}
	if len(facts) == 0 {
		return refused, nil
	}
	latest, comments := l.latest(facts)
	add := newOperations(ipset.Add)
	for e, until := range latest {
		if f := npc.FamilyOf(e.addr); e.list.missing[f] {
			refused[e], why = true, errors.Errorf("there is no set %s yet", e.list.Sets[f].Name)
			continue
		}
		add.put(e.list.Sets, e, ipset.Attr{Comment: comments[e], Timeout: seconds(until.Sub(now) + outage)})
	}
	err := l.sets.Apply(add.ops)
	for _, failed := range failures(err, add.ops) {
		for _, el := range failed.Elements {
			refused[element{add.lists[failed.Index], el.Prefix.Addr()}] = true
		}
	}
	return refused, cmp.Or(err, why)
}

// operations are one operation for each set, of one kind.
type operations struct {
	kind  ipset.OpKind
	at    map[string]int // name of a set -> index of its operation
	ops   []ipset.Op
	lists []*followed // whose sets they are on
}

func newOperations(kind ipset.OpKind) operations { return operations{kind: kind, at: map[string]int{}} }

// put puts an element into the operation on its set, if there is one.
func (o *operations) put(sets [len(npc.Families)]ipset.Set, e element, a ipset.Attr) {
	set := sets[npc.FamilyOf(e.addr)]
	if set.Name == "" {
		return
	}
	i, found := o.at[set.Name]
	if !found {
		i = len(o.ops)
		o.at[set.Name] = i
		o.ops, o.lists = append(o.ops, ipset.Op{Kind: o.kind, Set: set}), append(o.lists, e.list)
	}
	o.ops[i].Elements = append(o.ops[i].Elements, ipset.Element{Entry: ipset.Addr(e.addr), Attr: a})
}

// latest returns until when each element is to be held, by the facts and by what is held already, and its comment.
func (l *Learner) latest(facts []fact) (map[element]time.Time, map[element]string) {
	latest, comments := make(map[element]time.Time, len(facts)), make(map[element]string, len(facts))
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range facts {
		e := element{f.list, f.addr}
		if latest[e].IsZero() {
			latest[e] = f.list.until(f.addr)
		}
		latest[e], comments[e] = later(latest[e], f.until), f.name
	}
	return latest, comments
}

// failures returns what failed, with its elements.
func failures(err error, ops []ipset.Op) (out []*ipset.OpError) {
	var batch *ipset.BatchError
	if err == nil {
		return nil
	}
	if !errors.As(err, &batch) {
		batch = &ipset.BatchError{}
		for i := range ops {
			batch.Errors = append(batch.Errors, &ipset.OpError{Index: i})
		}
	}
	for _, e := range batch.Errors {
		if e.Elements == nil {
			e.Elements = ops[e.Index].Elements
		}
	}
	return batch.Errors
}

// seconds returns a timeout for the kernel.
func seconds(d time.Duration) uint32 {
	const longest = 2147483
	return uint32(min(max(1, (d+time.Second-1)/time.Second), longest))
}

// hold holds the facts that were not refused, if the lists are still those that the facts were evaluated with; it
// reports whether they are. What these facts displace is gone with deleteGone.
func (l *Learner) hold(facts []fact, refused map[element]bool) bool {
	taken := slices.DeleteFunc(slices.Clone(facts), func(f fact) bool { return refused[element{f.list, f.addr}] })
	if !l.past.remember(taken, l.generation) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range taken {
		l.memory.hold(f)
		l.counts.Learned++
	}
	return true
}

// deleteGone deletes what is held no longer from the sets, and brings those of the past up to date.
func (l *Learner) deleteGone() {
	if now := time.Now(); !now.Before(l.past.retry) {
		l.note("past", l.past.keep(l.index.lists, now),
			"the kernel does not keep which addresses domain names had: connections may end at a restart")
	}
	l.mu.Lock()
	gone, remove := l.memory.takeGone(), newOperations(ipset.Delete)
	l.mu.Unlock()
	if len(gone) == 0 {
		return
	}
	for _, e := range gone {
		remove.put(e.list.Sets, e, ipset.Attr{})
	}
	err := l.sets.Apply(remove.ops)
	if !slices.ContainsFunc(failures(err, remove.ops), func(e *ipset.OpError) bool {
		return !l.formers.has(remove.lists[e.Index]) // whose set may be gone
	}) {
		err = nil
	}
	// What is not deleted expires by itself.
	l.note("deleting", err, "addresses of domain names cannot be deleted: they expire later")
}

// update takes over what the controller has set.
func (l *Learner) update(now time.Time) {
	set := l.Names.inputs.take()
	l.generation = set.generation
	if set.changed {
		were := l.formers.index
		l.formers = newFormers(set.formers, l.index, were)
		l.follow(set.lists, were)
	}
	l.adopt(now)
	if set.changed {
		l.Names.read(l.index.lists)
	}
	l.arrive(set.arrived, now)
}

// arrive adds what waited for pods. What is refused, perhaps because the set is about to be made, waits on.
func (l *Learner) arrive(pods []netip.Addr, now time.Time) {
	for _, pod := range pods {
		waited := l.waiting.take(pod)
		facts := l.subject(pod, waited)
		refused, err := l.add(facts, now)
		l.note("arrived", err, "addresses of domain names cannot be added, trying again")
		if held := l.hold(facts, refused); len(refused) > 0 || !held {
			l.waiting.add(pod, waited)
			l.late = append(l.late, pod)
		}
	}
	l.deleteGone()
}

// follow takes over lists. One whose names or sets differ counts as a new one. It lets go of lists, also of such that
// were former ones, that are not even former ones now.
func (l *Learner) follow(lists []List, were index) {
	next := make(map[string]*followed, len(lists))
	for _, of := range lists {
		if known := l.index.lists[of.Key]; known != nil && known.equal(of) {
			next[of.Key] = known
		} else {
			next[of.Key] = newFollowed(of)
		}
	}
	l.mu.Lock()
	for _, x := range []index{l.index, were} {
		for key, of := range x.lists {
			if next[key] != of && l.formers.lists[key] != of {
				l.memory.drop(of)
			}
		}
	}
	l.mu.Unlock()
	l.index = newIndex(next)
}
