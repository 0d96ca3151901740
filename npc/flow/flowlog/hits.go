package flowlog

import (
	"cmp"
	"container/list"
	"encoding/json"
	"io"
	"slices"
	"time"

	"github.com/pkg/errors"
)

const (
	// maxRules is how many rules a store counts the hits of.
	maxRules = 10_000
	// hitSize is how many bytes a rule takes in a file, at most: its names have 340.
	hitSize = 1024
)

// Hits are how often rules decided about recorded connections.
type Hits struct {
	// Node is the node that counted; empty for several.
	Node string `json:"node,omitempty"`
	// Since is when counting began. Rules has every rule that was hit after Complete: it is later than Since if rules
	// were dropped, because they were too many, or if some of several nodes began later.
	Since    time.Time `json:"since"`
	Complete time.Time `json:"complete_since"`
	// Evicted is how many rules were dropped.
	Evicted uint64 `json:"evicted,omitempty"`
	// Rules are the rules, those whose last hit is the oldest first.
	Rules []Hit `json:"rules"`
}

// Hit is how often a rule decided. A rule that is changed is another one, and one that is moved within its policy is
// not.
type Hit struct {
	Applied
	Verdict Verdict   `json:"verdict"`
	Count   uint64    `json:"count"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
}

// identity is what hits of the same rule have in common.
type identity struct{ tier, policy, direction, content string }

func (i identity) compare(o identity) int {
	return cmp.Or(cmp.Compare(i.tier, o.tier), cmp.Compare(i.policy, o.policy),
		cmp.Compare(i.direction, o.direction), cmp.Compare(i.content, o.content))
}

func (a *Applied) identity() identity { return identity{a.Tier, a.Policy, a.Direction, a.Content} }

// counter counts hits. It must not be used concurrently.
type counter struct {
	since, complete time.Time
	rules           map[identity]*list.Element
	// order has the rules as *Hit, the one that was hit last in front.
	order   list.List
	evicted uint64
	version uint64 // counts the changes
}

func newCounter(now time.Time) *counter {
	return &counter{since: now, complete: now, rules: map[identity]*list.Element{}, version: 1}
}

// add counts hits of a rule. Its number is the one that it had last.
func (c *counter) add(now time.Time, a Applied, v Verdict, number int) {
	c.version++
	k := a.identity()
	e := c.rules[k]
	if e == nil {
		c.push(&Hit{Applied: a, Verdict: v, Count: uint64(number), First: now, Last: now})
		return
	}
	h := e.Value.(*Hit)
	h.Number, h.Verdict, h.Last = a.Number, v, now
	h.Count += uint64(number)
	c.order.MoveToFront(e)
}

// push adds a rule that is not there, and drops the one whose last hit is the oldest if there are too many.
func (c *counter) push(h *Hit) {
	c.rules[h.identity()] = c.order.PushFront(h)
	if len(c.rules) <= maxRules {
		return
	}
	last := c.order.Remove(c.order.Back()).(*Hit)
	delete(c.rules, last.identity())
	c.evicted++
	if last.Last.After(c.complete) {
		c.complete = last.Last
	}
}

// Hits returns how often rules decided.
func (s *Store) Hits() Hits {
	h, _ := s.hitsSince(0)
	return h
}

// hitsSince returns the hits, and the version that they are of. They are empty if it is the one that is known.
func (s *Store) hitsSince(known uint64) (h Hits, version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.hits
	if c.version == known {
		return h, known
	}
	h = Hits{Node: s.node, Since: c.since, Complete: c.complete, Evicted: c.evicted,
		Rules: make([]Hit, 0, len(c.rules))}
	for e := c.order.Back(); e != nil; e = e.Prev() {
		h.Rules = append(h.Rules, *e.Value.(*Hit))
	}
	return h, c.version
}

// restoreHits goes on with the hits of a file.
func (s *Store) restoreHits(h Hits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := newCounter(h.Since)
	c.complete, c.evicted = h.Complete, h.Evicted
	for _, r := range h.Rules {
		if c.rules[r.identity()] == nil {
			c.push(&r)
		}
	}
	s.hits = c
}

// ReadHits reads what WriteHits has written.
func ReadHits(in io.Reader) (h Hits, err error) {
	if err := json.NewDecoder(in).Decode(&h); err != nil {
		return Hits{}, errors.Wrap(err, "these are no hits of rules")
	}
	if h.Since.IsZero() || h.Complete.Before(h.Since) {
		return Hits{}, errors.New("these are no hits of rules: it is missing since when they are counted")
	}
	for i, r := range h.Rules {
		if err := r.check(); err != nil {
			return Hits{}, errors.Wrapf(err, "rule %d of the hits", i+1)
		}
	}
	sortHits(h.Rules)
	return h, nil
}

// check returns what is wrong with what was read.
func (h *Hit) check() error {
	switch {
	case h.Policy == "" || h.Number < 1 || h.Content == "" || !h.printable() || !printable(h.Content):
		return errors.New("it is no rule of a policy")
	case !h.Verdict.known():
		return errors.Errorf("verdict: it is %q, neither %s nor %s", h.Verdict, Allowed, Denied)
	case h.Count == 0 || h.First.IsZero() || h.Last.IsZero():
		return errors.New("it was never hit")
	}
	return nil
}

// WriteHits writes hits, as one line of JSON.
func WriteHits(out io.Writer, h Hits) error {
	return errors.Wrap(json.NewEncoder(out).Encode(h), "writing hits of rules")
}

// MergeHits returns what several nodes' hits are together. A connection between pods of two nodes hits the rules of
// egress on the one, and those of ingress on the other, so that none counts twice.
func MergeHits(all []Hits) (out Hits) {
	rules := map[identity]Hit{}
	for i, h := range all {
		if i == 0 || h.Since.Before(out.Since) {
			out.Since = h.Since
		}
		if h.Complete.After(out.Complete) {
			out.Complete = h.Complete
		}
		out.Evicted += h.Evicted
		for _, r := range h.Rules {
			if former, ok := rules[r.identity()]; ok {
				r = r.plus(former)
			}
			rules[r.identity()] = r
		}
	}
	out.Rules = make([]Hit, 0, len(rules))
	for _, r := range rules {
		out.Rules = append(out.Rules, r)
	}
	sortHits(out.Rules)
	return out
}

// plus returns the hits of one rule on two nodes.
func (h Hit) plus(o Hit) Hit {
	first, count := h.First, h.Count+o.Count
	if o.First.Before(first) {
		first = o.First
	}
	if o.Last.After(h.Last) {
		h = o
	}
	h.First, h.Count = first, count
	return h
}

// sortHits orders rules by their last hits, and those that were hit last at the same time by name.
func sortHits(rules []Hit) {
	slices.SortFunc(rules, func(a, b Hit) int {
		if c := a.Last.Compare(b.Last); c != 0 {
			return c
		}
		return a.identity().compare(b.identity())
	})
}
