package flows

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

// The values of --output.
const (
	outputText = "text"
	outputJSON = "json"
)

// options are the values of the flags.
type options struct {
	query  query
	follow bool
	// hits asks for rules instead of connections.
	hits bool
	// endWithInput ends follow when standard input ends. Without it, the command would continue to run in a
	// container after the kubectl that called it has ended.
	endWithInput bool
	output       cli.Format
}

func (o *options) register(f *pflag.FlagSet) {
	f.SortFlags = false
	f.BoolVarP(&o.follow, "follow", "f", false, "go on with records as connections are added to them")
	f.StringVar(&o.query.from, "from", "",
		"end that opens the connections: NAMESPACE, NAMESPACE/WORKLOAD, NAMESPACE/POD, an address or a CIDR")
	f.StringVar(&o.query.to, "to", "", "destination, in the same way, or a domain name")
	f.StringVar(&o.query.port, "port", "",
		"tcp/80, udp/53, sctp/80, icmp, or the name of a port of the destination, such as tcp/http")
	f.StringVar(&o.query.verdict, "verdict", "", "allowed or denied")
	f.DurationVar(&o.query.since, "since", 0, "only records with a connection in the last time, such as 10m")
	f.StringVar(&o.query.group, "staged-group", "",
		"only connections that staged policies would decide otherwise: "+
			"those of the group of this name, or of any without a value")
	f.Lookup("staged-group").NoOptDefVal = anyGroup
	f.BoolVar(&o.hits, "hits", false,
		"list how often each rule decided about a recorded connection, instead of connections")
	o.output.Register(f, "text, or json: a record a line, or all hits, as other commands read them",
		outputText, outputJSON)
	cli.Values(f, "verdict", string(flowlog.Allowed), string(flowlog.Denied))
}

// prepare returns the filter that the flags ask for.
func (o *options) prepare() (*filter, error) {
	if err := o.output.Check(); err != nil {
		return nil, err
	}
	if o.hits && (o.follow || o.query != query{}) {
		return nil, errors.New("--hits lists rules, whatever their connections are: " +
			"leave out --follow, --from, --to, --port, --verdict and --since")
	}
	return o.query.parse(time.Now())
}

// Node is the weave-npc of this node.
type Node interface {
	// Read passes on all records, and with goOn those that are added to, until the context ends.
	Read(ctx context.Context, goOn bool, each func(flowlog.Record) error) (flowlog.Skipped, error)
	// ReadHits returns the hits of rules.
	ReadHits(ctx context.Context) (flowlog.Hits, error)
}

// OfNode returns the command that lists the connections of this node.
func OfNode(node Node) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "flows",
		Short: "List the connections that weave-npc --record-flows has recorded on this node",
		Long: "List the connections that weave-npc --record-flows has recorded on this node, one line for all\n" +
			"connections from a workload to another one and one port, with the verdict of this node.",
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.runNode(cmd, node)
		},
	}
	o.register(cmd.Flags())
	cmd.Flags().BoolVar(&o.endWithInput, "end-with-input", false,
		"end --follow when standard input ends, which it does if a remote caller has gone")
	return cmd
}

func (o *options) runNode(cmd *cobra.Command, node Node) error {
	f, err := o.prepare()
	if err != nil {
		return err
	}
	ctx, in, p := cmd.Context(), cmd.InOrStdin(), newPrinter(cmd.OutOrStdout(), o.output.Name)
	if o.hits {
		h, err := node.ReadHits(ctx)
		if err != nil {
			return err
		}
		return p.printHits(&h)
	}
	if o.follow {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if o.endWithInput {
			go func() {
				_, _ = io.Copy(io.Discard, in)
				cancel()
			}()
		}
		skipped, err := node.Read(ctx, true, func(r flowlog.Record) error {
			if !f.matches(&r) {
				return nil
			}
			return p.follow(r)
		})
		noteSkipped(cmd.ErrOrStderr(), skipped)
		return err
	}
	var found []flowlog.Record
	skipped, err := node.Read(ctx, false, func(r flowlog.Record) error {
		if f.matches(&r) {
			found = append(found, r)
		}
		return nil
	})
	if err != nil {
		return err
	}
	noteSkipped(cmd.ErrOrStderr(), skipped)
	return p.print(found)
}

// noteSkipped notes that lines of a recording were skipped, if any were.
func noteSkipped(stderr io.Writer, s flowlog.Skipped) {
	if s.Lines > 0 {
		fmt.Fprintln(stderr, "weave-npc:", s)
	}
}

// printer prints records.
type printer struct {
	out    io.Writer
	output string
}

func newPrinter(out io.Writer, output string) *printer {
	return &printer{spelling.NewWriter(out), output}
}

// print prints records, those whose last connection is the oldest first.
func (p *printer) print(records []flowlog.Record) error {
	slices.SortStableFunc(records, func(a, b flowlog.Record) int { return a.Last.Compare(b.Last) })
	if p.output == outputText {
		return table(p.out, records)
	}
	for _, r := range records {
		if err := flowlog.Write(p.out, r); err != nil {
			return err
		}
	}
	return nil
}

// follow prints a record that comes alone.
func (p *printer) follow(r flowlog.Record) error {
	if p.output == outputJSON {
		return flowlog.Write(p.out, r)
	}
	_, err := io.WriteString(p.out, strings.Join(cells(&r), "  ")+"\n")
	return errors.Wrap(err, "writing")
}
