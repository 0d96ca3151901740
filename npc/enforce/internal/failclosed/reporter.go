package failclosed

import (
	"log/slog"
	"strings"
	"time"

	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// long is the time after which there is a warning if the fail-closed filter is closed, or if no pod range is known.
const long = 15 * time.Second

// Reporter logs what the fail-closed filter drops, and pods that it cannot protect.
type Reporter struct {
	Log *slog.Logger

	closed map[string]closed // direction -> what was logged last
	// outOfRangePods are the pods outside the ranges that were logged last.
	outOfRangePods string
	// unlisted are the addresses that no object lists, as logged last.
	unlisted string
	// noPodRange is the time since which no range is known; zero if one is. warned is set after the warning about it.
	noPodRange time.Time
	warned     bool
}

// closed is the reason why the fail-closed filter is closed, since when it is, and whether there was a warning.
type closed struct {
	why    string
	since  time.Time
	warned bool
}

// Closed logs that the fail-closed filter closes or opens in a direction, and warns if it is closed for long. what
// describes the dropped addresses; an empty why means open.
func (r *Reporter) Closed(direction, what, why string, now time.Time) {
	if r.closed == nil {
		r.closed = map[string]closed{}
	}
	c := r.closed[direction]
	switch {
	case why == "" && c.why != "":
		r.Log.Info("fail-closed filter open", "direction", direction)
	case why != c.why:
		r.Log.Info("fail-closed filter closed", "direction", direction, "dropped", what, "reason", why)
	case why != "" && !c.warned && now.Sub(c.since) >= long:
		c.warned = true
		r.Log.Warn("fail-closed filter closed for long", "direction", direction, "dropped", what, "reason", why)
	}
	if (why == "") != (c.why == "") {
		c = closed{since: now}
	}
	c.why = why
	r.closed[direction] = c
}

// Unlisted logs the addresses of isolated pods that are closed because no object lists them, when they change.
func (r *Reporter) Unlisted(addrs []string) {
	text := naming.Few(addrs)
	if text == r.unlisted {
		return
	}
	if r.unlisted = text; text == "" {
		r.Log.Info("no address of an isolated pod is closed any more that no object lists")
		return
	}
	r.Log.Warn("isolated pods have addresses that no object lists: these are closed", "count", len(addrs),
		"addresses", text)
}

// Open logs the local pods that the fail-closed filter does not protect because they are outside the ranges, when they
// change, and warns if no range is known for long.
func (r *Reporter) Open(outOfRangePods []string, noPodRange bool, now time.Time) {
	names := strings.Join(outOfRangePods, ", ")
	if names != "" && names != r.outOfRangePods {
		r.Log.Warn("pods of this node are outside its range: give --pod-interface or --pod-cidr, "+
			"or a new pod may be reached "+
			"before its address is known", "pods", names)
	}
	r.outOfRangePods = names
	switch {
	case !noPodRange:
		r.noPodRange, r.warned = time.Time{}, false
	case r.noPodRange.IsZero():
		r.noPodRange = now // the API server may still provide it
	case !r.warned && now.Sub(r.noPodRange) >= long:
		r.warned = true
		r.Log.Warn("no range of this node's pods is known: a new pod may be reached before its address is known; " +
			"give --pod-interface or --pod-cidr, or the node its spec.podCIDRs")
	}
}
