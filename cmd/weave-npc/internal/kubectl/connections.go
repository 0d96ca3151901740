package kubectl

import (
	"bufio"
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/input"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/output"
	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/diff"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// connectionsOptions are the values of the flags of show connections.
type connectionsOptions struct{ pairsOptions }

func showConnectionsCommand() *cobra.Command {
	o := &connectionsOptions{}
	cmd := &cobra.Command{
		Use:   "connections [--port tcp/80]",
		Short: "List the connections that are allowed: from which workloads and addresses to which, on which ports",
		Long: "List the connections that are allowed, between workloads, and with nodes and addresses outside, on which\n" +
			"ports, and the rule that allows one of them. Ends with the same connections are together. A pod's own node\n" +
			"always reaches it, and is not listed. Workloads that no policy isolates are named at the end.",
		Example: "  weave-npc show connections -f manifests\n" +
			"  weave-npc show connections -f manifests -o dot | dot -Tsvg > connections.svg",
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Stdin = cmd.InOrStdin()
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.port, "port", "", "only connections to this port: tcp/80, udp/53, sctp/80 or icmp (default: all)")
	o.ends.register(f)
	input.RegisterAllNamespaces(cmd)
	o.output.Register(f, "text, markdown, csv, dot or json", "text", "markdown", "csv", "dot", "json")
	o.RegisterAll(f)
	return cmd
}

func (o *connectionsOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	var port *flow.Service
	if o.port != "" {
		s, err := flow.ParseService(o.port)
		if err != nil {
			return errors.Wrap(err, "--port")
		}
		port = &s
	}
	read, err := o.Read(ctx, stderr)
	if err != nil {
		return err
	}
	input.NoteClusterPolicies(stderr, read)
	c := o.Cluster(read)
	if err := o.ends.in(c.View()); err != nil {
		return err
	}
	allowed := diff.Allowed(c, diff.Options{From: o.ends.from, To: o.ends.to, Either: o.ends.either})
	noteOmitted(stderr, allowed.Omitted)
	list := connections{Connections: []connection{}, Free: unisolated(c.View(), map[npc.Direction]string{
		npc.Ingress: cmp.Or(o.ends.to, o.ends.either), npc.Egress: cmp.Or(o.ends.from, o.ends.either)})}
	allowed.Opens.Each(func(g diff.Group) bool {
		if port == nil || g.Ports.Has(*port) {
			list.Connections = append(list.Connections, connection{g.From, g.To, g.Ports, g.Example, g.After})
		}
		return true
	})
	slices.SortStableFunc(list.Connections, func(a, b connection) int {
		return cmp.Or(strings.Compare(a.To.Text, b.To.Text), strings.Compare(a.From.Text, b.From.Text))
	})
	return list.write(stdout, o.output.Name)
}

// connections is the answer of show connections.
type connections struct {
	Connections []connection `json:"connections"`
	// Free are the workloads that no policy isolates, by direction.
	Free map[npc.Direction][]string `json:"not_isolated"`
}

// connection is what is allowed from each of some ends to each of others.
type connection struct {
	From    diff.Set     `json:"from"`
	To      diff.Set     `json:"to"`
	Ports   diff.Ports   `json:"ports"`
	Example diff.Example `json:"example"`
	// Because is what decides about the example.
	Because diff.Reason `json:"because"`
}

// because returns what allows the example, in words.
func (c *connection) because() string {
	return strings.ReplaceAll(c.Because.String(), ": allowed: ", ": ")
}

// unisolated returns the workloads with a pod that no policy isolates in a direction, of a namespace or of all.
func unisolated(v *cluster.View, in map[npc.Direction]string) map[npc.Direction][]string {
	out := map[npc.Direction][]string{}
	for _, d := range npc.Directions {
		found := map[string]struct{}{}
		for _, name := range v.PodNames(in[d]) {
			p := v.Pods[name]
			if _, isolated := v.Isolating(p, d); isolated || len(v.Choosing(p)) > 0 || p.HostNetwork {
				continue
			}
			if p.Workload != nil {
				name = npc.ObjectKey(p.Namespace, p.Workload.Name)
			}
			found[name] = struct{}{}
		}
		out[d] = slices.Sorted(maps.Keys(found))
	}
	return out
}

func (l *connections) write(out io.Writer, format string) error {
	b := bufio.NewWriter(out)
	switch format {
	case "json":
		return output.JSON(out, l)
	case "csv":
		l.writeCSV(b)
	case "dot":
		l.writeDot(b)
	case "markdown":
		l.writeMarkdown(b)
	default:
		l.writeText(b)
	}
	return errors.Wrap(b.Flush(), "writing")
}

func (l *connections) writeText(b *bufio.Writer) {
	for _, c := range l.Connections {
		_, _ = fmt.Fprintf(b, "%s -> %s: %s\n    %s\n", c.From.Text, c.To.Text, c.Ports, c.because())
	}
	for _, line := range l.notes() {
		_, _ = fmt.Fprintln(b, line)
	}
}

// notes returns what else a reader has to know.
func (l *connections) notes() (lines []string) {
	if len(l.Connections) == 0 {
		lines = append(lines, "no connection is allowed")
	}
	for _, d := range npc.Directions {
		if free := l.Free[d]; len(free) > 0 {
			lines = append(lines, fmt.Sprintf("no policy isolates for %s: %s", d, spelling.Some(free)))
		}
	}
	return lines
}

func (l *connections) writeMarkdown(b *bufio.Writer) {
	_, _ = b.WriteString("| from | to | ports | because |\n|---|---|---|---|\n")
	for _, c := range l.Connections {
		_, _ = fmt.Fprintf(b, "| %s | %s | %s | %s |\n", output.Code(c.From.Text), output.Code(c.To.Text),
			output.Code(c.Ports.String()), output.Code(c.because()))
	}
	for _, line := range l.notes() {
		_, _ = fmt.Fprintf(b, "\n%s\n", output.Escaped(line))
	}
}

func (l *connections) writeCSV(b *bufio.Writer) {
	w := csv.NewWriter(b)
	_ = w.Write([]string{"from", "to", "ports"}) // the error comes with Flush of b
	for _, c := range l.Connections {
		diff.Pairs(&c.From, &c.To, func(from, to string) { _ = w.Write([]string{from, to, c.Ports.String()}) })
	}
	w.Flush()
}

func (l *connections) writeDot(b *bufio.Writer) {
	_, _ = b.WriteString("digraph connections {\n\tnode [shape=box]\n")
	for _, c := range l.Connections {
		diff.Pairs(&c.From, &c.To, func(from, to string) {
			_, _ = fmt.Fprintf(b, "\t%s -> %s [label=%s]\n", quoted(from), quoted(to), quoted(c.Ports.String()))
		})
	}
	_, _ = b.WriteString("}\n")
}

// quoted returns a string of the language of Graphviz.
func quoted(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(spelling.Escape(text)) + `"`
}
