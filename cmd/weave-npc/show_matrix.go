package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/commandline"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/reach"
)

// matrixOptions are the values of the flags of show matrix.
type matrixOptions struct {
	cluster
	port                string
	addresses           []string
	namespace, from, to string // namespaces of either end, of sources, of destinations
	eachPod             bool
	output              commandline.Format
}

func showMatrixCommand() *cobra.Command {
	o := &matrixOptions{}
	cmd := &cobra.Command{
		Use:   "matrix --port tcp/80",
		Short: "Shows which pods reach which",
		Long: "Shows which pods reach which. Pods of a namespace with equal labels that no policy distinguishes are one row. As html it is one page\n" +
			"without external resources: who reaches whom in colours, filters, and the reason for a cell when it is clicked.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.stdin = cmd.InOrStdin()
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.port, "port", "", "tcp/80, udp/53, sctp/80 or icmp")
	f.StringSliceVar(&o.addresses, "address", nil, "additional addresses, such as one outside the cluster")
	f.BoolVar(&o.eachPod, "pods", false, "give each pod a row and a column of its own")
	f.StringVarP(&o.namespace, "namespace", "n", "", "namespace that the source or the destination is in (default: all)")
	f.StringVar(&o.from, "from-namespace", "", "namespace that the sources are in (default: all)")
	f.StringVar(&o.to, "to-namespace", "", "namespace that the destinations are in (default: all)")
	o.output.Register(f, "table, json or html", "table", "json", "html")
	o.registerAll(f)
	return cmd
}

// maxInPage is the maximum number of rows or columns in a page: browsers are slow with more.
const maxInPage = 300

// maxNamed is the maximum number of objects that a note names.
const maxNamed = 5

func (o *matrixOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	if err := o.output.Check(); err != nil {
		return err
	}
	if o.namespace != "" && (o.from != "" || o.to != "") {
		return errors.New("--namespace selects sources or destinations: give it, or --from-namespace and --to-namespace")
	}
	service, err := flow.ParseService(o.port)
	if err != nil {
		return errors.Wrap(err, "--port")
	}
	v, err := o.view(ctx, stderr)
	if err != nil {
		return err
	}
	for _, name := range []string{o.namespace, o.from, o.to} {
		if err := v.CheckNamespace(name); err != nil {
			return err
		}
	}
	matrix, err := reach.NewMatrix(v, reach.Options{Service: service, Addresses: o.addresses, From: o.from, To: o.to, Either: o.namespace,
		EachPod: o.eachPod})
	if err != nil {
		return err
	}
	if n := len(matrix.Omitted); n > 0 {
		_, _ = fmt.Fprintf(stderr, "weave-npc: left out, for their address is not their own: %v\n", strings.Join(matrix.Omitted[:min(n, maxNamed)], ","))
	}
	switch o.output.Name {
	case "json":
		return matrix.WriteJSON(stdout)
	case "html":
		if n := max(len(matrix.From), len(matrix.To)); n > maxInPage {
			return errors.Errorf("%d rows are too many for one page; choose namespaces with --from-namespace and --to-namespace", n)
		}
		return matrix.WritePage(stdout)
	}
	return matrix.WriteText(stdout)
}
