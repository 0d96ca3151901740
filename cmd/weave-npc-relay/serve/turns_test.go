package serve

import (
	"context"
	"testing"
	"time"
)

// TestS76_AnAgentsListsWaitForEachOther and for no other agent's; its requests are bounded.
func TestS76_AnAgentsListsWaitForEachOther(t *testing.T) {
	turns := NewTurns()
	own, end, err := turns.begin("a")
	if err != nil {
		t.Fatal(err)
	}
	take := func(s *share) (*turn, bool) {
		one := &turn{turns: turns, share: s}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		return one, one.take(ctx) == nil
	}
	var first *turn
	for i := range listsEach + 1 {
		one, ok := take(own)
		if ok != (i < listsEach) {
			t.Errorf("list %d is made: %t", i, ok)
		}
		if i == 0 {
			first = one
		}
	}
	other, _, err := turns.begin("b")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := take(other); !ok {
		t.Error("another agent's list waits")
	}
	first.end()
	first.end()
	if _, ok := take(own); !ok {
		t.Error("a list waits though one has ended")
	}
	if _, ok := take(own); ok {
		t.Error("a turn was ended twice")
	}
	for range requestsEach - 1 {
		if _, _, err := turns.begin("a"); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := turns.begin("a"); err == nil {
		t.Error("one request too many")
	}
	end()
	if _, _, err := turns.begin("a"); err != nil {
		t.Error(err)
	}
}
