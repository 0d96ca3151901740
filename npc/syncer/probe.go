package syncer

import (
	"context"
	"time"
)

// probePatience is how long a sync waits for a probe before it goes on without: most failures come at once.
const probePatience = 300 * time.Millisecond

// probe is a try whether the programs of iptables work, which goes on beside the syncs. The zero probe is not running.
type probe struct{ result chan error }

// running reports whether the probe was started and its end not been seen.
func (p *probe) running() bool { return p.result != nil }

// start runs try for at most limit in a goroutine, which calls ended at its end.
func (p *probe) start(ctx context.Context, limit time.Duration, try func(context.Context) error, ended func()) {
	result := make(chan error, 1)
	p.result = result
	go func() {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		result <- try(ctx)
		ended()
	}()
}

// wait waits for the end of the probe and returns its result. It reports whether the probe has ended.
func (p *probe) wait(patience time.Duration) (ended bool, err error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err = <-p.result: // even if no patience is left
	default:
		select {
		case err = <-p.result:
		case <-timer.C:
			return false, nil
		}
	}
	p.result = nil
	return true, err
}
