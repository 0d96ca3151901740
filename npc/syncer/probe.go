package syncer

import (
	"context"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/npc/naming"
)

// trialPatience is how long a trial is waited for before everything else goes on: most failures come at once.
const trialPatience = 300 * time.Millisecond

// tried tells whether the programs of iptables work, once that is known. As long as nothing has failed they are taken to. After a
// failure they are tried first, with what changes nothing, beside everything else: where they hang, sets are kept up to date all the
// same. ended is called when a trial ends that was not waited for.
func (k *kernel) tried(ctx context.Context, ended func()) (known bool, err error) {
	if k.trial != nil {
		return k.trialResult(0)
	}
	if k.retry.wait == 0 {
		return true, nil
	}
	done, limit := make(chan error, 1), programTimeout+k.retry.wait
	k.trial = done
	go func() {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		done <- k.try(ctx)
		ended()
	}()
	return k.trialResult(trialPatience)
}

// trialResult waits for the end of the trial under way.
func (k *kernel) trialResult(patience time.Duration) (known bool, err error) {
	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case err := <-k.trial:
		k.trial = nil
		return true, err
	default:
	}
	select {
	case err := <-k.trial:
		k.trial = nil
		return true, err
	case <-wait.C:
		return false, nil
	}
}

// try runs the programs of iptables as they are run in earnest, but for what they change.
func (k *kernel) try(ctx context.Context) error {
	if _, err := k.filter.Read(ctx, naming.ChainPrefix); err != nil {
		return err
	}
	return errors.Wrap(k.filter.Try(ctx), "trying to write")
}
