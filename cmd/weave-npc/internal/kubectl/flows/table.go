package flows

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/output"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

const (
	head = "LAST VERDICT FROM TO PORT COUNT REPLIED BY"
	// stagedHead is one more column if there are staged policies that would decide otherwise.
	stagedHead = " STAGED"
)

// table prints records below a head, aligned.
func table(out io.Writer, records []flowlog.Record) error {
	columns, rows := head, make([][]string, 0, len(records))
	for i := range records {
		rows = append(rows, cells(&records[i]))
		if len(records[i].Staged) > 0 {
			columns = head + stagedHead
		}
	}
	return output.Table(out, columns, rows)
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
