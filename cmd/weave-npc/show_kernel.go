package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc/controller"
	"github.com/weave-npc/weave-npc/npc/naming"
)

// kernelCommand shows something of what this node's kernel holds.
func kernelCommand(name, short string, show func(io.Writer, string, *holdings) error) *cobra.Command {
	s, n := &shown{}, &node{}
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Long:  short + ".\nWhat they are for is known if the objects can be read, from an API server or from manifests.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.checkOutput("table", "json"); err != nil {
				return err
			}
			h, err := n.read(cmd.Context(), &s.cluster)
			if err != nil {
				return err
			}
			if h.unknown != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "weave-npc: the selectors of sets and chains are not known:", h.unknown)
			}
			return show(cmd.OutOrStdout(), s.output, h)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	n.register(f)
	f.StringVarP(&s.output, "output", "o", "table", "table or json")
	s.register(f)
	return cmd
}

// setRow is a set that the kernel holds.
type setRow struct {
	Set  string `json:"set"`
	Type string `json:"type"`
	// About says what the set is for; empty if that is not known.
	About string `json:"about,omitempty"`
	// Policies are those that use it.
	Policies []string `json:"policies"`
	// Members are its entries with what they are: a pod, a part of a block, another set.
	Members []memberRow `json:"members"`
}

type memberRow struct {
	Entry string `json:"entry"`
	Is    string `json:"is,omitempty"`
	// NoMatch says that the entry is excepted.
	NoMatch bool `json:"nomatch,omitempty"`
}

// String is the member as the table has it.
func (m memberRow) String() string {
	text := m.Entry
	if m.NoMatch {
		text = "not " + text
	}
	if m.Is != "" {
		text += " " + m.Is
	}
	return text
}

// setRows are the sets in the order of their names.
func (h *holdings) setRows() []setRow {
	var uses map[string]controller.SetUse
	if h.model != nil {
		uses = h.model.Uses()
	}
	ruled := h.policiesBySet()
	rows := []setRow{}
	for _, l := range h.sets {
		use, known := uses[l.Name]
		row := setRow{Set: l.Name, Type: string(l.Type), About: use.About, Policies: use.Policies, Members: []memberRow{}}
		if !known {
			row.Policies = ruled[l.Name]
		}
		for _, m := range l.Members {
			row.Members = append(row.Members, member(l, m, uses))
		}
		slices.SortFunc(row.Members, func(a, b memberRow) int { return strings.Compare(a.Entry, b.Entry) })
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b setRow) int { return strings.Compare(a.Set, b.Set) })
	return rows
}

// member is an entry, and what it is by its comment, or by what is known of the set that it is.
func member(l ipset.Listing, m ipset.Element, uses map[string]controller.SetUse) memberRow {
	row := memberRow{Entry: m.Entry.String(), Is: m.Comment, NoMatch: m.NoMatch}
	if l.Type == ipset.ListSet && uses[m.Set].About != "" {
		row.Is = uses[m.Set].About
	}
	if strings.HasPrefix(l.Name, naming.SetPrefix+"local-pods") {
		_, row.Is, _ = strings.Cut(m.Comment, " ") // after the pod's id
	}
	return row
}

var (
	setMatch    = regexp.MustCompile(`-m set --match-set (\S+) (\S+)`)
	ruleComment = regexp.MustCompile(`-m comment --comment ("(?:[^"\\]|\\.)*"|\S+) ?`)
	ruleOwner   = regexp.MustCompile(`(\S+/\S+) rule \d+`)
	bytecode    = regexp.MustCompile(`--bytecode "[^"]*"`)
	ruleTarget  = regexp.MustCompile(` ?-([jg]) (\S+)(.*)$`)
)

// policiesBySet are the policies that the comments of rules name which ask a set, or a list that it is in.
func (h *holdings) policiesBySet() map[string][]string {
	found := map[string][]string{}
	add := func(set string, policies []string) {
		for _, p := range policies {
			if !slices.Contains(found[set], p) {
				found[set] = append(found[set], p)
			}
		}
		slices.Sort(found[set])
	}
	for _, r := range h.ruleRows() {
		var policies []string
		for _, m := range ruleOwner.FindAllStringSubmatch(r.For, -1) {
			policies = append(policies, m[1])
		}
		for _, set := range r.Sets {
			add(set, policies)
		}
	}
	for _, l := range h.sets {
		for _, m := range l.Members {
			if l.Type == ipset.ListSet {
				add(m.Set, found[l.Name])
			}
		}
	}
	return found
}

func showSets(out io.Writer, format string, h *holdings) error {
	sets := h.setRows()
	if format == "json" {
		return writeJSON(out, sets)
	}
	var rows [][]string
	for _, s := range sets {
		about := s.About
		if about == "" {
			about = "?"
		}
		row := []string{s.Set, s.Type, about, orDash(s.Policies), "-"}
		for i, m := range s.Members {
			if i == 0 {
				row[4] = m.String()
				continue
			}
			rows, row = append(rows, row), []string{"", "", "", "", m.String()}
		}
		rows = append(rows, row)
	}
	return table(out, "SET TYPE HOLDS USED-BY MEMBERS", rows)
}

// ruleRow is a rule that the kernel holds.
type ruleRow struct {
	Family string `json:"family"`
	Chain  string `json:"chain"`
	// Number counts the chain's rules from 1.
	Number int `json:"number"`
	// About says what the chain is for; empty if that is not known.
	About string `json:"about,omitempty"`
	// Rule is the rule as iptables prints it, Sets are those that it asks, Target where it leads to.
	Rule   string   `json:"rule"`
	Sets   []string `json:"sets,omitempty"`
	Target string   `json:"target"`
	// For is the rule's comment without its id: the rules of policies that it comes of, or its purpose.
	For string `json:"for,omitempty"`
	// match is the rule in words.
	match string
}

// ruleRows are the rules of our chains, in the order of the chains' names.
func (h *holdings) ruleRows() []ruleRow {
	rows := []ruleRow{}
	uses, about := map[string]controller.SetUse{}, func(string) string { return "" }
	if h.model != nil {
		uses, about = h.model.Uses(), h.model.ChainUse
	}
	for _, f := range familiesOfNode() {
		seen := h.tables[f]
		for _, name := range sortedKeys(seen.Chains) {
			for i, text := range seen.Chains[name].Text {
				r := readRule(strings.TrimPrefix(text, "-A "+name+" "), uses)
				r.Family, r.Chain, r.Number, r.About = f.String(), name, i+1, about(name)
				rows = append(rows, r)
			}
		}
	}
	return rows
}

// readRule takes a printed rule apart.
func readRule(text string, uses map[string]controller.SetUse) ruleRow {
	r := ruleRow{Rule: text}
	if m := ruleComment.FindStringSubmatch(text); m != nil {
		_, r.For, _ = strings.Cut(strings.Trim(m[1], `"`), " ")
		text = strings.Replace(text, m[0], "", 1)
	}
	if m := ruleTarget.FindStringSubmatch(text); m != nil {
		r.Target = m[2]
		text = strings.TrimSuffix(text, m[0])
	}
	text = bytecode.ReplaceAllString(text, "--bytecode ..")
	r.match = setMatch.ReplaceAllStringFunc(text, func(match string) string {
		m := setMatch.FindStringSubmatch(match)
		r.Sets = append(r.Sets, m[1])
		if use := uses[m[1]]; use.About != "" {
			return m[2] + " in {" + use.About + "}"
		}
		return m[2] + " in " + m[1]
	})
	return r
}

func showRules(out io.Writer, format string, h *holdings) error {
	rules := h.ruleRows()
	if format == "json" {
		return writeJSON(out, rules)
	}
	var rows [][]string
	for i, r := range rules {
		if i == 0 || rules[i-1].Chain != r.Chain || rules[i-1].Family != r.Family {
			head := r.Family + " " + r.Chain
			if r.About != "" {
				head += ": " + r.About
			}
			rows = append(rows, []string{head})
		}
		match := r.match
		if match == "" {
			match = "everything"
		}
		rows = append(rows, []string{fmt.Sprintf("  %d", r.Number), r.Target, r.For, match})
	}
	return table(out, "RULE TARGET FOR MATCHES", rows)
}
