package domainnames

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/domainnames/internal/nfqueue"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

const (
	// every is how often the sets that show that a Learner lives are renewed, and what has expired is deleted.
	every = time.Second
	// outage is how much longer than a Learner the kernel holds an address, for the time that none runs.
	outage = naming.LearnedTimeout * time.Second
)

// Config is what a Learner is made of.
type Config struct {
	Log *slog.Logger
	// Names are what to learn.
	Names *Names
	// Queue is the number of the queue that rules send answers to. The rules must send it nothing but replies of trusted
	// DNS servers to connections that the pods opened: the sender of anything else could add addresses, and what is
	// accepted passes by the rest of the chain.
	Queue uint16
	// Group is the NFLOG group that rules copy other answers of these servers to these pods to; 0 for none.
	Group uint16
	// Grace is how long an address counts after its TTL has passed.
	Grace time.Duration
	// Domain is the cluster's own, such as cluster.local: for names in it, the names that they are aliases of count too.
	Domain string
	// Alive are sets of type hash:net that hold every address while the queue is read. One without a name is not there,
	// and neither is a list's set of its family: this node has no rules of it.
	Alive [len(npc.Families)]ipset.Set
}

// Counts are numbers of a Learner since its start.
type Counts struct {
	Held    int    // addresses of names, at present
	Waiting uint64 // packets that wait in the queue, at the last look, once a second
	Answers uint64 // packets that were read
	Late    uint64 // packets that waited for a set
	Learned uint64 // addresses of names that were added to a set, or prolonged
	Refused uint64 // packets that were dropped because a set did not take their addresses, or they cannot be read
	Lost    uint64 // packets that the kernel dropped because too many waited
	Evicted uint64 // addresses of names that were deleted before their time, because there were too many
	Resets  uint64 // TCP streams that were ended because their beginning was not seen
}

// Learner learns the addresses of names.
type Learner struct {
	Config
	sets   sets
	queue  *nfqueue.Queue
	copies copies
	index  index
	// generation is that of the lists in index.
	generation uint64
	formers    formers
	streams    *streams
	waiting    waiting
	// deferred are packets that wait for the sets, and retryFor is how long.
	deferred []evaluated
	retryFor time.Duration
	// late are pods whose facts still wait although they are known.
	late []netip.Addr
	past pastSets
	// failing holds what fails now -> how often in a row.
	failing map[string]int
	// wake makes Run take over what was set.
	wake func()

	mu     sync.Mutex // guards the fields below, and what the lists hold; never held during a system call
	memory memory
	counts Counts
	err    error
}

// Open returns the Learner of some names, with a queue and the sets of the current network namespace. If another process
// holds the queue, Run waits for it.
func Open(c Config) (*Learner, error) {
	conn, err := ipset.Open()
	if err != nil {
		return nil, errors.Wrap(err, "opening the sets of domain names")
	}
	q, err := nfqueue.Open(c.Queue, false)
	if err != nil {
		_ = conn.Close()
		return nil, errors.Wrap(err, "opening the queue of DNS answers")
	}
	l := newLearner(c, conn)
	l.queue, l.wake = q, q.Wake
	if err := l.copies.open(c.Group); err != nil {
		l.Log.Warn(unheard, "err", err)
	}
	c.Names.learner.Store(l)
	return l, nil
}

func newLearner(c Config, s sets) *Learner {
	return &Learner{Config: c, sets: s, streams: newStreams(), index: newIndex(nil),
		formers: newFormers(nil, index{}, index{}), waiting: waiting{byAddr: map[netip.Addr][]fact{}},
		failing: map[string]int{}, retryFor: retryFor, past: pastSets{sets: s, names: c.Names, unkept: map[element]string{}},
		wake: func() {}, err: errors.New("the queue of DNS answers is not read yet")}
}

// snapshot returns the numbers since the start.
func (l *Learner) snapshot() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.counts
	c.Held, c.Evicted = len(l.memory.expiry), l.memory.evicted
	return c
}

// why returns why answers are not learned; nil if they are.
func (l *Learner) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Run reads the queue until the context ends. It returns no error: it retries what fails.
func (l *Learner) Run(ctx context.Context) error {
	defer func() {
		l.queue.Close()
		l.copies.close()
		_ = l.sets.Close() // what does not close harms nothing
	}()
	select {
	case <-ctx.Done():
	case <-l.Names.Asked():
	}
	defer context.AfterFunc(ctx, l.queue.Wake)()
	for next := time.Now(); ctx.Err() == nil; {
		if now := time.Now(); !now.Before(next) {
			l.tick(now)
			next = now.Add(every)
		}
		if until := time.Now().Add(retryEvery); len(l.deferred) > 0 && until.Before(next) {
			l.queue.Until(until)
		} else {
			l.queue.Until(next)
		}
		if ctx.Err() != nil { // what woke the queue before may have been overwritten
			break
		}
		bound := l.queue.Bound
		if l.Names.inputs.pending() {
			l.queue.Wake()
		}
		if err := l.read(); err != nil {
			l.note("reading", err, "DNS answers are not learned")
			time.Sleep(every) // it would fail again at once
		}
		if l.queue.Bound && !bound {
			next = time.Now()
		}
	}
	return nil
}

// tick does what has to be done now and then.
func (l *Learner) tick(now time.Time) {
	l.update(now)
	late := l.late
	l.late = nil
	l.arrive(late, now)
	l.note("queue", l.queue.Refused, "DNS answers are not learned")
	if !l.queue.Bound {
		if l.queue.Refused != nil {
			l.status(l.queue.Refused)
			l.note("asking", l.queue.Bind(), "the queue of DNS answers cannot be asked for")
		}
	} else {
		err := l.sets.Apply(l.renewal())
		if len(l.index.lists) == 0 {
			err = nil // there need not be a set
		}
		l.note("alive", err, "the kernel cannot be shown that DNS answers are learned: they pass unlearned soon")
		l.status(err)
	}
	l.Names.inputs.giveUp(l.waiting.expire(now)...)
	l.streams.expire(now)
	ended, err := l.formers.ended(l.sets, now.Add(-every))
	l.note("formers", err, "the kernel does not say which sets of domain names it has")
	if len(ended) > 0 {
		l.Names.inputs.forgetFormers(ended)
	}
	l.note("copies", l.overhear(now), unheard)
	l.copies.retry()
	waits, lost := l.queue.Length()
	l.mu.Lock()
	l.counts.Waiting, l.counts.Lost = waits, lost
	l.memory.expire(now)
	l.mu.Unlock()
	l.deleteGone()
}

// status sets what why returns.
func (l *Learner) status(err error) {
	l.mu.Lock()
	l.err = err
	l.mu.Unlock()
}

// renewal returns the operations that show the kernel that the queue is read.
func (l *Learner) renewal() (ops []ipset.Op) {
	for f, set := range l.Alive {
		if set.Name == "" {
			continue
		}
		ops = append(ops, ipset.Op{Kind: ipset.Add, Set: set, Elements: Everywhere(npc.Family(f))})
	}
	return ops
}

// Everywhere returns the elements that a set of Config.Alive has while the queue is read.
func Everywhere(f npc.Family) (out []ipset.Element) {
	for _, half := range ipblock.All(f) {
		out = append(out, ipset.Element{Entry: ipset.Net(half)})
	}
	return out
}

// note logs that something fails or no longer does, when that changes. What fails once may be a set that is about to be
// made.
func (l *Learner) note(what string, err error, meaning string) {
	switch {
	case err != nil:
		if l.failing[what]++; l.failing[what] == 2 {
			l.Log.Warn(meaning, "err", err)
		}
	case l.failing[what] > 1:
		l.Log.Info("no longer: " + meaning)
		fallthrough
	default:
		delete(l.failing, what)
	}
}

// overhear records what the copies of answers say that pods looked up.
func (l *Learner) overhear(now time.Time) error {
	return l.copies.read(func(raw []byte) { l.hear(raw, now) })
}

// hear records what a copy says.
func (l *Learner) hear(raw []byte, now time.Time) {
	p, err := parsePacket(raw)
	if err != nil || p.proto != unix.IPPROTO_UDP {
		return
	}
	if r, ok := parseReply(p.payload); ok {
		l.Names.lookedUp(p.to.Addr(), r, l.Domain, now)
	}
}

// adopt takes over what the sets of new lists hold, once there is a set.
func (l *Learner) adopt(now time.Time) {
	for _, of := range l.index.lists {
		for f := range npc.Families {
			l.adoptOnce(f, of.Past[f], &of.recalled[f], func(members []ipset.Element) { l.past.recall(of, members, now) })
			held := func(members []ipset.Element) { l.adoptSet(of, members, now) }
			of.missing[f] = l.adoptOnce(f, of.Sets[f], &of.adopted[f], held)
		}
	}
}

// adoptOnce calls take once with the members of a family's set. It reports whether there is no set yet.
func (l *Learner) adoptOnce(f int, set ipset.Set, done *bool, take func([]ipset.Element)) (missing bool) {
	if *done || set.Name == "" || l.Alive[f].Name == "" {
		return false
	}
	found, err := l.sets.ListNamed([]string{set.Name})
	l.note("adopting", err, "addresses of domain names cannot be read: those that were learned before are missing")
	if *done = err == nil && len(found) == 1; *done {
		take(found[0].Members)
	}
	return err == nil && !*done
}

// adoptSet holds the members of a set, for what is left of their time without the one that is for outages. It deletes
// those whose time is over, which are remembered, and those that have no name of the list.
func (l *Learner) adoptSet(of *followed, members []ipset.Element, now time.Time) {
	own := newIndex(map[string]*followed{of.Key: of})
	var facts []fact
	l.mu.Lock()
	for _, m := range members {
		a := m.Prefix.Addr()
		left := time.Duration(m.Timeout)*time.Second - outage
		matches := own.match(m.Comment)
		if len(of.addrs[a]) > 0 {
			continue
		}
		if len(matches) > 0 {
			facts = append(facts, fact{list: of, pattern: matches[0].pattern, name: m.Comment, addr: a, when: now,
				until: now.Add(left)})
		}
		if left <= 0 || len(matches) == 0 {
			l.memory.gone = append(l.memory.gone, element{of, a})
		} else {
			l.memory.hold(facts[len(facts)-1])
		}
	}
	l.mu.Unlock()
	l.past.remember(facts, anyGeneration)
	l.deleteGone()
}
