package main

import (
	"context"
	"fmt"
	"io"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/npc/explain"
	"github.com/weave-npc/weave-npc/npc/reach"
)

// matrixAsked is what show matrix is asked.
type matrixAsked struct {
	shown
	port           string
	addresses      []string
	from, to       string // namespaces
	eachPod        bool
	stdout, stderr io.Writer
}

func matrixCommand() *cobra.Command {
	m := &matrixAsked{}
	cmd := &cobra.Command{
		Use:   "matrix --port tcp/80",
		Short: "Shows which pods reach which",
		Long: "Shows which pods reach which. Pods of a namespace with equal labels that no policy tells apart are one row. As html it is one page\n" +
			"that needs nothing else: who reaches whom in colours, filters, and the reason of a cell when it is clicked.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := m.checkOutput("table", "json", "html"); err != nil {
				return err
			}
			m.stdout, m.stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return m.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&m.port, "port", "", "tcp/80, udp/53, sctp/80 or icmp")
	f.StringSliceVar(&m.addresses, "address", nil, "addresses besides the pods, such as one outside the cluster")
	f.BoolVar(&m.eachPod, "pods", false, "give each pod a row and a column of its own")
	f.StringVarP(&m.namespace, "namespace", "n", "", "namespace that the source or the destination is in (default: all)")
	f.StringVar(&m.from, "from-namespace", "", "namespace that the sources are in (default: all)")
	f.StringVar(&m.to, "to-namespace", "", "namespace that the destinations are in (default: all)")
	f.StringVarP(&m.output, "output", "o", "table", "table, json or html")
	m.register(f)
	return cmd
}

// mostInPage is how many rows or columns a page's matrix has at most: more make a page that no browser likes.
const mostInPage = 300

// mostNamed is how many pods are named that were left out.
const mostNamed = 5

func (m *matrixAsked) run(ctx context.Context) error {
	if m.namespace != "" && (m.from != "" || m.to != "") {
		return errors.New("--namespace selects sources or destinations: give it, or --from-namespace and --to-namespace")
	}
	service, err := explain.ParseService(m.port)
	if err != nil {
		return errors.Wrap(err, "--port")
	}
	w, _, err := m.world(ctx)
	if err != nil {
		return err
	}
	for _, name := range []string{m.namespace, m.from, m.to} {
		if err := w.CheckNamespace(name); err != nil {
			return err
		}
	}
	matrix, err := reach.NewMatrix(w, reach.Options{Service: service, Addresses: m.addresses, From: m.from, To: m.to, Either: m.namespace,
		EachPod: m.eachPod})
	if err != nil {
		return err
	}
	if n := len(matrix.Left); n > 0 {
		_, _ = fmt.Fprintf(m.stderr, "weave-npc: left out, for their address is not their own: %v\n", orDash(matrix.Left[:min(n, mostNamed)]))
	}
	switch m.output {
	case "json":
		return matrix.WriteJSON(m.stdout)
	case "html":
		if n := max(len(matrix.From), len(matrix.To)); n > mostInPage {
			return errors.Errorf("%d rows are too many for one page; choose namespaces with --from-namespace and --to-namespace", n)
		}
		return matrix.WritePage(m.stdout)
	}
	return matrix.WriteText(m.stdout)
}
