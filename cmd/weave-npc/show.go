package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/npc/explain"
)

// shown says what show is to show, and how.
type shown struct {
	cluster
	namespace, output string
}

func showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Shows what the policies come to: pods, policies, the matrix of who reaches whom, and the sets and rules of this node",
		Args:  knownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		worldCommand("pods", "Lists pods with what isolates them", func(s *shown, w *explain.World, out io.Writer) error {
			return s.pods(out, w.PodTable(s.namespace))
		}),
		worldCommand("policies", "Lists policies with the pods that they isolate and what they allow",
			func(s *shown, w *explain.World, out io.Writer) error {
				return s.policies(out, w.PolicyTable(s.namespace))
			}),
		matrixCommand(),
		kernelCommand("sets", "Lists the sets of this node's kernel with their members, and the policies that use them", showSets),
		kernelCommand("rules", "Lists the rules of this node's kernel with what they ask, and the policies that they come of", showRules))
	return cmd
}

// knownCommand refuses what is no subcommand, with the nearest one.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	names := func(yield func(string) bool) {
		for _, c := range cmd.Commands() {
			if !yield(c.Name()) {
				return
			}
		}
	}
	return errors.Errorf("unknown command %q for %q%s; see %s --help", args[0], cmd.CommandPath(), explain.DidYouMean(args[0], names), cmd.CommandPath())
}

// worldCommand shows something of a cluster's objects.
func worldCommand(name, short string, show func(*shown, *explain.World, io.Writer) error) *cobra.Command {
	s := &shown{}
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.checkOutput("table", "json"); err != nil {
				return err
			}
			return s.run(cmd.Context(), cmd.OutOrStdout(), show)
		},
	}
	s.registerAll(cmd, "table or json")
	return cmd
}

func (s *shown) registerAll(cmd *cobra.Command, formats string) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&s.namespace, "namespace", "n", "", "namespace that is shown (default: all)")
	f.StringVarP(&s.output, "output", "o", "table", formats)
	s.register(f)
}

func (s *shown) checkOutput(formats ...string) error {
	for _, f := range formats {
		if s.output == f {
			return nil
		}
	}
	return errors.Errorf("--output: %q is none of %s", s.output, strings.Join(formats, ", "))
}

func (s *shown) run(ctx context.Context, out io.Writer, show func(*shown, *explain.World, io.Writer) error) error {
	w, _, err := s.world(ctx)
	if err != nil {
		return err
	}
	if err := w.CheckNamespace(s.namespace); err != nil {
		return err
	}
	return show(s, w, out)
}

// table writes rows of cells below a head, aligned.
func table(out io.Writer, head string, rows [][]string) error {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.ReplaceAll(head, " ", "\t"))
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	if err := t.Flush(); err != nil {
		return errors.Wrap(err, "writing")
	}
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(out, strings.TrimRight(line, " \n")); err != nil {
			return errors.Wrap(err, "writing")
		}
	}
	return nil
}

// orDash is a cell's text, which is not empty.
func orDash(words []string) string {
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, ",")
}

func (s *shown) pods(out io.Writer, pods []explain.PodRow) error {
	if s.output == "json" {
		return writeJSON(out, pods)
	}
	var rows [][]string
	for _, p := range pods {
		rows = append(rows, []string{p.Pod, orDash(strings.Fields(p.Node)), orDash(addresses(p.Addresses)),
			orDash(p.Ingress), orDash(p.Egress), p.Note})
	}
	return table(out, "POD NODE ADDRESSES INGRESS-ISOLATED-BY EGRESS-ISOLATED-BY NOTE", rows)
}

func addresses(addrs []netip.Addr) (texts []string) {
	for _, a := range addrs {
		texts = append(texts, a.String())
	}
	return texts
}

func (s *shown) policies(out io.Writer, policies []explain.PolicyRow) error {
	if s.output == "json" {
		return writeJSON(out, policies)
	}
	var rows [][]string
	for _, p := range policies {
		types := make([]string, 0, len(p.Types))
		for _, t := range p.Types {
			types = append(types, string(t))
		}
		allows := p.Invalid
		if allows != "" {
			allows = "nothing: it is invalid: " + allows
		}
		first := []string{p.Policy, orDash(types), selects(p), allows}
		rules := ruleRows(p)
		if len(rules) > 0 {
			first[3], rules = rules[0], rules[1:]
		} else if allows == "" {
			first[3] = "nothing"
		}
		rows = append(rows, first)
		for _, r := range rules {
			rows = append(rows, []string{"", "", "", r})
		}
	}
	return table(out, "POLICY TYPES ISOLATES ALLOWS", rows)
}

// selects is whom a policy isolates, in words.
func selects(p explain.PolicyRow) string {
	text := "all pods"
	if p.Selects != "" {
		text = p.Selects
	}
	const most = 3
	names := p.Pods
	if len(names) > most {
		names = append(names[:most:most], fmt.Sprintf("%d more", len(p.Pods)-most))
	}
	if len(names) == 0 {
		return text + " (nobody)"
	}
	return text + " (" + strings.Join(names, ", ") + ")"
}

func ruleRows(p explain.PolicyRow) (texts []string) {
	for i, r := range p.Ingress {
		texts = append(texts, fmt.Sprintf("ingress %d: %s", i+1, r))
	}
	for i, r := range p.Egress {
		texts = append(texts, fmt.Sprintf("egress %d: %s", i+1, r))
	}
	return texts
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
