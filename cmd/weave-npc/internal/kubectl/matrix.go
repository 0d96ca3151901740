package kubectl

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/input"
	"github.com/weave-npc/weave-npc/npc/analysis/matrix"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// matrixOptions are the values of the flags of show matrix.
type matrixOptions struct {
	pairsOptions
	addresses []string
	eachPod   bool
}

// pairsOptions are the values of the flags of commands about pairs of pods.
type pairsOptions struct {
	input.ObjectFlags
	ends   ends
	port   string
	output cli.Format
}

// check returns an error if values are wrong by themselves.
func (o *pairsOptions) check() error {
	if err := o.output.Check(); err != nil {
		return err
	}
	return o.ends.check()
}

func showMatrixCommand() *cobra.Command {
	o := &matrixOptions{}
	cmd := &cobra.Command{
		Use:   "matrix [--port tcp/80]",
		Short: "Show which pods reach which",
		Long: "Show which pods reach which. Pods of a namespace with equal labels that no policy distinguishes are\n" +
			"one row; domain names of policies are columns. As html it is one page without external\n" +
			"resources: every port, filters, and the reason for a cell when it is selected.",
		Example: "  weave-npc show matrix -f manifests --port tcp/80\n" +
			"  weave-npc show matrix -f manifests -o html > matrix.html",
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Stdin = cmd.InOrStdin()
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.port, "port", "", "tcp/80, udp/53, sctp/80 or icmp; as html every port without it")
	f.StringSliceVar(&o.addresses, "address", nil, "additional addresses, such as one outside the cluster")
	f.BoolVar(&o.eachPod, "pods", false, "give each pod a row and a column of its own")
	o.ends.register(f)
	input.RegisterAllNamespaces(cmd)
	o.output.Register(f, "table, json or html", "table", "json", "html")
	o.RegisterAll(f)
	return cmd
}

// ends are the namespaces of the sources and of the destinations, and that of at least one of both; empty for all.
type ends struct{ from, to, either string }

func (e *ends) register(f *pflag.FlagSet) {
	f.StringVarP(&e.either, "namespace", "n", "", "namespace that the source or the destination is in (default: all)")
	f.StringVar(&e.from, "from-namespace", "", "namespace that the sources are in (default: all)")
	f.StringVar(&e.to, "to-namespace", "", "namespace that the destinations are in (default: all)")
}

// check returns an error if the flags contradict each other.
func (e *ends) check() error {
	if e.either != "" && (e.from != "" || e.to != "") {
		return errors.New("--namespace selects sources or destinations: " +
			"give it, or --from-namespace and --to-namespace")
	}
	return nil
}

// in returns an error if a namespace is unknown.
func (e *ends) in(v *cluster.View) error {
	for _, name := range []string{e.either, e.from, e.to} {
		if err := v.CheckNamespace(name); err != nil {
			return err
		}
	}
	return nil
}

// maxNamed is the maximum number of objects that a note names.
const maxNamed = 5

func (o *matrixOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	page := o.output.Name == "html"
	asks := matrix.Options{Addresses: o.addresses, From: o.ends.from, To: o.ends.to, Either: o.ends.either, EachPod: o.eachPod}
	if o.port != "" || !page {
		service, err := flow.ParseService(o.port)
		if err != nil {
			return errors.Wrap(err, "--port")
		}
		asks.Service = service
	}
	if !page { // it does not know what is unknown
		o.ReadPartly(o.ends.either, o.ends.from, o.ends.to)
	}
	v, err := o.View(ctx, stderr)
	if err != nil {
		return err
	}
	if err := o.ends.in(v); err != nil {
		return err
	}
	if page {
		origin := fmt.Sprintf("Of %s, read by weave-npc %s on %s.", o.Origin(), cli.Version(),
			time.Now().UTC().Format("2006-01-02 15:04 MST"))
		omitted, err := matrix.WritePage(cli.Raw(stdout), v,
			matrix.PageOptions{Options: asks, AllPorts: o.port == "", Origin: origin})
		noteOmitted(stderr, omitted)
		return err
	}
	matrix, err := matrix.New(v, asks)
	if err != nil {
		return err
	}
	noteOmitted(stderr, matrix.Omitted)
	if o.output.Name == "json" {
		return matrix.WriteJSON(stdout)
	}
	return matrix.WriteText(stdout)
}

// noteOmitted lists the pods that are in no row.
func noteOmitted(stderr io.Writer, pods []string) {
	if len(pods) > 0 {
		_, _ = fmt.Fprintf(stderr, "weave-npc: left out, for their address is not their own: %v\n",
			strings.Join(pods[:min(len(pods), maxNamed)], ","))
	}
}
