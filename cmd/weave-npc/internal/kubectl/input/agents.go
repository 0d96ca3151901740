package input

import (
	"cmp"
	"context"
	"slices"
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

// flag is the flag of weave-npc that says which kinds of policies are staged.
const flag = "staged"

// agent is the weave-npc of a node.
type agent struct {
	Node string
	// Staged is which kinds of policies it stages. It is not Known if the definition of the pod refers to something
	// else for it.
	Staged staged.Mode
	Known  bool
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
				mode, known := modeOf(c)
				all = append(all, agent{Node: p.Spec.NodeName, Staged: mode, Known: known})
			}
		}
	}
	slices.SortFunc(all, func(a, b agent) int { return cmp.Compare(a.Node, b.Node) })
	return all, nil
}

// modeOf returns which kinds of policies a container stages: as its last argument about it says, else as the variable
// does.
func modeOf(c *corev1.Container) (mode staged.Mode, known bool) {
	if value, given := argument(slices.Concat(c.Command, c.Args)); given {
		return parse(value)
	}
	for i := range c.Env {
		if e := &c.Env[i]; e.Name == cli.Variable(flag) {
			return parse(e.Value) // it is empty if it comes from elsewhere
		}
	}
	return staged.Off, len(c.EnvFrom) == 0
}

func parse(value string) (mode staged.Mode, known bool) {
	mode = staged.Mode(value)
	return mode, slices.Contains(staged.Modes[:], mode)
}

// argument returns the value that the last of some arguments gives to the flag.
func argument(words []string) (value string, given bool) {
	for i, word := range words {
		switch text, is := strings.CutPrefix(word, "--"+flag+"="); {
		case is:
			value, given = text, true
		case word == "--"+flag && i+1 < len(words):
			value, given = words[i+1], true
		}
	}
	return value, given
}
