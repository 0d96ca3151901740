package npc

import (
	"context"
	"time"
)

// Sync is what Run does when something changed.
func (s *Syncer) Sync(ctx context.Context, boot bool) []error { return s.sync(ctx, boot) }

// Watch is what Run does every watchEvery.
func (s *Syncer) Watch(ctx context.Context) bool { return s.watch(ctx) }

// TidyNow has the next Sync tidy up, if there is anything to tidy up.
func (s *Syncer) TidyNow() { s.lastChange = time.Time{} }

// Untidy says whether the model has something to tidy up.
func (s *Syncer) Untidy() bool { return !s.untidySince.IsZero() }
