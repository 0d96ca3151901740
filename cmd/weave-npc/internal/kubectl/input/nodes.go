package input

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/weave-npc/weave-npc/npc/policy/staged"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
	"github.com/weave-npc/weave-npc/npc/source/staging"
)

// maxNamed is the maximum number of nodes that a note names.
const maxNamed = 3

// Nodes is how the nodes treat staged policies. Nil stands for nodes that are not asked about.
type Nodes struct {
	agents  []agent
	unknown string // why they are not known
}

// any reports whether any policy is staged.
func (r *Staged) any() bool { return len(r.groups.Staged) > 0 }

// listNodes finds out what the nodes run.
func listNodes(ctx context.Context, client kubernetes.Interface) *Nodes {
	n := &Nodes{}
	var err error
	switch n.agents, err = listAgents(ctx, client); {
	case err != nil:
		n.unknown = err.Error()
	case len(n.agents) == 0:
		n.unknown = "no pod with the label " + Selector + " runs"
	}
	return n
}

// follow takes the flags of the nodes for those that are not given. It is an error if they matter for some objects of
// the API server and are not known, or are not the same on all nodes.
func (c *ObjectFlags) follow(o snapshot.Objects) error {
	n := c.nodes
	if len(n.agents) > 0 && c.legacy != nil && !c.legacy.Changed && len(o.Policies) > 0 {
		c.LegacyNetpol = n.agents[0].Legacy
		if slices.ContainsFunc(n.agents, func(a agent) bool { return a.Legacy != c.LegacyNetpol }) {
			return errors.New("some nodes run weave-npc with --use-legacy-netpol and others do not: " +
				"give it, or --use-legacy-netpol=false")
		}
	}
	r := Staged{groups: staging.Read(o, staged.All)}
	if c.preview.mode != "" || c.preview.group != "" || !r.any() {
		return nil
	}
	differ := len(n.unsettled()) > 0 || n.unknown != ""
	for _, cluster := range []bool{false, true} {
		stages := func(a agent) bool { return a.Staged.Covers(cluster) }
		differ = differ || r.has(cluster) && len(n.enforcing(cluster)) > 0 && slices.ContainsFunc(n.agents, stages)
	}
	if differ {
		return errors.Errorf("%s; give --staged=off, namespaces or all", strings.Join(r.warnings(n), "; "))
	}
	c.preview.mode, c.preview.ofNodes = string(n.agents[0].Staged), true
	return nil
}

// warnings returns a line for each reason to doubt that what is staged is not enforced.
func (r *Staged) warnings(n *Nodes) (lines []string) {
	if n.unknown != "" {
		return []string{"whether nodes enforce the annotated policies is not known: " + n.unknown}
	}
	for _, kind := range []struct {
		cluster bool
		mode    staged.Mode
		name    string
	}{{false, staged.Namespaces, "policies"}, {true, staged.All, "ClusterNetworkPolicies"}} {
		if !r.has(kind.cluster) {
			continue
		}
		if nodes := n.enforcing(kind.cluster); len(nodes) > 0 {
			lines = append(lines, fmt.Sprintf("%s weave-npc without --staged=%s: there the annotated %s are enforced",
				run(nodes), kind.mode, kind.name))
		}
		if nodes := n.unsettled(); len(nodes) > 0 {
			lines = append(lines, fmt.Sprintf("whether %s weave-npc with --staged=%s, "+
				"or the annotated %s are enforced there, is not known: "+
				"the pod's definition refers to something else for it", run(nodes), kind.mode, kind.name))
		}
	}
	return lines
}

// enforcing returns the nodes that enforce policies of a kind though they are annotated.
func (n *Nodes) enforcing(cluster bool) (nodes []string) {
	for _, a := range n.agents {
		if a.Known && !a.Staged.Covers(cluster) {
			nodes = append(nodes, a.Node)
		}
	}
	return slices.Compact(nodes)
}

// unsettled returns the nodes whose --staged is not known.
func (n *Nodes) unsettled() (nodes []string) {
	for _, a := range n.agents {
		if !a.Known {
			nodes = append(nodes, a.Node)
		}
	}
	return slices.Compact(nodes)
}

// notify adds where a policy is enforced.
func (n *Nodes) notify(c *StagedRow, cluster bool) {
	if n != nil {
		c.EnforcedOn, c.UnknownOn, c.NodesUnknown = n.enforcing(cluster), n.unsettled(), n.unknown
	}
}

// run returns the first of some nodes, and that they run something.
func run(nodes []string) string {
	switch more := len(nodes) - maxNamed; {
	case len(nodes) == 1:
		return "node " + nodes[0] + " runs"
	case more > 0:
		return fmt.Sprintf("nodes %s (and %d more) run", strings.Join(nodes[:maxNamed], ", "), more)
	}
	return "nodes " + strings.Join(nodes, ", ") + " run"
}
