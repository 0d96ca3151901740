package input

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/npc/policy/staged"
)

const (
	// Container is the name that every manifest gives to the container of weave-npc.
	Container = "weave-npc"
	// Selector is the label that every manifest gives to its pods.
	Selector = "network-policy-controller=weave-npc"
)

// agent is the weave-npc of a node.
type agent struct {
	Node string
	// Staged is which kinds of policies it stages. It is not Known if the definition of the pod refers to something
	// else for it.
	Staged staged.Mode
	Known  bool
	// Legacy is set if it gives policies the meaning that they had in Kubernetes 1.6.
	Legacy bool
}

// listAgents returns the pods of weave-npc that run, in order of their nodes. It reads only what their definitions say.
func listAgents(ctx context.Context, client kubernetes.Interface) (all []agent, err error) {
	list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: Selector})
	if err != nil {
		return nil, errors.Wrap(err, "listing the pods of weave-npc")
	}
	for i := range list.Items {
		p := &list.Items[i]
		if p.Status.Phase != corev1.PodRunning {
			continue
		}
		for j := range p.Spec.Containers {
			if c := &p.Spec.Containers[j]; c.Name == Container {
				all = append(all, newAgent(p.Spec.NodeName, c))
			}
		}
	}
	slices.SortFunc(all, func(a, b agent) int { return cmp.Compare(a.Node, b.Node) })
	return all, nil
}

func newAgent(node string, c *corev1.Container) agent {
	a := agent{Node: node, Staged: staged.Off}
	value, given, known := setting(c, "staged", "")
	if a.Known = known; given {
		a.Staged = staged.Mode(value)
		a.Known = slices.Contains(staged.Modes[:], a.Staged)
	}
	value, _, _ = setting(c, "use-legacy-netpol", "true")
	a.Legacy, _ = strconv.ParseBool(value)
	return a
}

// setting returns the value of a flag of a container: as its last argument about it says, else as the variable does.
// The value is bare where an argument has none. It is known unless it may come from elsewhere.
func setting(c *corev1.Container, flag, bare string) (value string, given, known bool) {
	if value, given = argument(slices.Concat(c.Command, c.Args), flag, bare); given {
		return value, true, true
	}
	for i := range c.Env {
		if e := &c.Env[i]; e.Name == cli.Variable(flag) {
			return e.Value, true, true // it is empty if it comes from elsewhere
		}
	}
	return "", false, len(c.EnvFrom) == 0
}

// argument returns the value that the last of some arguments gives to a flag.
func argument(words []string, flag, bare string) (value string, given bool) {
	for i, word := range words {
		switch text, is := strings.CutPrefix(word, "--"+flag+"="); {
		case is:
			value, given = text, true
		case word != "--"+flag:
		case bare != "":
			value, given = bare, true
		case i+1 < len(words):
			value, given = words[i+1], true
		}
	}
	return value, given
}
