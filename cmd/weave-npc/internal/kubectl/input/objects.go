package input

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli/sharedflags"
	"github.com/weave-npc/weave-npc/internal/spelling"
	npccluster "github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/source/apiclient"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// AboutObjects is the part of a command's help about the objects that it reads.
const AboutObjects = "It reads the objects of an API server, or those in --manifests before they are applied:\n" +
	"a pod there needs no address, and a workload is a pod.\n\n"

// ObjectFlags are the values of the flags. Objects are read once.
type ObjectFlags struct {
	// Access names the API server. Manifests are read instead of it.
	Access    apiclient.Access
	Manifests string
	// LegacyNetpol gives policies the meaning that they had in Kubernetes 1.6.
	LegacyNetpol bool
	// Stdin is that of the command, for manifests; nil if another flag reads it.
	Stdin io.Reader
	// Enforced asks for the pods that nodes enforce policies for, without those that stand for workloads.
	Enforced bool

	manifests ManifestsFlags
	preview   stagedFlags
	legacy    *pflag.Flag
	scope     *pflag.Flag         // --namespace; nil for commands without it
	opened    *snapshot.Manifests // nil before they are
	nodes     *Nodes              // nil before objects of an API server are read
	// partly is set if answers can do without what the user may not read, and within are the namespaces that are read
	// then.
	partly bool
	within []string
}

// ReadPartly has objects read of some namespaces alone where the user may not read all: those that texts name, as a
// namespace, as NAMESPACE/POD or as svc/NAME.NAMESPACE, and that of the context. The Cluster marks what is not
// read as not readable.
func (c *ObjectFlags) ReadPartly(texts ...string) {
	c.partly = true
	for _, text := range texts {
		namespace := text
		if name, isService := strings.CutPrefix(text, "svc/"); isService {
			if _, dotted, ok := strings.Cut(name, "."); ok {
				namespace, _, _ = strings.Cut(dotted, ".")
			} else {
				namespace = name
			}
		}
		namespace, _, _ = strings.Cut(namespace, "/")
		if len(validation.IsDNS1123Label(namespace)) == 0 {
			c.within = append(c.within, namespace)
		}
	}
}

// namespaces returns those to read where the user may not read all; none if answers need all.
func (c *ObjectFlags) namespaces() []string {
	if !c.partly {
		return nil
	}
	all := slices.Clone(c.within)
	for _, of := range []string{apiclient.NamespaceOfUser(c.Access), c.namespace()} {
		if of != "" {
			all = append(all, of)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Register registers the flags.
func (c *ObjectFlags) Register(f *pflag.FlagSet) {
	RegisterAccess(f, &c.Access)
	c.manifests.Path = &c.Manifests
	c.manifests.Register(f, "directory or file to read namespaces, pods, workloads and policies from, "+
		"or - for standard input, instead of an API server")
	c.registerMeaning(f)
}

// RegisterServer registers the flags of an API server, and those that select a group of staged policies.
func (c *ObjectFlags) RegisterServer(f *pflag.FlagSet) {
	RegisterAccess(f, &c.Access)
	c.registerMeaning(f)
	c.preview.RegisterGroup(f)
}

func (c *ObjectFlags) registerMeaning(f *pflag.FlagSet) {
	sharedflags.LegacyNetpol(f, &c.LegacyNetpol)
	c.legacy = f.Lookup("use-legacy-netpol")
	c.preview.Register(f)
}

// RegisterAll registers the flags, --namespace unless it exists, and the one that selects a group of staged policies.
func (c *ObjectFlags) RegisterAll(f *pflag.FlagSet) {
	if f.Lookup("namespace") == nil {
		f.StringP("namespace", "n", "", "namespace of objects in manifests, and of pods and Services, that name none")
	}
	c.scope = f.Lookup("namespace")
	c.Register(f)
	c.preview.RegisterGroup(f)
}

// namespace returns the value of --namespace; empty without it.
func (c *ObjectFlags) namespace() string {
	if c.scope == nil {
		return ""
	}
	return c.scope.Value.String()
}

// Read reads namespaces, pods and those policies that count. Which others are annotated is noted in stderr.
func (c *ObjectFlags) Read(ctx context.Context, stderr io.Writer) (snapshot.Objects, error) {
	r, err := c.Preview(ctx, stderr)
	NoteWorkloads(stderr, r.Objects)
	return r.Objects, err
}

// Preview reads namespaces, pods and policies, and separates the staged policies from the others.
func (c *ObjectFlags) Preview(ctx context.Context, stderr io.Writer) (Staged, error) {
	if err := c.preview.Check(); err != nil {
		return Staged{}, err
	}
	cli.Doing(stderr, "reading %s", c.Origin())
	all, err := c.everything(ctx)
	if err != nil {
		return Staged{}, err
	}
	cli.Doing(stderr, "evaluating the policies for %s", spelling.Count(len(all.Pods), "pod"))
	for _, note := range all.UnreadableNotes() {
		_, _ = fmt.Fprintln(stderr, "weave-npc:", note)
	}
	return c.preview.Apply(all, stderr)
}

// Apply separates the staged policies from the other objects, and notes in stderr which are annotated.
func (c *ObjectFlags) Apply(all snapshot.Objects, stderr io.Writer) (snapshot.Objects, error) {
	r, err := c.preview.Apply(all, stderr)
	return r.Objects, err
}

// everything reads namespaces, pods and all policies.
func (c *ObjectFlags) everything(ctx context.Context) (snapshot.Objects, error) {
	switch {
	case c.Manifests != "" && c.Access.Kubeconfig != "":
		return snapshot.Objects{}, errors.New("--kubeconfig and --manifests: give one of them")
	case c.Manifests != "":
		m, err := c.open()
		switch {
		case err != nil:
			return snapshot.Objects{}, err
		case c.Enforced:
			return m.Objects()
		}
		o, err := m.WithWorkloads()
		if err == nil && o.Empty() {
			err = errors.New(strings.Join(append([]string{
				spelling.Escape(c.Manifests) + " has no namespaces, pods, workloads, nodes or policies"}, o.Notes...), "; "))
		}
		return o, err
	}
	o, err := c.List(ctx)
	if errors.Is(err, apiclient.ErrNoServer) {
		err = errors.Errorf("%s or --manifests DIR", err)
	}
	return o, err
}

// List reads namespaces, pods and all policies of the API server, and what the nodes run where no flag says it.
func (c *ObjectFlags) List(ctx context.Context) (snapshot.Objects, error) {
	client, config, err := apiclient.ForUser(c.Access, cli.Version())
	if err != nil {
		return snapshot.Objects{}, err
	}
	policies, err := apiclient.NewPolicyClient(client, config)
	if err != nil {
		return snapshot.Objects{}, err
	}
	o, err := snapshot.List(ctx, client, policies, c.namespaces()...)
	if err != nil {
		return snapshot.Objects{}, err
	}
	c.nodes = listNodes(ctx, client)
	return o, c.follow(o)
}

// open opens the manifests, once.
func (c *ObjectFlags) open() (_ *snapshot.Manifests, err error) {
	if c.opened == nil {
		c.manifests.Path = &c.Manifests // some commands have an argument in place of the flag
		if c.opened, err = c.manifests.Open(c.Stdin); err == nil {
			c.opened.Namespace = c.namespace()
		}
	}
	return c.opened, err
}

// Origin returns what objects are read from.
func (c *ObjectFlags) Origin() string {
	switch c.Manifests {
	case "":
		return c.Access.Server()
	case snapshot.StandardInput:
		return "manifests of standard input"
	}
	return "manifests of " + c.Manifests
}

// Network reads what leads to pods: Services, nodes and ranges of addresses.
func (c *ObjectFlags) Network(ctx context.Context) (snapshot.Network, error) {
	if c.Manifests != "" {
		m, err := c.open()
		if err != nil {
			return snapshot.Network{}, err
		}
		return m.Network()
	}
	client, _, err := apiclient.ForUser(c.Access, cli.Version())
	if err != nil {
		return snapshot.Network{}, err
	}
	return snapshot.ListNetwork(ctx, client, c.namespaces()...), nil
}

// Entrances reads the same, with the Ingresses and HTTPRoutes that lead to Services.
func (c *ObjectFlags) Entrances(ctx context.Context) (snapshot.Network, error) {
	n, err := c.Network(ctx)
	if err != nil || c.Manifests != "" {
		return n, err
	}
	client, _, err := apiclient.ForUser(c.Access, cli.Version())
	if err == nil {
		n.ListEntrances(ctx, client)
	}
	return n, err
}

// Nodes returns how the nodes treat the policies that are staged, and notes in stderr where they are enforced. It
// returns nil if none is staged, and for manifests.
func (c *ObjectFlags) Nodes(r *Staged, stderr io.Writer) *Nodes {
	if c.nodes == nil || !r.any() {
		return nil
	}
	for _, line := range r.warnings(c.nodes) {
		_, _ = fmt.Fprintln(stderr, "weave-npc:", line)
	}
	return c.nodes
}

// View reads the objects and returns them as a View. What it does not consider is noted in stderr.
func (c *ObjectFlags) View(ctx context.Context, stderr io.Writer) (*npccluster.View, error) {
	o, err := c.Read(ctx, stderr)
	if err != nil {
		return nil, err
	}
	NoteClusterPolicies(stderr, o)
	return c.Cluster(o).View(), nil
}

// NoteWorkloads notes what the user has to know about the pods that stand for workloads, and about what is not used.
func NoteWorkloads(stderr io.Writer, o snapshot.Objects) {
	for _, u := range o.Unused {
		_, _ = fmt.Fprintln(stderr, "weave-npc:", u)
	}
	for _, note := range o.Notes {
		_, _ = fmt.Fprintln(stderr, "weave-npc:", note)
	}
}

// NoteImagined notes that a pod was made up for a description of one.
func NoteImagined(stderr io.Writer, pod, asked string) {
	_, _ = fmt.Fprintf(stderr, "weave-npc: %s stands for %s, which is no existing pod: its address is made up\n", pod, asked)
}

// NoteClusterPolicies notes that ClusterNetworkPolicies, or the nodes that they name, could not be read.
func NoteClusterPolicies(stderr io.Writer, o snapshot.Objects) {
	if o.ClusterPoliciesUnreadable != "" {
		_, _ = fmt.Fprintf(stderr, "weave-npc: ClusterNetworkPolicies are not considered, "+
			"and whether there are any is not known: %s\n", o.ClusterPoliciesUnreadable)
	}
	if o.NodesUnreadable != "" {
		_, _ = fmt.Fprintf(stderr, "weave-npc: nodes are not considered, "+
			"which ClusterNetworkPolicies name as peers: %s\n", o.NodesUnreadable)
	}
}

// Cluster returns a Cluster of some objects.
func (c *ObjectFlags) Cluster(o snapshot.Objects) *npccluster.Cluster {
	all := npccluster.New()
	all.LegacyNetpol = c.LegacyNetpol
	all.SetUnreadable(o.Unreadable)
	o.Deliver(all)
	return all
}

// Group returns the group of staged policies that is asked about; empty for what is enforced.
func (c *ObjectFlags) Group() string { return c.preview.group }

// Check returns an error if the values are wrong by themselves.
func (c *ObjectFlags) Check() error { return c.preview.Check() }
