package auth

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/await"
)

// began reports whether the review of a token begins at once; else it goes on to wait until the test ends.
func (q *queue) began(t *testing.T, addr string, known bool) (r *review, ok bool) {
	t.Helper()
	begun, before := make(chan *review, 1), q.waits()
	go func() {
		if r, err := q.enter(t.Context(), netip.MustParseAddr(addr), known); err == nil {
			begun <- r
		}
	}()
	await.That(t, "a token that begins, or waits", func() bool {
		select {
		case r = <-begun:
			ok = true
		default:
		}
		return ok || q.waits() > before
	})
	return r, ok
}

// waits returns how many tokens wait.
func (q *queue) waits() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// TestS76_TokensOfAnAddressWaitForEachOther: one address has two reviews at a time, and not many that wait.
func TestS76_TokensOfAnAddressWaitForEachOther(t *testing.T) {
	q := newQueue()
	for i := range reviewsEach + waitingEach {
		if _, ok := q.began(t, "192.0.2.1", false); ok != (i < reviewsEach) {
			t.Errorf("review %d begins: %t", i, ok)
		}
	}
	if _, err := q.enter(t.Context(), netip.MustParseAddr("192.0.2.1"), false); !errors.Is(err, errBusy) {
		t.Errorf("one more: %v", err)
	}
	if _, ok := q.began(t, "192.0.2.2", false); !ok {
		t.Error("another address waits")
	}
	if _, ok := q.began(t, "192.0.2.3", true); !ok {
		t.Error("a known token waits")
	}
}

// TestS76_AddressesWithRefusedTokensAreLast: however many they are, others find room, and go first.
func TestS76_AddressesWithRefusedTokensAreLast(t *testing.T) {
	q := newQueue()
	var suspects []*review
	for _, addr := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"} {
		r, ok := q.began(t, addr, false)
		if !ok {
			t.Fatal("the first token of an address waits")
		}
		q.leave(r, false, true)
		if r, ok := q.began(t, addr, false); ok {
			suspects = append(suspects, r)
		}
	}
	if len(suspects) != reviewsFailed {
		t.Errorf("%d reviews of addresses with refused tokens", len(suspects))
	}
	var others []*review
	for _, addr := range []string{"192.0.2.4", "192.0.2.5", "192.0.2.6", "192.0.2.4", "192.0.2.5", "192.0.2.6"} {
		r, ok := q.began(t, addr, false)
		if !ok {
			t.Fatal("an address without a refused token waits")
		}
		others = append(others, r)
	}
	later, before := make(chan error), q.waits()
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), await.Scaled(time.Minute))
		defer cancel()
		_, err := q.enter(ctx, netip.MustParseAddr("192.0.2.7"), false)
		later <- err
	}()
	await.That(t, "one more that waits", func() bool { return q.waits() > before })
	q.leave(suspects[0], false, true)
	if err := <-later; err != nil {
		t.Errorf("an address with refused tokens went first: %v", err)
	}
	q.leave(others[0], true, false)
	q.leave(suspects[1], true, false)
	if len(q.failed) != 2 {
		t.Errorf("%d addresses are remembered; an accepted token is to clear one", len(q.failed))
	}
}
