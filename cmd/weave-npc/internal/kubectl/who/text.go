package who

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/output"
	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/whocan"
)

// writeText writes each answer as a table: who, on which ports, by what.
func writeText(out io.Writer, answers []answer, all bool) error {
	for i, a := range answers {
		above := ""
		if i > 0 {
			above = "\n"
		}
		if _, err := fmt.Fprintln(out, above+a.title()); err != nil {
			return errors.Wrap(err, "writing")
		}
		if lines := a.lines(all); len(lines) > 0 {
			if err := output.IndentedTable(out, "  ", "WHO PORTS VERDICT BECAUSE", lines); err != nil {
				return err
			}
		}
		for _, line := range a.notes(all) {
			if _, err := fmt.Fprintln(out, line); err != nil {
				return errors.Wrap(err, "writing")
			}
		}
	}
	return nil
}

// title describes what the answer is about.
func (a *answer) title() string {
	who := a.name
	for i, e := range a.Ends {
		switch {
		case !e.Addr.IsValid() || e.Addr.String() == a.name:
		case i == 0:
			who += " (" + e.Addr.String()
		default:
			who += ", " + e.Addr.String()
		}
		if i == len(a.Ends)-1 && strings.Contains(who, "(") {
			who += ")"
		}
	}
	text := "what " + who + " reaches"
	if a.Direction == npc.Ingress {
		text = "who can reach " + who
	}
	if a.via != "" {
		text += ", by " + a.via
	}
	if n := len(a.alike); n > 0 {
		text += fmt.Sprintf(" (the same holds for %s)", some(a.alike))
	}
	return text + ":"
}

// lines returns a line for each neighbour and its ports that are reached, or may be; all others too if they are asked
// for.
func (a *answer) lines(all bool) (lines [][]string) {
	for i := range a.neighbours {
		n := &a.neighbours[i]
		name := who(n)
		for _, s := range n.Ports {
			if all || s.Reached() || s.Unknown() {
				lines = append(lines, []string{name, s.Ports.String(), s.Reach, s.By})
			}
		}
	}
	return lines
}

// who names a neighbour.
func who(n *whocan.Neighbour) string {
	switch {
	case n.Kind == whocan.KindNode && n.OwnNode:
		return "its own node " + some(n.Nodes) + ", and pods on the node's network"
	case n.Kind == whocan.KindNode && len(n.Nodes) == 1:
		return "node " + n.Nodes[0]
	case n.Kind == whocan.KindNode:
		return "nodes " + some(n.Nodes)
	case n.Kind == whocan.KindOutside && !strings.HasPrefix(n.Name, "any "):
		return "outside: " + some(spelling.Texts(n.Addresses))
	}
	return n.Name
}

// refused is how many are refused on all ports.
type refused struct {
	Pods    int  `json:"pods"`
	Nodes   int  `json:"nodes"`
	Outside bool `json:"outside"`
}

func (a *answer) refused() (r refused) {
	for i := range a.neighbours {
		n := &a.neighbours[i]
		if !isRefused(n) {
			continue
		}
		switch n.Kind {
		case whocan.KindPods:
			r.Pods += len(n.Pods)
		case whocan.KindNode:
			r.Nodes += len(n.Nodes)
		case whocan.KindOutside:
			r.Outside = true
		}
	}
	return r
}

// isRefused reports whether a neighbour is refused on all ports.
func isRefused(n *whocan.Neighbour) bool {
	return !slices.ContainsFunc(n.Ports, func(s whocan.Span) bool { return s.Reached() || s.Unknown() })
}

// notes returns the lines below the table.
func (a *answer) notes(all bool) (lines []string) {
	r := a.refused()
	var who []string
	if r.Pods > 0 {
		who = append(who, spelling.Count(r.Pods, "pod"))
	}
	if r.Nodes > 0 {
		who = append(who, spelling.Count(r.Nodes, "node"))
	}
	if r.Outside {
		who = append(who, "addresses outside")
	}
	if len(who) > 0 {
		line := "  refused on all ports: " + strings.Join(who, ", ")
		if len(a.Services) > 0 {
			line = "  refused: " + strings.Join(who, ", ")
		}
		if !all {
			line += "; --all lists them with the reasons"
		}
		lines = append(lines, line)
	}
	// Without an address of the node, it is not among the neighbours.
	known := slices.ContainsFunc(a.neighbours, func(n whocan.Neighbour) bool { return n.OwnNode })
	if !known && a.Direction == npc.Ingress && a.Ends[0].Pod != "" {
		lines = append(lines, "  its own node, with the pods on the node's network, always reaches it")
	}
	return lines
}

// writeJSON writes the answers as a list of objects. Without all, those who are refused are only counted.
func writeJSON(out io.Writer, answers []answer, all bool) error {
	type object struct {
		Asked     string        `json:"asked"`
		Direction npc.Direction `json:"direction"`
		Via       string        `json:"via,omitempty"`
		// Alike are other pods with the same answer.
		Alike      []string           `json:"alike,omitempty"`
		Neighbours []whocan.Neighbour `json:"neighbours"`
		Refused    refused            `json:"refused"`
	}
	list := make([]object, 0, len(answers))
	for _, a := range answers {
		o := object{a.name, a.Direction, a.via, a.alike, []whocan.Neighbour{}, a.refused()}
		for i := range a.neighbours {
			if all || !isRefused(&a.neighbours[i]) {
				o.Neighbours = append(o.Neighbours, a.neighbours[i])
			}
		}
		list = append(list, o)
	}
	return output.JSON(out, list)
}
