package diff

import (
	"fmt"
	"io"
	"strings"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc/analysis/diff"
)

// The values of --fail-on.
const (
	onOpens  = "opens"
	onCloses = "closes"
	onAny    = "any"
)

// report is a result that is to be written.
type report struct {
	*diff.Result
	before, after string
	limit         int
	failOn        string
}

// part is what opens, or what closes.
type part struct {
	*diff.Side
	name string // opens or closes
	sign string
}

// parts returns both sides, what opens first.
func (r *report) parts() []part {
	return []part{{r.Opens, onOpens, "+"}, {r.Closes, onCloses, "-"}}
}

func writeAll(out io.Writer, text string) error {
	_, err := io.WriteString(out, text)
	return errors.Wrap(err, "writing")
}

// pairs returns how many pairs there are in words.
func pairs(pods, outside int) string {
	text := spelling.Count(pods, "pair") + " of pods"
	switch {
	case outside == 0:
		return text
	case pods == 0:
		return spelling.Count(outside, "pair") + " of a pod and addresses"
	}
	return fmt.Sprintf("%s, %d of a pod and addresses", text, outside)
}

// summary returns what differs in a line.
func (r *report) summary() string {
	if r.Same() {
		return fmt.Sprintf("no difference between %s (%s, %s)",
			spelling.Count(r.Pods, "pod"), spelling.Count(r.Workloads, "workload"), spelling.Count(r.Ranges, "range")+" of other addresses")
	}
	var texts []string
	for _, p := range r.parts() {
		if p.Len() == 0 {
			texts = append(texts, p.name+" nothing")
			continue
		}
		texts = append(texts, fmt.Sprintf("%s %s in %s", p.name, pairs(p.Pods, p.Outside), spelling.Count(p.Len(), "group")))
	}
	return fmt.Sprintf("%s; of %s, %s", strings.Join(texts, ", "),
		spelling.Count(r.Workloads, "workload"), spelling.Count(r.Pods, "pod"))
}

// reasons returns what decides about an example, in lines.
func reasons(g *diff.Group) (lines []string) {
	if !g.Example.Only {
		family := ""
		if g.Example.Family == "IPv6" {
			family = " in IPv6"
		}
		lines = append(lines, fmt.Sprintf("for instance %s%s:", g.Example, family))
	}
	return append(lines, "before: "+g.Before.String(), "after:  "+g.After.String())
}
