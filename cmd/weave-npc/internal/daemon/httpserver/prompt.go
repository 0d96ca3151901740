package httpserver

import (
	"time"

	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

const (
	// scrapeFresh is how long gathered metrics are served again, which bounds how often scrapes take locks.
	scrapeFresh = 100 * time.Millisecond
	// answerTimeout is how long an answer waits for locks before it is given from the last known values.
	answerTimeout = 2 * time.Second
	// answerOutdated is the age from which a last known value no longer counts as readiness.
	answerOutdated = 15 * time.Second
)

// collected is the result of gathering from a registry.
type collected struct {
	families []*dto.MetricFamily
	err      error
}

// newGatherer returns a gatherer that lets one scrape at a time read a registry.
func newGatherer(registry prometheus.Gatherer) prometheus.Gatherer {
	l := &latest[collected]{fresh: scrapeFresh, timeout: answerTimeout, compute: func() (g collected) {
		g.families, g.err = registry.Gather()
		return g
	}}
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		g, at := l.get()
		if at.IsZero() {
			return nil, errors.New("the metrics are not known yet: what they come from is busy")
		}
		return g.families, g.err
	})
}

// Prompt returns a version of notReady that answers within seconds, even while the locks that notReady takes are held.
func Prompt(notReady func() string) func() string {
	l := &latest[string]{compute: notReady, timeout: answerTimeout}
	return func() string {
		why, at := l.get()
		if at.IsZero() || time.Since(at) > answerOutdated {
			return "it is not known whether policies are enforced: weave-npc has been busy for too long"
		}
		return why
	}
}
