package output

import (
	"fmt"
	"io"
	"strings"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/input"
)

// stagedPolicies writes a table of the staged policies of each group.
func stagedPolicies(out io.Writer, rows []input.Row, most int) error {
	for len(rows) > 0 {
		group, n := rows[0].Staged.Group, 0
		var cells [][]string
		for ; n < len(rows) && rows[n].Staged.Group == group; n++ {
			cells = append(cells, stagedCells(&rows[n], most)...)
		}
		if _, err := fmt.Fprintf(out, "\nStaged in group %s, not enforced:\n", group); err != nil {
			return errors.Wrap(err, "writing")
		}
		if err := Table(out, "POLICY CHANGE TYPES-OR-TIER SELECTS DECIDES", cells); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// stagedCells returns the lines of a staged policy in a table.
func stagedCells(r *input.Row, most int) [][]string {
	row, lines := []string{r.Policy, changed(r.Staged), "-", "-"}, [][]string{}
	if p := r.PolicyRow; p != nil {
		var none *hits
		row[2], row[3], lines = types(*p), selects(*p, most), none.lines(*p, allows(*p))
		if p.Priority != nil {
			row[2], row[3] = fmt.Sprintf("%s %d", p.Tier, *p.Priority), subject(*p, most)
		}
	}
	if r.Staged.Problem != "" {
		lines = append(lines, []string{"problem: " + r.Staged.Problem})
	}
	if len(lines) == 0 {
		lines = [][]string{{"-"}}
	}
	return withLines(row, lines)
}

// changed returns what a staged policy does, in words.
func changed(c input.StagedRow) string {
	name := func(policy string) string { return policy[strings.Index(policy, "/")+1:] }
	switch {
	case c.Replaces != "":
		return "replaces " + name(c.Replaces)
	case c.Adds:
		return "adds"
	case c.Removes != "":
		return "removes " + name(c.Removes)
	}
	return "nothing"
}
