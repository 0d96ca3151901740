package recorder

import (
	"context"
	"time"

	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

const (
	// repliesPeriod is how long after a connection its reply is looked for: while the kernel still has a connection
	// that was reset, 10 s.
	repliesPeriod = 5 * time.Second
	// maxRepliesPeriod is the longest time between two checks of connections without replies.
	maxRepliesPeriod = 5 * time.Minute
	// repliesShare bounds the part of the time that listing the table takes.
	repliesShare = 20
)

// watchReplies looks which connections got a reply. Only those matter that no reply is known of: most records have one
// after the first look.
func (r *Recorder) watchReplies(ctx context.Context) {
	period, failed := repliesPeriod, false
	var known map[flowlog.Connection]uint64
	for sleep(ctx, period) {
		waiting := r.store.Unreplied()
		period = nextPeriod(period, known, waiting)
		known = waiting
		if len(waiting) == 0 {
			continue
		}
		start := time.Now()
		err := conntrack.Replied(func(c conntrack.Opened) {
			if number, ok := waiting[connection(c)]; ok {
				waiting[connection(c)] = number + 1
			}
		})
		if err != nil && !failed {
			r.config.Log.Error("whether connections get replies is not recorded", "err", err)
		}
		failed = err != nil
		r.store.SetReplied(waiting)
		period = max(period, repliesShare*time.Since(start))
	}
}

// nextPeriod returns how long to wait after a look: longer and longer as long as nothing waits that did not wait
// before.
func nextPeriod(period time.Duration, known, waiting map[flowlog.Connection]uint64) time.Duration {
	for c := range waiting {
		if _, ok := known[c]; !ok {
			return repliesPeriod
		}
	}
	if len(waiting) == 0 {
		return repliesPeriod
	}
	return min(2*period, maxRepliesPeriod)
}
