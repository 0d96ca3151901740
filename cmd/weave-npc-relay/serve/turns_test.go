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
		return one, one.take(t.Context()) == nil
	}
	waits := func(s *share) bool {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		return (&turn{turns: turns, share: s}).take(ctx) != nil
	}
	var first *turn
	for i := range listsEach {
		one, ok := take(own)
		if !ok {
			t.Errorf("list %d waits", i)
		}
		if i == 0 {
			first = one
		}
	}
	if !waits(own) {
		t.Error("one list too many is made")
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
	if !waits(own) {
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
