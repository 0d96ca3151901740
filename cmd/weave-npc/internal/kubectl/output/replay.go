package output

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc/analysis/replay"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

// Changes writes the records whose verdict changes, of a number of records, as text or as JSON.
func Changes(out io.Writer, format string, changes []replay.ChangedRecord, of int) error {
	if format == "json" {
		if changes == nil {
			changes = []replay.ChangedRecord{}
		}
		return JSON(out, changes)
	}
	var b strings.Builder
	denied := 0
	for _, c := range changes {
		if c.After.Verdict == flowlog.Denied {
			denied++
		}
		fmt.Fprintf(&b, "%s -> %s, %s: %s, would be %s (%s, last %s)\n", c.Record.From, c.Record.To, c.Record.Port,
			c.Before.Verdict, c.After.Verdict, spelling.Count(c.Record.Count, "connection"),
			c.Record.Last.Format(time.RFC3339))
		fmt.Fprintf(&b, "  before: %s\n  after:  %s\n", decided(c.Before), decided(c.After))
	}
	fmt.Fprintf(&b, "%s of %s: %d would be denied, %d would be allowed\n",
		spelling.Count(len(changes), "change"), spelling.Count(of, "record"), denied, len(changes)-denied)
	_, err := io.WriteString(out, b.String())
	return errors.Wrap(err, "writing")
}

// decided returns what decides.
func decided(o replay.Outcome) string {
	switch {
	case len(o.By) > 0:
		return strings.Join(spelling.Texts(o.By), ", ")
	case o.Verdict == flowlog.Allowed:
		return "no policy is for the pods"
	}
	return "no rule allows it"
}
