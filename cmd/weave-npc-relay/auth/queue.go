package auth

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/internal/connlimit"
)

const (
	// reviews is how many tokens are asked for at a time. Of them, reviewsUnknown at most were not accepted before,
	// reviewsEach come from one address, and reviewsFailed, unknown ones, from addresses that have sent a token that was
	// refused: even if the API server is slow, there is room for others.
	reviews, reviewsUnknown, reviewsEach, reviewsFailed = 10, 8, 2, 2
	// waitingEach is how many unknown tokens of one address may wait.
	waitingEach = 16
	// failedMost is how many addresses are remembered for a refused token.
	failedMost = 10_000
)

// errBusy is returned if too many unknown tokens of an address wait.
var errBusy = errors.New("too many tokens of this address wait to be asked for")

// queue lets few reviews run at a time: first those of tokens that were accepted before, then those of addresses that
// have sent none that was refused. Addresses take turns. Its methods may be called by several goroutines.
type queue struct {
	mu       sync.Mutex // guards the fields below
	waiting  []*review  // in the order they came
	running  int
	unknown  int // of those running, not accepted before
	suspects int // of those running, of addresses that have failed
	clients  map[netip.Addr]*client
	failed   map[netip.Addr]bool
}

// client counts the reviews of an address.
type client struct{ running, waiting int }

// review is a token that is asked for, or is to be.
type review struct {
	addr    netip.Addr // zero if it is this host's own
	known   bool       // it was accepted before
	suspect bool       // its address had failed when it began
	turn    chan struct{}
}

func newQueue() *queue {
	return &queue{clients: map[netip.Addr]*client{}, failed: map[netip.Addr]bool{}}
}

// clientOf returns the address that a request comes from; it is zero if that is this host itself, from where only who is
// trusted sends.
func clientOf(r *http.Request) netip.Addr {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	to, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	client, own := connlimit.Client(net.TCPAddrFromAddrPort(from), to)
	if own {
		return netip.Addr{}
	}
	return client
}

// enter waits for the turn of a token. If it returns no error, leave has to be called.
func (q *queue) enter(ctx context.Context, addr netip.Addr, known bool) (*review, error) {
	r := &review{addr: addr, known: known, turn: make(chan struct{})}
	q.mu.Lock()
	c := q.clients[addr]
	if c == nil {
		c = &client{}
		q.clients[addr] = c
	}
	if !known && addr.IsValid() && c.waiting >= waitingEach {
		q.mu.Unlock()
		return nil, errBusy
	}
	c.waiting++
	q.waiting = append(q.waiting, r)
	q.begin()
	q.mu.Unlock()
	select {
	case <-r.turn:
		return r, nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, r); i >= 0 {
		q.remove(i)
		q.forget(addr)
		return nil, errors.Wrap(ctx.Err(), "waiting to ask the API server for a token")
	}
	return r, nil // its turn has come at the same time
}

// leave ends a review that the API server has decided, if it did.
func (q *queue) leave(r *review, accepted, refused bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count(r, -1)
	switch {
	case accepted:
		delete(q.failed, r.addr)
	case refused && r.addr.IsValid():
		if len(q.failed) >= failedMost {
			clear(q.failed)
		}
		q.failed[r.addr] = true
	}
	q.forget(r.addr)
	q.begin()
}

// begin begins the reviews that may begin. q.mu is held.
func (q *queue) begin() {
	for q.running < reviews {
		best := -1
		for i := range q.waiting {
			if q.may(q.waiting[i]) && (best < 0 || q.before(q.waiting[i], q.waiting[best])) {
				best = i
			}
		}
		if best < 0 {
			return
		}
		r := q.waiting[best]
		q.remove(best)
		r.suspect = q.failed[r.addr]
		q.count(r, 1)
		close(r.turn)
	}
}

// may reports whether there is room for a review.
func (q *queue) may(r *review) bool {
	if r.addr.IsValid() && q.clients[r.addr].running >= reviewsEach {
		return false
	}
	return r.known || q.unknown < reviewsUnknown && (!q.failed[r.addr] || q.suspects < reviewsFailed)
}

// before reports whether a review goes before one that came earlier.
func (q *queue) before(r, earlier *review) bool {
	rank := func(r *review) int {
		switch {
		case r.known:
			return 0
		case !q.failed[r.addr]:
			return 1
		}
		return 2
	}
	if a, b := rank(r), rank(earlier); a != b {
		return a < b
	}
	return q.clients[r.addr].running < q.clients[earlier.addr].running
}

// count counts a review that begins, or ends.
func (q *queue) count(r *review, delta int) {
	q.running += delta
	q.clients[r.addr].running += delta
	if !r.known {
		q.unknown += delta
	}
	if r.suspect && !r.known {
		q.suspects += delta
	}
}

// remove removes a review from those that wait.
func (q *queue) remove(i int) {
	q.clients[q.waiting[i].addr].waiting--
	q.waiting = slices.Delete(q.waiting, i, i+1)
}

// forget forgets an address of which no token is asked for.
func (q *queue) forget(addr netip.Addr) {
	if c := q.clients[addr]; c.running == 0 && c.waiting == 0 {
		delete(q.clients, addr)
	}
}
