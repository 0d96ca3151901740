package output

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/analysis/kernelview"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

// hits finds the hits of rules. A nil one is for lists without hits.
type hits struct {
	all *flowlog.Hits
	// byContent finds those of rules by what they match and do, without their numbers. byPlace finds the last ones of
	// what had a number.
	byContent map[flowlog.Applied]ruleHits
	byPlace   map[flowlog.RuleRef]ruleHits
}

// ruleHits are the hits of a rule.
type ruleHits struct {
	Count uint64     `json:"count"`
	First *time.Time `json:"first,omitempty"`
	Last  *time.Time `json:"last,omitempty"`
}

func newHits(all *flowlog.Hits) *hits {
	if all == nil {
		return nil
	}
	h := &hits{all: all, byContent: map[flowlog.Applied]ruleHits{}, byPlace: map[flowlog.RuleRef]ruleHits{}}
	for _, r := range all.Rules { // the oldest first
		found := ruleHits{r.Count, &r.First, &r.Last}
		h.byPlace[r.RuleRef] = found
		r.Number = 0
		h.byContent[r.Applied] = found
	}
	return h
}

// place replaces what is known by numbers by what the rules of policies have that are there.
func (h *hits) place(policies []explain.PolicyRow) {
	clear(h.byPlace)
	for _, p := range policies {
		for _, d := range npc.Directions {
			for i, found := range h.ofPolicy(p, d) {
				if found != nil {
					at := flowlog.RuleRef{Tier: p.Tier, Policy: p.Policy, Direction: d.String(), Number: i + 1}
					h.byPlace[at] = *found
				}
			}
		}
	}
}

// ofPolicy returns the hits of the rules of a direction; nil for a rule that decides nothing.
func (h *hits) ofPolicy(p explain.PolicyRow, d npc.Direction) (out []*ruleHits) {
	for _, content := range p.Contents[d] {
		if content == "" {
			out = append(out, nil)
			continue
		}
		rule := flowlog.RuleRef{Tier: p.Tier, Policy: p.Policy, Direction: d.String()}
		found := h.byContent[flowlog.Applied{RuleRef: rule, Content: content}]
		out = append(out, &found)
	}
	return out
}

// head returns the heads of the columns of hits, and a space.
func (h *hits) head() string {
	if h == nil {
		return ""
	}
	return "HITS LAST-HIT "
}

// lines returns the last cells of a policy's rows: the texts of its rules, behind their hits.
func (h *hits) lines(p explain.PolicyRow, texts []string) (lines [][]string) {
	var found []*ruleHits
	if h != nil {
		found = append(h.ofPolicy(p, npc.Ingress), h.ofPolicy(p, npc.Egress)...)
	}
	for i, text := range texts {
		var cells []string
		switch {
		case h == nil:
		case i < len(found) && found[i] != nil:
			cells = found[i].cells("")
		default:
			cells = []string{"-", "-"}
		}
		lines = append(lines, append(cells, text))
	}
	return lines
}

// cells returns the texts of the count and of the time of the last hit.
func (r *ruleHits) cells(more string) []string {
	last := "never"
	if r.Last != nil {
		last = r.Last.Local().Format(time.DateTime)
	}
	return []string{strconv.FormatUint(r.Count, 10) + more, last}
}

// ofRule returns the cells of a rule in the kernel: the hits of the rules of policies that it enforces, with a + if it
// enforces others too.
func (h *hits) ofRule(r kernelview.RuleRow) []string {
	if h == nil {
		return nil
	}
	sum := h.sum(r)
	switch {
	case sum == nil:
		return []string{"-", "-"}
	case r.Unnamed:
		return sum.cells("+")
	}
	return sum.cells("")
}

// sum returns the hits of the rules of policies that a rule in the kernel enforces; nil if it enforces none.
func (h *hits) sum(r kernelview.RuleRow) *ruleHits {
	if len(r.PolicyRules) == 0 {
		return nil
	}
	sum := &ruleHits{}
	for _, p := range r.PolicyRules {
		found := h.byPlace[flowlog.RuleRef{Tier: p.Tier, Policy: p.Policy, Number: p.Number,
			Direction: p.Direction.String()}]
		if sum.Count += found.Count; found.Count == 0 {
			continue
		}
		if sum.First == nil || found.First.Before(*sum.First) {
			sum.First = found.First
		}
		if sum.Last == nil || found.Last.After(*sum.Last) {
			sum.Last = found.Last
		}
	}
	return sum
}

// writeSpan writes since when hits are counted.
func (h *hits) writeSpan(out io.Writer) error {
	if h == nil {
		return nil
	}
	_, err := fmt.Fprintf(out, "\nHits are counted %s.\n", h.all.Span())
	return errors.Wrap(err, "writing")
}

// policyHits are the hits of a policy's rules in JSON: null for a rule that decides nothing.
type policyHits struct {
	Since    time.Time   `json:"since"`
	Complete time.Time   `json:"complete_since"`
	Ingress  []*ruleHits `json:"ingress,omitempty"`
	Egress   []*ruleHits `json:"egress,omitempty"`
}

// ofPolicies returns what is written as JSON.
func (h *hits) ofPolicies(policies []explain.PolicyRow) []any {
	type row struct {
		explain.PolicyRow
		Hits policyHits `json:"hits"`
	}
	rows := make([]any, 0, len(policies))
	for _, p := range policies {
		if h == nil {
			rows = append(rows, &p)
			continue
		}
		hits := policyHits{h.all.Since, h.all.Complete, h.ofPolicy(p, npc.Ingress), h.ofPolicy(p, npc.Egress)}
		rows = append(rows, row{p, hits})
	}
	return rows
}

// ofRules returns what is written as JSON.
func (h *hits) ofRules(rules []kernelview.RuleRow) any {
	if h == nil {
		return rules
	}
	type row struct {
		kernelview.RuleRow
		Hits *ruleHits `json:"hits,omitempty"`
	}
	rows := []row{}
	for _, r := range rules {
		rows = append(rows, row{r, h.sum(r)})
	}
	return rows
}
