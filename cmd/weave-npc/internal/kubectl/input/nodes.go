package input

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes"

	"github.com/weave-npc/weave-npc/npc/policy/staged"
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

// nodes finds out how the nodes treat the staged policies, and notes in stderr where they are enforced.
func (r *Staged) nodes(ctx context.Context, client kubernetes.Interface, stderr io.Writer) *Nodes {
	n := &Nodes{}
	var err error
	switch n.agents, err = listAgents(ctx, client); {
	case err != nil:
		n.unknown = err.Error()
	case len(n.agents) == 0:
		n.unknown = "no pod with the label " + Selector + " runs"
	}
	for _, line := range r.warnings(n) {
		_, _ = fmt.Fprintln(stderr, "weave-npc:", line)
	}
	return n
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
