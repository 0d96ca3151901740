package serve

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// requestsEach is how many requests of one agent are answered, or wait, at a time: it watches five kinds at most,
	// each of them twice while it moves, and those of another process of its pod may not have ended yet.
	requestsEach = 32
	// lists is how many lists are made at a time, and listsEach how many of them for one agent: each holds all objects.
	lists, listsEach = 8, 2
	// listWait is how long a list waits for its turn. An agent waits ten seconds before it goes elsewhere.
	listWait = 8 * time.Second
	// listTimeout is how long a list may take to be made and written.
	listTimeout = 30 * time.Second
)

// Turns bound what agents ask for at a time, in all and each of them. They are those of all kinds. The methods may be
// called by several goroutines.
type Turns struct {
	all *semaphore.Weighted

	mu     sync.Mutex // guards the fields below
	agents map[string]*share
}

// share is what an agent has of them.
type share struct {
	requests int // guarded by Turns.mu
	lists    *semaphore.Weighted
}

// NewTurns returns turns none of which is taken.
func NewTurns() *Turns {
	return &Turns{all: semaphore.NewWeighted(lists), agents: map[string]*share{}}
}

// begin begins a request of an agent, unless it has too many. The function that it returns ends it.
func (t *Turns) begin(agent string) (*share, func(), error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.agents[agent]
	if s == nil {
		s = &share{lists: semaphore.NewWeighted(listsEach)}
		t.agents[agent] = s
	}
	if s.requests >= requestsEach {
		return nil, nil, apierrors.NewTooManyRequests("too many requests of this agent at a time", 0)
	}
	s.requests++
	return s, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if s.requests--; s.requests == 0 {
			delete(t.agents, agent)
		}
	}, nil
}

// turn is that of a list.
type turn struct {
	turns *Turns
	share *share
	taken func() // is called when it begins; may be nil

	mu  sync.Mutex // guards has
	has bool
}

// turnKey is the key of the turn in the context of a list.
type turnKey struct{}

// take waits for the turn; first for that among the agent's own lists, so that few of those that wait for another's end
// are one agent's.
func (t *turn) take(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	if t.share.lists.Acquire(ctx, 1) != nil {
		return apierrors.NewTooManyRequests("this agent's other lists take too long", 0)
	}
	if t.turns.all.Acquire(ctx, 1) != nil {
		t.share.lists.Release(1)
		return apierrors.NewTooManyRequests("the lists of other agents take too long", 0)
	}
	if t.taken != nil {
		t.taken()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.has = true
	return nil
}

// end ends the turn, if it was taken and has not ended.
func (t *turn) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.has {
		t.has = false
		t.turns.all.Release(1)
		t.share.lists.Release(1)
	}
}
