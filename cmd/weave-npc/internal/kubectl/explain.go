package kubectl

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/input"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/output"
	"github.com/weave-npc/weave-npc/npc/analysis/query"
	"github.com/weave-npc/weave-npc/npc/analysis/service"
	"github.com/weave-npc/weave-npc/npc/cluster"
)

// explainOptions are the values of the flags of explain.
type explainOptions struct {
	query query.Query
	input.ObjectFlags
	resolved []string // NAME=ADDRESS,...
	kernel   Kernel
	compare  bool
	output   cli.Format
}

// Kernel is that of the node that a command runs on.
type Kernel interface {
	// Register registers the flags that say how the node is set up.
	Register(f *pflag.FlagSet)
	// Know adds the kernel's state, and the objects that explain it.
	Know(ctx context.Context, flags *input.ObjectFlags, stderr io.Writer, k *query.Knowledge) error
}

// Explain returns the command explain. Its answers are compared with a kernel if that is not nil.
func Explain(kernel Kernel) *cobra.Command {
	o := &explainOptions{kernel: kernel}
	cmd := &cobra.Command{
		Use: "explain [LINE] --from NAMESPACE/POD|ADDRESS --to NAMESPACE/POD|ADDRESS|svc/NAME.NAMESPACE " +
			"--port tcp/80",
		Short: "Explain whether a connection is allowed, by which policy and rule, or why not by each, " +
			"and the nearest change that would allow it",
		Long: "Explain whether a connection is allowed, by which policy and rule, or why not by each,\n" +
			"and the nearest change that would allow it.\n\n" + input.AboutObjects +
			"LINE describes a connection, as weave-npc's log, flows, conntrack or the kernel print it. It\n" +
			"takes the place of the flags that are not given, and each of these takes what such a line has\n" +
			"for it.\n\n" +
			"A Service, by an address of its own, a port of a node or its name, is resolved to its endpoints,\n" +
			"and each is explained.\n\n" +
			"The exit status is 0 if the connection is allowed, 1 if it is denied in at least one family or\n" +
			"at one endpoint, and 2 after an error, or if an address is in a range of pods or Services but\n" +
			"belongs to none, or if the user may not read what decides.",
		Example: "  weave-npc explain -f manifests --from shop/web --to shop/db --port tcp/5432\n" +
			"  helm template shop | weave-npc explain -f - --from shop/web --to svc/db.shop --port 5432",
		Args: oneLine,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Stdin = cmd.InOrStdin()
			if err := o.readLine(args); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.query.From, "from", "",
		"source: NAMESPACE/POD, an address, pod/NAME or deploy/NAME with -n, or NAMESPACE/[KEY=VALUE,...]: a pod with labels")
	f.StringVar(&o.query.To, "to", "", "destination: the same, or a Service as svc/NAME.NAMESPACE, or svc/NAME with -n")
	f.StringVar(&o.query.Port, "port", "",
		"tcp/80, udp/53, sctp/80, icmp, or the name of a port of the destination, such as tcp/http")
	f.StringArrayVar(&o.resolved, "resolve", nil, "NAME=ADDRESS[,ADDRESS]: what resolvers say of a domain name, which "+
		"--to may be then (repeatable; default: not known)")
	o.output.Register(f,
		"text, json, or yaml: only the policies that would allow what is denied, for kubectl apply -f -",
		"text", "json", "yaml")
	o.RegisterAll(f)
	if kernel != nil {
		cmd.Long += "\nWith --kernel, the answer is compared with the kernel of this node,\n" +
			"limited to what this node enforces."
		f.BoolVar(&o.compare, "kernel", false,
			"also send the packet through this node's chains and sets, and report where they differ from the policies")
		kernel.Register(f)
	}
	return cli.Answers(cmd)
}

// oneLine takes at most one argument.
func oneLine(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return errors.New("give a line as one argument, in quotes, or a connection with --from, --to and --port")
	}
	return nil
}

// readLine completes the query by a line, if there is one.
func (o *explainOptions) readLine(args []string) error {
	asked, err := input.FromFlags(input.Connection(o.query))
	if err == nil && len(args) == 1 {
		var line input.Connection
		line, err = input.FromLine(args[0])
		asked = asked.Or(line)
	}
	asked.From, asked.To = o.Named(asked.From), o.Named(asked.To)
	o.query = query.Query(asked)
	return err
}

func (o *explainOptions) run(ctx context.Context, out, stderr io.Writer) error {
	if err := o.output.Check(); err != nil {
		return err
	}
	k, err := o.know(ctx, stderr)
	if err != nil {
		return err
	}
	x, err := query.Explain(o.query, k)
	if err != nil {
		return err
	}
	if err := output.Explanation(out, o.output.Name, x); err != nil {
		return err
	}
	switch {
	case len(x.Warnings) > 0:
		return errors.Errorf("%s; the answer is that for an address outside the cluster",
			strings.Join(x.Warnings, "; "))
	case x.Unknown && k.Cluster.View().Unreadable.Any():
		return errors.New("the answer is not known, because what decides cannot be read")
	case x.Unknown:
		return errors.New("the answer is not known, because a domain name decides, and no node's learned addresses are " +
			"known here: give what resolvers answer with --resolve NAME=ADDRESS")
	case !x.Allowed:
		return cli.ErrNo
	}
	return nil
}

// know reads what the explanation is based on. Services are read only if an end is not the name of a pod, as users may
// lack the right to.
func (o *explainOptions) know(ctx context.Context, stderr io.Writer) (k query.Knowledge, err error) {
	learned, err := input.Resolved(o.resolved)
	if err != nil {
		return k, err
	}
	switch {
	case o.compare && learned != nil:
		return k, errors.New("--resolve: the kernel has what this node has learned; leave out --kernel")
	case o.compare && o.Group() != "":
		return k, errors.New("--staged-group: the kernel has what is enforced; leave out --kernel")
	case o.compare:
		err = o.kernel.Know(ctx, &o.ObjectFlags, stderr, &k)
	default:
		err = o.knowObjects(ctx, stderr, &k)
	}
	if err != nil {
		return k, err
	}
	if learned != nil {
		k.Cluster.SetLearned(learned)
	}
	if err := o.imagine(stderr, k.Cluster); err != nil {
		return k, err
	}
	if err := o.apart(stderr, k.Cluster); err != nil {
		return k, err
	}
	if o.query.NamesPods() {
		return k, nil
	}
	n, err := o.Network(ctx)
	if err != nil {
		return k, err
	}
	if len(n.Unreadable) > 0 {
		_, _ = fmt.Fprintf(stderr, "weave-npc: some addresses cannot be resolved: %s\n",
			strings.Join(n.Unreadable, "; "))
	}
	for name, addrs := range service.NodeAddrs(n.Nodes) {
		k.Cluster.AddNodeAddrs(name, addrs)
	}
	k.Network = service.New(k.Cluster.View(), n)
	if o.throughOwnService(&k) && len(n.Slices) == 0 && !o.compare {
		if to, made := k.Cluster.Another(o.query.From); made {
			noteAnother(stderr, to, o.query.From)
			k.Network = service.New(k.Cluster.View(), n)
		}
	}
	return k, nil
}

// throughOwnService reports whether a pod is asked about with a Service that leads to it.
func (o *explainOptions) throughOwnService(k *query.Knowledge) bool {
	from, err := k.Cluster.View().Find(o.query.From)
	target, noService := k.Network.Find(o.query.To, o.query.Port)
	return err == nil && noService == nil && target != nil && from[0].Pod != "" &&
		slices.ContainsFunc(target.Endpoints, func(e service.Endpoint) bool { return e.Pod == from[0].Pod })
}

// imagine has ends that are described by labels stand for pods.
func (o *explainOptions) imagine(stderr io.Writer, c *cluster.Cluster) error {
	for _, end := range []struct {
		flag string
		text *string
	}{{"--from", &o.query.From}, {"--to", &o.query.To}} {
		pod, made, err := c.Imagine(*end.text)
		switch {
		case err != nil:
			return errors.Wrap(err, end.flag)
		case made && o.compare:
			return errors.Errorf("--kernel: %s is no pod of this node: leave out --kernel", *end.text)
		case made:
			input.NoteImagined(stderr, pod, *end.text)
		}
		*end.text = pod
	}
	return nil
}

// apart has a workload that is asked about with itself stand for one of its pods and another one.
func (o *explainOptions) apart(stderr io.Writer, c *cluster.Cluster) error {
	if !cluster.SamePod(c.View(), o.query.From, o.query.To) {
		return nil
	}
	to, made := c.Another(o.query.To)
	switch {
	case made && o.compare:
		return errors.Errorf("--kernel: %s has one pod alone: leave out --kernel to ask about another one", o.query.To)
	case made:
		noteAnother(stderr, to, o.query.To)
	}
	o.query.To = to
	return nil
}

// noteAnother notes that a pod was made up for a workload.
func noteAnother(stderr io.Writer, pod, workload string) {
	_, _ = fmt.Fprintf(stderr, "weave-npc: %s stands for another pod of %s: its address is made up\n", pod, workload)
}

func (o *explainOptions) knowObjects(ctx context.Context, stderr io.Writer, k *query.Knowledge) error {
	o.ReadPartly(o.query.From, o.query.To)
	read, err := o.Read(ctx, stderr)
	if err != nil {
		return err
	}
	input.NoteClusterPolicies(stderr, read)
	k.Cluster, k.Pods = o.Cluster(read), read.Pods
	return nil
}
