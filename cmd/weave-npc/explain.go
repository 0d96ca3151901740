package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/commandline"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/explanation"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/render"
	"github.com/weave-npc/weave-npc/npc/services"
)

// errDenied is returned for a connection that is denied, after the explanation is printed.
var errDenied = errors.New("denied")

// explainOptions are the values of the flags of explain.
type explainOptions struct {
	query explanation.Query
	cluster
	*node
	kernel bool
	output commandline.Format
}

func explainCommand() *cobra.Command {
	o := &explainOptions{node: newNode()}
	cmd := &cobra.Command{
		Use:   "explain --from NAMESPACE/POD|ADDRESS --to NAMESPACE/POD|ADDRESS|svc/NAME.NAMESPACE --port tcp/80",
		Short: "Explains whether a connection is allowed, by which policy and rule, or why not by each, and the nearest change that would allow it",
		Long: "Explains whether a connection is allowed, by which policy and rule, or why not by each, and the nearest change that would allow it.\n" +
			"It reads the objects of an API server, or those in --manifests before they are applied: a pod there needs no address, and a workload is a pod.\n\n" +
			"A Service, by an address of its own, a port of a node or its name, is resolved to its endpoints, and each is explained.\n\n" +
			"The exit status is 0 if the connection is allowed, 1 if it is denied in at least one family or at one endpoint, and 2 after an error,\n" +
			"or if an address belongs to nobody although it is in a range of pods or Services.\n" +
			"With --kernel, the answer is compared with the kernel of this node, as far as this node enforces it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.stdin = cmd.InOrStdin()
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.query.From, "from", "", "pod or address that opens the connection")
	f.StringVar(&o.query.To, "to", "", "destination: a pod, an address or a Service such as svc/NAME.NAMESPACE")
	f.StringVar(&o.query.Port, "port", "", "tcp/80, udp/53, sctp/80, icmp, or the name of a port of the destination, such as tcp/http")
	o.output.Register(f, "text, json, or yaml: only the policies that would allow what is denied, for kubectl apply -f -", "text", "json", "yaml")
	o.registerAll(f)
	f.BoolVar(&o.kernel, "kernel", false,
		"also send the packet through this node's chains and sets, and report where they differ from the policies")
	o.node.register(f)
	return cmd
}

func (o *explainOptions) run(ctx context.Context, out, stderr io.Writer) error {
	if err := o.output.Check(); err != nil {
		return err
	}
	k, err := o.know(ctx, stderr)
	if err != nil {
		return err
	}
	x, err := explanation.Explain(o.query, k)
	if err != nil {
		return err
	}
	if err := render.Explanation(out, o.output.Name, x); err != nil {
		return err
	}
	switch {
	case len(x.Warnings) > 0:
		return errors.Errorf("%s; the answer is that for an address outside the cluster", strings.Join(x.Warnings, "; "))
	case !x.Allowed:
		return errDenied
	}
	return nil
}

// know reads what the explanation is based on. Services are read only if an end is not the name of a pod, as users may lack the right to.
func (o *explainOptions) know(ctx context.Context, stderr io.Writer) (k explanation.Knowledge, err error) {
	switch {
	case o.kernel && o.rehearsal.World() != "":
		return k, errors.New("--world: the kernel has what is enforced; leave out --kernel")
	case o.kernel:
		err = o.knowNode(ctx, stderr, &k)
	default:
		err = o.knowObjects(ctx, stderr, &k)
	}
	if err != nil || o.query.NamesPods() {
		return k, err
	}
	n, err := o.network(ctx)
	if err != nil {
		return k, err
	}
	if len(n.Unread) > 0 {
		_, _ = fmt.Fprintf(stderr, "weave-npc: some addresses cannot be resolved: %s\n", strings.Join(n.Unread, "; "))
	}
	for name, addrs := range services.NodeAddrs(n.Nodes) {
		k.Cluster.AddNodeAddrs(name, addrs)
	}
	k.Network = services.New(k.Cluster.View(), n)
	return k, nil
}

func (o *explainOptions) knowObjects(ctx context.Context, stderr io.Writer, k *explanation.Knowledge) error {
	objects, err := o.objects(ctx, stderr)
	if err != nil {
		return err
	}
	noteClusterPolicies(stderr, objects)
	k.Cluster, k.Pods = o.of(objects), objects.Pods
	return nil
}

func (o *explainOptions) knowNode(ctx context.Context, stderr io.Writer, k *explanation.Knowledge) error {
	s, err := o.read(ctx, &o.cluster, stderr)
	if err != nil {
		return err
	}
	k.Cluster, k.Pods, k.Kernel, k.Node = s.cluster, s.objects.Pods, s.State, s.name
	noteClusterPolicies(stderr, s.objects)
	if s.unread == nil {
		k.Cluster.SetNodeAddrs(s.name, s.addrs)
	}
	return s.unread
}
