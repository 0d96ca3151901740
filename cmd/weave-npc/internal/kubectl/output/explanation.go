package output

import (
	"fmt"
	"io"
	"strings"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/npc/analysis/advice"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/analysis/kernelview"
	"github.com/weave-npc/weave-npc/npc/analysis/query"
)

// Explanation writes an explanation as text, as JSON, or as YAML: only the policies that would allow what is denied,
// for kubectl apply.
func Explanation(out io.Writer, format string, x *query.Explanation) error {
	text := ""
	switch format {
	case "json":
		return JSON(out, x)
	case "yaml":
		var policies []string
		for _, c := range x.Nearest {
			if c.Apply != "" {
				policies = append(policies, c.Apply)
			}
		}
		text = strings.Join(policies, "---\n")
	default:
		if x.Service != nil {
			text = x.Service.String()
		}
		for _, verdicts := range x.Groups {
			text += explain.Text(verdicts)
		}
		for _, k := range x.Kernel {
			text += kernelText(k)
		}
		text += changesText(x.Nearest)
	}
	_, err := io.WriteString(out, text)
	return errors.Wrap(err, "writing")
}

// changesText returns the lines about changes, with the YAML of policies indented below them.
func changesText(changes []advice.Suggestion) (text string) {
	for i, c := range changes {
		switch {
		case c.For != "" && (i == 0 || changes[i-1].For != c.For):
			text += "nearest change for " + c.For + ": "
		case i == 0:
			text += "nearest change: "
		default:
			text += "            or: "
		}
		text += fmt.Sprintf("%s (%s)\n", c.Text, c.Effect)
		for _, n := range c.Notes {
			text += "  " + n + "\n"
		}
		for line := range strings.Lines(c.Apply) {
			text += "    " + line
		}
	}
	return text
}

// kernelText returns the lines about a verdict of the kernel.
func kernelText(v kernelview.FlowTrace) string {
	about := ""
	if from, to := v.Flow.From.Addr, v.Flow.To.Addr; from.Is4() || to.Is4() {
		about = ", IPv4"
	} else if from.Is6() || to.Is6() {
		about = ", IPv6"
	}
	if v.ToNode {
		about += ", to the node itself"
	}
	head := "kernel of " + v.Node + about + ": "
	if !v.Asked {
		return head + "has no part in it: it forwards nothing of this from or to a pod of its own\n"
	}
	does := map[bool]string{true: "lets it through", false: "drops it"}
	prescribed := map[bool]string{true: "allowed", false: "denied"}
	lines := []string{head + does[v.Accepted]}
	if v.At != "" {
		lines = append(lines, "  at "+v.At)
	}
	lines = append(lines, "  way: "+strings.Join(v.Trace, ", "))
	if v.ByOthers {
		lines = append(lines, "  a rule that is not weave-npc's decides")
	}
	for _, r := range v.PassedOver {
		lines = append(lines, "  not evaluated: "+r)
	}
	if v.Unbound != "" {
		lines = append(lines, "  others can send with the address "+v.Flow.From.Addr.String()+": "+v.Unbound)
	}
	if v.Accepted == v.Policies {
		lines = append(lines, "  as the policies say of this node's part")
	} else {
		lines = append(lines, "  DIFFERS from the policies, which say of this node's part: "+prescribed[v.Policies])
	}
	return strings.Join(lines, "\n") + "\n"
}
