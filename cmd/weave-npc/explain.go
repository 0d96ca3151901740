package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/npc/advice"
	"github.com/weave-npc/weave-npc/npc/explain"
	"github.com/weave-npc/weave-npc/npc/objectkey"
	"github.com/weave-npc/weave-npc/npc/services"
	"github.com/weave-npc/weave-npc/npc/source/apiclient"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// errDenied says that explain has found a flow to be denied, and has said so.
var errDenied = errors.New("denied")

// cluster is where the objects are read from, once.
type cluster struct {
	kubeconfig, context, manifests string
	legacyNetpol                   bool
}

func (c *cluster) register(f *pflag.FlagSet) {
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "file that says how to reach the API server (default: as kubectl finds it)")
	f.StringVar(&c.context, "context", "", "context of the kubeconfig (default: its current one)")
	f.StringVar(&c.manifests, "manifests", "", "directory to read namespaces, pods and network policies from, instead of an API server")
	f.BoolVar(&c.legacyNetpol, "use-legacy-netpol", false, "give policies the meaning that they had in Kubernetes 1.6")
}

// objects reads them.
func (c *cluster) objects(ctx context.Context) (snapshot.Objects, error) {
	switch {
	case c.manifests != "" && c.kubeconfig != "":
		return snapshot.Objects{}, errors.New("--kubeconfig and --manifests: give one of them")
	case c.manifests != "":
		return snapshot.Load(c.manifests)
	}
	client, err := apiclient.ForUser(c.kubeconfig, c.context, version())
	if err != nil {
		return snapshot.Objects{}, err
	}
	return snapshot.List(ctx, client)
}

// world reads them and returns who explains them.
func (c *cluster) world(ctx context.Context) (*explain.World, snapshot.Objects, error) {
	o, err := c.objects(ctx)
	if err != nil {
		return nil, o, err
	}
	w := explain.NewWorld()
	w.LegacyNetpol = c.legacyNetpol
	o.Deliver(w)
	return w, o, nil
}

// asked is what explain is asked.
type asked struct {
	cluster
	node
	kernel                 bool
	from, to, port, output string
}

func explainCommand() *cobra.Command {
	a := &asked{}
	cmd := &cobra.Command{
		Use:   "explain --from NAMESPACE/POD|ADDRESS --to NAMESPACE/POD|ADDRESS|svc/NAME.NAMESPACE --port tcp/80",
		Short: "Says whether a connection is allowed, by which policy and rule, or why not by each, and the nearest change that would",
		Long: "Says whether a connection is allowed, by which policy and rule, or why not by each, and the nearest change that would.\n" +
			"It asks the objects of an API server, or those in --manifests before they are applied; a pod there needs no address.\n\n" +
			"A Service, by an address of its own, a port of a node or its name, is resolved to its endpoints, and each is answered.\n\n" +
			"The exit status is 0 if it is allowed, 1 if it is denied in one family or at one endpoint at least, 2 after an error, and if an address\n" +
			"is nobody's though it is in the range of pods or Services.\n" +
			"With --kernel, this node's part is also asked of what its kernel holds.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&a.from, "from", "", "pod or address that opens the connection")
	f.StringVar(&a.to, "to", "", "pod, address or Service that it goes to, such as svc/NAME.NAMESPACE")
	f.StringVar(&a.port, "port", "", "tcp/80, udp/53, sctp/80, icmp, or the name of a port of the pod or Service that it goes to, such as tcp/http")
	f.StringVarP(&a.output, "output", "o", "text", "text, json, or yaml: the policies alone that would allow what is denied, for kubectl apply -f -")
	a.cluster.register(f)
	f.BoolVar(&a.kernel, "kernel", false,
		"also send the packet through this node's chains and sets, and say where they differ from the policies")
	a.node.register(f)
	return cmd
}

func (a *asked) run(ctx context.Context, out, stderr io.Writer) error {
	if a.output != "text" && a.output != "json" && a.output != "yaml" {
		return errors.Errorf("--output: %q is none of text, json, yaml", a.output)
	}
	k, err := a.know(ctx)
	if err != nil {
		return err
	}
	if err := a.network(ctx, &k, stderr); err != nil {
		return err
	}
	q, err := a.question(k)
	if err != nil {
		return err
	}
	x, err := k.answer(q)
	if err != nil {
		return err
	}
	if k.kernel != nil {
		if err := x.walk(k.kernel, a.name, slices.Concat(q.flows...)); err != nil {
			return err
		}
	}
	if err := x.write(out, a.output); err != nil {
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

// known is what explain knows.
type known struct {
	*explain.World
	objects snapshot.Objects
	// network is what leads to pods; nil if no end may need it. kernel is what this node's kernel holds; nil if it is not asked.
	network *services.Network
	kernel  *holdings
}

// know reads the objects, and the kernel if it is asked too.
func (a *asked) know(ctx context.Context) (k known, err error) {
	if !a.kernel {
		k.World, k.objects, err = a.world(ctx)
		return k, err
	}
	if k.kernel, err = a.read(ctx, &a.cluster); err != nil {
		return k, err
	}
	k.World, k.objects = k.kernel.world, k.kernel.objects
	return k, k.kernel.unknown
}

// explanation is what explain answers.
type explanation struct {
	// Allowed says whether all verdicts are, those of the kernel too if it was asked.
	Allowed bool `json:"allowed"`
	// Service is what the connection goes to, if that is a Service; there are verdicts for each of its endpoints then.
	Service  *services.Target  `json:"service,omitempty"`
	Verdicts []explain.Verdict `json:"verdicts"`
	// Kernel is what this node's kernel does, if it was asked.
	Kernel []kernelVerdict `json:"kernel,omitempty"`
	// Nearest are changes that would allow what is denied, each for itself, the one to prefer first.
	Nearest []advice.Change `json:"nearest,omitempty"`
	// Warnings are what speaks against taking an address for what it seems to be.
	Warnings []string `json:"warnings,omitempty"`
	// groups are the verdicts for each endpoint.
	groups [][]explain.Verdict
}

// controllers returns what manages the pods, as kind and name, by namespace/name of the pod.
func controllers(o snapshot.Objects) map[string]string {
	out := map[string]string{}
	for _, p := range o.Pods {
		if owner := metav1.GetControllerOf(p); owner != nil {
			out[objectkey.Of(p.Namespace, p.Name)] = owner.Kind + " " + owner.Name
		}
	}
	return out
}

func (x explanation) write(out io.Writer, format string) error {
	text := ""
	switch format {
	case "json":
		return writeJSON(out, x)
	case "yaml":
		var policies []string
		for _, c := range x.Nearest {
			if c.Apply != "" {
				policies = append(policies, c.Apply)
			}
		}
		text = strings.Join(policies, "---\n")
	default:
		if x.Service != nil {
			text = x.Service.String()
		}
		for _, verdicts := range x.groups {
			text += explain.Text(verdicts)
		}
		for _, k := range x.Kernel {
			text += k.String()
		}
		text += changesText(x.Nearest)
	}
	_, err := io.WriteString(out, text)
	return errors.Wrap(err, "writing")
}

// changesText returns changes in lines, the YAML of policies indented below them.
func changesText(changes []advice.Change) (text string) {
	for i, c := range changes {
		switch {
		case c.For != "" && (i == 0 || changes[i-1].For != c.For):
			text += "nearest change for " + c.For + ": "
		case i == 0:
			text += "nearest change: "
		default:
			text += "            or: "
		}
		text += fmt.Sprintf("%s (%s)\n", c.Text, c.Effect)
		for _, n := range c.Notes {
			text += "  " + n + "\n"
		}
		for line := range strings.Lines(c.Apply) {
			text += "    " + line
		}
	}
	return text
}

func writeJSON(out io.Writer, what any) error {
	text, err := json.MarshalIndent(what, "", "  ")
	if err != nil {
		return errors.Wrap(err, "writing JSON")
	}
	_, err = fmt.Fprintln(out, string(text))
	return errors.Wrap(err, "writing JSON")
}
