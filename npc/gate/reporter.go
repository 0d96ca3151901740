package gate

import (
	"log/slog"
	"strings"
	"time"
)

// long is how long the gate may be closed for one reason, or pods without a known range, before there is a warning.
const long = 15 * time.Second

// Reporter logs what the gate closes, and what it cannot close.
type Reporter struct {
	Log *slog.Logger

	// closed holds direction -> what the log knows of it.
	closed map[string]closed
	// strays are the pods outside the ranges that were logged last.
	strays string
	// unknown is since when no range is known; zero if one is. warned is set once the log tells it.
	unknown time.Time
	warned  bool
}

// closed is why the gate is closed, since when, and whether there was a warning.
type closed struct {
	why    string
	since  time.Time
	warned bool
}

// Closed logs what the gate drops in a direction and why, with a warning if it does so for long, and when that has passed.
func (r *Reporter) Closed(direction, what, why string, now time.Time) {
	if r.closed == nil {
		r.closed = map[string]closed{}
	}
	c := r.closed[direction]
	switch {
	case why == "" && c.why != "":
		r.Log.Info("gate open", "direction", direction)
	case why != c.why:
		r.Log.Info("gate closed", "direction", direction, "dropped", what, "reason", why)
	case why != "" && !c.warned && now.Sub(c.since) >= long:
		c.warned = true
		r.Log.Warn("gate closed for long", "direction", direction, "dropped", what, "reason", why)
	}
	if (why == "") != (c.why == "") {
		c = closed{since: now}
	}
	c.why = why
	r.closed[direction] = c
}

// Open logs local pods that the gate does not close because they are outside the ranges, when they are others than before, and that no
// range is known at all.
func (r *Reporter) Open(strays []string, unknown bool, now time.Time) {
	names := strings.Join(strays, ", ")
	if names != "" && names != r.strays {
		r.Log.Warn("pods of this node are outside its range: give --pod-interface or --pod-cidr, or a new pod may be reached "+
			"before its address is known", "pods", names)
	}
	r.strays = names
	switch {
	case !unknown:
		r.unknown, r.warned = time.Time{}, false
	case r.unknown.IsZero():
		r.unknown = now // the API server may tell it yet
	case !r.warned && now.Sub(r.unknown) >= long:
		r.warned = true
		r.Log.Warn("no range of this node's pods is known: a new pod may be reached before its address is known; " +
			"give --pod-interface or --pod-cidr, or the node its spec.podCIDRs")
	}
}
