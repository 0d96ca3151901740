package controller

import (
	"net/netip"
	"time"
)

// changes records what is to be planned next. Once in operation, changes of policies and changes of pods do not share a
// plan: between its steps a new member would meet an old rule, which opens what both states deny. Nor does a plan have
// more of them than one transaction should carry.
type changes struct {
	// batch is the kind of the changes since the last plan, and weight what they weigh together; planned is the kind of
	// those before.
	batch, planned queuedKind
	weight         int
	// later holds the changes that must not be planned with them.
	later changeQueue
	// edited is set if flows may have another verdict by what was planned, other than by pods that come and go.
	edited bool
	// late are the addresses that became local pods' by what was planned.
	late []netip.Addr
	// inFlight reports that a plan was made and not carried out yet.
	inFlight bool
	// changedAt is when the first change came that no plan was made for yet, plannedAt the first that the kernel may
	// not hold yet; zero if there is none.
	changedAt, plannedAt time.Time
}

// mustWait reports whether an event has to be queued. While a transaction is carried out all do: applied at once,
// changes of one kind would come before those of the other that wait.
func (c *changes) mustWait(e queuedChange) bool {
	return c.inFlight || !c.later.Empty() || c.batch != noKind && (c.batch != e.Kind || c.weight+e.Weight > maxWeight)
}

// add records an event that was applied.
func (c *changes) add(e queuedChange) {
	c.batch = e.Kind
	c.weight += e.Weight
	c.later.Passed(e)
	c.begin(time.Now())
}

// queue records an event that has to wait.
func (c *changes) queue(e queuedChange) {
	now := time.Now()
	c.later.Put(e, now)
	c.begin(now)
}

// reconcileLater has the budget reconciled with the next changes of policies, if there are others or not.
func (c *changes) reconcileLater() {
	c.later.Put(queuedChange{Kind: policyChanges, Key: "budget", Apply: func() {}}, time.Now())
}

func (c *changes) begin(now time.Time) {
	if c.changedAt.IsZero() {
		c.changedAt = now
	}
}

// restart records that the changes so far are those of the start, which are planned together.
func (c *changes) restart() { c.batch, c.inFlight = noKind, false }

// plan records that a plan is made for the changes so far, which is to be carried out if inFlight is set.
func (c *changes) plan(inFlight bool) {
	if c.batch != noKind {
		c.planned = c.batch
	}
	c.batch, c.weight, c.inFlight = noKind, 0, inFlight
	if c.plannedAt.IsZero() {
		c.plannedAt = c.changedAt
	}
	c.changedAt = time.Time{}
}

// next returns the changes that waited and are due, which count as applied.
func (c *changes) next() []queuedChange {
	if c.changedAt.IsZero() { // an earlier plan took the time of all changes before it
		c.changedAt = c.later.Oldest()
	}
	events := c.later.Take(c.planned)
	for _, e := range events {
		c.batch = e.Kind
		c.weight += e.Weight
	}
	return events
}

// carriedOut records that the kernel holds what was planned. It returns when the first of these changes came; zero if
// there were none.
func (c *changes) carriedOut() time.Time {
	at := c.plannedAt
	c.plannedAt = time.Time{}
	return at
}

// waiting returns how long the oldest change has been waiting that the kernel may not hold yet.
func (c *changes) waiting() (longest time.Duration) {
	for _, at := range []time.Time{c.changedAt, c.plannedAt, c.later.Oldest()} {
		if !at.IsZero() {
			longest = max(longest, time.Since(at))
		}
	}
	return longest
}

// any reports whether changes were applied since the last plan.
func (c *changes) any() bool { return c.batch != noKind }
