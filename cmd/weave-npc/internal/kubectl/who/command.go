package who

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/input"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/service"
	"github.com/weave-npc/weave-npc/npc/cluster"
)

// The values of --output.
const (
	outputText = "text"
	outputJSON = "json"
)

// options are the values of the flags.
type options struct {
	input.ObjectFlags
	direction npc.Direction
	port      string
	all       bool
	eachPod   bool
	output    cli.Format
}

const about = input.AboutObjects +
	"NAMESPACE/[KEY=VALUE,...] in place of the pod is one with these labels that need not exist.\n" +
	"Pods with the same labels that no policy distinguishes are one line, as in show matrix. Without --port,\n" +
	"the answer is for all ports, in the ranges that policies distinguish.\n\n" +
	"The exit status is 0 for every answer, and 2 after an error."

// CanReach returns the command that lists who reaches a pod.
func CanReach() *cobra.Command {
	return command(npc.Ingress, &cobra.Command{
		Use: "who-can-reach NAMESPACE/POD|ADDRESS|svc/NAME.NAMESPACE [--port tcp/80]",
		Short: "List who can reach a pod, a Service or an address: workloads, nodes and addresses outside, " +
			"on which ports, and by which policy and rule",
	})
}

// WhatReaches returns the command that lists what a pod reaches.
func WhatReaches() *cobra.Command {
	return command(npc.Egress, &cobra.Command{
		Use: "what-reaches NAMESPACE/POD|ADDRESS [--port tcp/80]",
		Short: "List what a pod reaches: workloads, nodes and addresses outside, on which ports, " +
			"and by which policy and rule",
	})
}

func command(d npc.Direction, cmd *cobra.Command) *cobra.Command {
	o := &options{direction: d}
	cmd.Long = cmd.Short + ".\n" + about
	cmd.Args = onePod
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.Stdin = cmd.InOrStdin()
		pod, port := input.ParseEnd(args[0])
		if o.port == "" && d == npc.Ingress && !strings.ContainsAny(args[0], "=(") { // no field of a line
			o.port = port
		}
		return o.run(cmd.Context(), o.Named(pod), cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.port, "port", "",
		"only this port: tcp/80, udp/53, sctp/80, icmp, "+
			"or the name of a port of the pod that is asked about, such as tcp/http")
	f.BoolVar(&o.all, "all", false, "also list who is refused, and why")
	f.BoolVar(&o.eachPod, "pods", false, "give each pod a line of its own")
	o.output.Register(f, "text or json", outputText, outputJSON)
	o.RegisterAll(f)
	return cli.Answers(cmd)
}

// onePod takes one argument.
func onePod(_ *cobra.Command, args []string) error {
	switch {
	case len(args) == 0 || args[0] == "":
		return errors.New("the pod is missing: give it as NAMESPACE/NAME")
	case len(args) > 1:
		return errors.Errorf("%q is one too many: give one pod as NAMESPACE/NAME", args[1])
	}
	return nil
}

func (o *options) run(ctx context.Context, text string, out, stderr io.Writer) error {
	if err := o.output.Check(); err != nil {
		return err
	}
	o.ReadPartly(text)
	v, network, text, err := o.know(ctx, text, stderr)
	if err != nil {
		return err
	}
	subjects, err := o.find(v, network, text)
	if err != nil {
		return err
	}
	answers := ask(v, subjects, o.eachPod, stderr)
	for i := range answers {
		if n := len(answers[i].omitted); n > 0 {
			_, _ = fmt.Fprintf(stderr, "weave-npc: left out, for their address is not their own: %s\n",
				some(answers[i].omitted))
			break
		}
	}
	if o.output.Name == outputJSON {
		return writeJSON(out, answers, o.all)
	}
	return writeText(out, answers, o.all)
}

// some returns the first names of a list.
func some(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// know reads the objects, and makes the pod that a text describes. It reads Services if the text is not the name of a
// pod, as users may lack the right to.
func (o *options) know(ctx context.Context, asked string, stderr io.Writer,
) (v *cluster.View, network *service.Network, text string, err error) {
	read, err := o.Read(ctx, stderr)
	if err != nil {
		return nil, nil, "", err
	}
	input.NoteClusterPolicies(stderr, read)
	c := o.Cluster(read)
	text, made, err := c.Imagine(asked)
	if err != nil {
		return nil, nil, "", err
	}
	if made {
		input.NoteImagined(stderr, text, asked)
	}
	if _, err := netip.ParseAddr(text); err != nil && !service.IsName(text) && !cluster.NamesNode(text) {
		return c.View(), nil, text, nil
	}
	n, err := o.Network(ctx)
	if err != nil {
		return nil, nil, "", err
	}
	if len(n.Unreadable) > 0 {
		_, _ = fmt.Fprintf(stderr, "weave-npc: some addresses cannot be resolved: %s\n",
			strings.Join(n.Unreadable, "; "))
	}
	for name, addrs := range service.NodeAddrs(n.Nodes) {
		c.AddNodeAddrs(name, addrs)
	}
	return c.View(), service.New(c.View(), n), text, nil
}
