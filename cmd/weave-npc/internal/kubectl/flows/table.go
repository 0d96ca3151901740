package flows

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

const (
	head = "LAST\tVERDICT\tFROM\tTO\tPORT\tCOUNT\tREPLIED\tBY"
	// stagedHead is one more column if there are staged policies that would decide otherwise.
	stagedHead = "\tSTAGED"
)

// table prints records below a head, aligned.
func table(out io.Writer, records []flowlog.Record) error {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if slices.ContainsFunc(records, func(r flowlog.Record) bool { return len(r.Staged) > 0 }) {
		fmt.Fprintln(t, head+stagedHead)
	} else {
		fmt.Fprintln(t, head)
	}
	for i := range records {
		fmt.Fprintln(t, strings.Join(cells(&records[i]), "\t"))
	}
	if err := t.Flush(); err != nil {
		return errors.Wrap(err, "writing")
	}
	_, err := io.WriteString(out, b.String())
	return errors.Wrap(err, "writing")
}

// cells returns the texts of a line.
func cells(r *flowlog.Record) []string {
	port := r.Port.String()
	if len(r.PortNames) > 0 {
		port += " (" + strings.Join(r.PortNames, ",") + ")"
	}
	replied := "no"
	switch {
	case r.Verdict == flowlog.Denied:
		replied = "-"
	case r.Replied > 0:
		replied = "yes"
	}
	by := "-"
	if r.By != nil {
		by = r.By.String()
	}
	to := r.To.String()
	if len(r.To.DomainNames) > 0 {
		to += " (" + strings.Join(r.To.DomainNames, ",") + ")"
	}
	out := []string{r.Last.Local().Format(time.DateTime), string(r.Verdict), r.From.String(), to, port,
		strconv.FormatUint(r.Count, 10), replied, by}
	var staged []string
	for _, s := range r.Staged {
		staged = append(staged, fmt.Sprintf("%s: %d %s by %s", s.Group, s.Count, s.Verdict, s.Policy))
	}
	if len(staged) > 0 {
		out = append(out, strings.Join(staged, "; "))
	}
	return out
}
