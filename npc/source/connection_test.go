package source

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	sourcetest "github.com/weave-npc/weave-npc/test/source"
)

func TestConnection(t *testing.T) {
	refused := errors.New("connection refused")
	expired := apierrors.NewResourceExpired("too old")
	noStreaming := apierrors.NewInvalid(schema.GroupKind{}, "", nil)
	type step func(*connection)
	started := func(c *connection) { c.started() }
	ended := func(c *connection) { c.ended() }
	failed := func(err error) step { return func(c *connection) { c.failed(context.Background(), err) } }
	wait := func(d time.Duration) step { return func(*connection) { time.Sleep(d) } }
	shortly, long := wait(outageGrace/2), wait(2*outageGrace)

	for _, test := range []struct {
		name  string
		steps []step
		want  []bool
	}{
		{"nothing happened", []step{long}, nil},
		{"works from the start", []step{started, long}, []bool{true}},
		{"fails from the start, and again", []step{failed(refused), long, failed(refused), long}, []bool{false}},
		{"server does not stream lists", []step{failed(noStreaming), started, long}, []bool{true}},
		{"ends and is established again", []step{started, ended, shortly, started, long}, []bool{true}},
		{"ends and stays away", []step{started, ended, long}, []bool{true, false}},
		{"version expired, listed again", []step{started, ended, failed(expired), shortly, started, long}, []bool{true}},
		{"version expired, list fails", []step{started, ended, failed(expired), failed(refused)}, []bool{true, false}},
		{"version expired, nothing follows", []step{started, ended, failed(expired), long}, []bool{true, false}},
		{"outage", []step{started, ended, failed(refused), long, failed(refused), started, long}, []bool{true, false, true}},
		{"comes back for less than a moment", []step{started, failed(refused), started, shortly, ended, long}, []bool{true, false}},
		{"comes back, fails again", []step{failed(refused), started, shortly, failed(refused), long}, []bool{false}},
		{"works after a moment only", []step{failed(refused), started, shortly}, []bool{false}},
		{"closed", []step{started, ended, (*connection).close, long, started, failed(refused)}, []bool{true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []bool
				c := &connection{kind: Pods, log: slog.New(slog.DiscardHandler), grace: outageGrace,
					report: func(ok bool) { got = append(got, ok) }}
				for _, s := range test.steps {
					s(c)
					synctest.Wait()
				}
				c.close()
				if !slices.Equal(got, test.want) {
					t.Errorf("reported %v, want %v", got, test.want)
				}
			})
		})
	}
}

func TestConnectionIgnoresTheEndOfItsOwnContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c := &connection{log: slog.New(slog.DiscardHandler), report: func(ok bool) { t.Errorf("reported %v", ok) }}
	c.failed(ctx, ctx.Err())
}

func TestOutageIsLoggedOnce(t *testing.T) {
	log, logger := sourcetest.NewJournal()
	c := &connection{kind: Pods, log: logger, report: func(bool) {}, grace: time.Hour}
	defer c.close()
	c.started()
	for range 5 {
		c.failed(context.Background(), errors.New("connection refused"))
	}
	if n := log.Count("watch is broken"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log)
	}
	if log.Count("connection refused") != 1 {
		t.Errorf("cause is not logged:\n%s", log)
	}
}
