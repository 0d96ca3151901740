package source

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// maxUnsyncedNamed limits the inputs that the readiness names.
const maxUnsyncedNamed = 5

// unsynced lists the inputs that have never been read, with the reasons. It may be used by several goroutines.
type unsynced struct {
	mu      sync.Mutex        // guards the fields below
	reasons map[string]string // by input
	waiting []waiter
}

// waiter is closed when none of some inputs is listed.
type waiter struct {
	inputs []string
	done   chan struct{}
}

func newUnsynced() *unsynced { return &unsynced{reasons: map[string]string{}} }

// set lists an input; an empty reason removes it from the list.
func (u *unsynced) set(input, reason string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if reason == "" {
		delete(u.reasons, input)
		u.notify()
		return
	}
	u.reasons[input] = reason
}

// whenRead returns a channel that is closed when none of some inputs is listed.
func (u *unsynced) whenRead(inputs ...string) <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	w := waiter{inputs, make(chan struct{})}
	u.waiting = append(u.waiting, w)
	u.notify()
	return w.done
}

// notify closes the waiters whose inputs are all synced. u.mu is held.
func (u *unsynced) notify() {
	u.waiting = slices.DeleteFunc(u.waiting, func(w waiter) bool {
		if slices.ContainsFunc(w.inputs, func(input string) bool { _, listed := u.reasons[input]; return listed }) {
			return false
		}
		close(w.done)
		return true
	})
}

// update changes the reason of an input that is listed.
func (u *unsynced) update(input, reason string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, ok := u.reasons[input]; ok {
		u.reasons[input] = reason
	}
}

func (u *unsynced) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.reasons)
}

// String returns the reasons in the order of their inputs, the first ones if there are many.
func (u *unsynced) String() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var texts []string
	for _, input := range slices.Sorted(maps.Keys(u.reasons)) {
		if len(texts) == maxUnsyncedNamed {
			texts = append(texts, fmt.Sprintf("and %d more", len(u.reasons)-maxUnsyncedNamed))
			break
		}
		texts = append(texts, u.reasons[input])
	}
	return strings.Join(texts, "; ")
}
