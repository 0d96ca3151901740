package input

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/weave-npc/weave-npc/test/fixture"
)

// pod returns a pod of weave-npc on a node of its own name, whose container has some fields.
func pod(t *testing.T, name, phase, fields string) *corev1.Pod {
	t.Helper()
	text := fmt.Sprintf(`{metadata: {namespace: kube-system, name: %[1]s, labels: {network-policy-controller: weave-npc}}, status: {phase: %[2]s},
		spec: {nodeName: %[1]s, containers: [{name: other, args: [--staged=all]}, {name: weave-npc%[3]s}]}}`, name, phase, fields)
	return fixture.Object[corev1.Pod](t, text)
}

// TestS102_HowNodesRun is read from the arguments and variables of the containers.
func TestS102_HowNodesRun(t *testing.T) {
	for _, c := range []struct{ name, fields, want string }{
		{"nothing", "", "off true"},
		{"other-arguments", ", args: [--forward-jump=false, --record-flows]", "off true"},
		{"one-word", ", args: [--staged=namespaces]", "namespaces true"},
		{"two-words", ", args: [--staged, all, --forward-jump=false]", "all true"},
		{"command", ", command: [/weave-npc, --staged=all]", "all true"},
		{"the-last-one-counts", ", command: [/weave-npc, --staged=all], args: [--staged=off]", "off true"},
		{"variable", ", env: [{name: WEAVE_NPC_FORWARD_JUMP, value: none}, {name: WEAVE_NPC_STAGED, value: all}]", "all true"},
		{"argument-before-variable", ", args: [--staged=off], env: [{name: WEAVE_NPC_STAGED, value: all}]", "off true"},
		{"from-elsewhere", ", env: [{name: WEAVE_NPC_STAGED, valueFrom: {configMapKeyRef: {name: c, key: k}}}]", " false"},
		{"all-from-elsewhere", ", envFrom: [{configMapRef: {name: c}}]", "off false"},
		{"argument-before-elsewhere", ", args: [--staged=all], envFrom: [{configMapRef: {name: c}}]", "all true"},
		{"refers-to-a-variable", ", args: [--staged=$(MODE)]", "$(MODE) false"},
		{"without-a-value", ", args: [--staged]", "off true"},
	} {
		t.Run(c.name, func(t *testing.T) {
			all, err := listAgents(t.Context(), fake.NewClientset(pod(t, c.name, "Running", c.fields)))
			if err != nil || len(all) != 1 {
				t.Fatalf("%v, %v", all, err)
			}
			if got := fmt.Sprint(string(all[0].Staged), " ", all[0].Known); got != c.want || all[0].Node != c.name {
				t.Errorf("%s on %s, want %s", got, all[0].Node, c.want)
			}
		})
	}
}

// TestPodsOfWeaveNPC are those with its label that run, in order of their nodes.
func TestPodsOfWeaveNPC(t *testing.T) {
	unknown := pod(t, "a", "Running", "")
	unknown.Labels = nil
	client := fake.NewClientset(pod(t, "c", "Running", ""), pod(t, "b", "Running", ""), pod(t, "d", "Pending", ""), unknown)
	all, err := listAgents(t.Context(), client)
	if got := fmt.Sprint(all); err != nil || got != "[{b off true false} {c off true false}]" {
		t.Errorf("%s, %v", got, err)
	}
	client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("forbidden") })
	if _, err := listAgents(t.Context(), client); err == nil || !strings.Contains(err.Error(), "listing the pods of weave-npc: forbidden") {
		t.Errorf("%v", err)
	}
}

// TestNodesWithLegacyNetpol are those whose arguments or variables say so.
func TestNodesWithLegacyNetpol(t *testing.T) {
	for fields, want := range map[string]bool{
		"":                                    false,
		", args: [--use-legacy-netpol]":       true,
		", args: [--use-legacy-netpol=false]": false,
		", args: [--use-legacy-netpol, --staged=all]":                   true,
		", env: [{name: WEAVE_NPC_USE_LEGACY_NETPOL, value: \"true\"}]": true,
	} {
		all, err := listAgents(t.Context(), fake.NewClientset(pod(t, "n1", "Running", fields)))
		if err != nil || len(all) != 1 || all[0].Legacy != want {
			t.Errorf("%q: %v, %v, want %v", fields, all, err, want)
		}
	}
}
