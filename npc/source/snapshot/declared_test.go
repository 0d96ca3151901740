package snapshot

import (
	"fmt"
	"strings"
	"testing"
)

// TestPodsWithoutAStatus get addresses after those of workloads, and where they replace pods, the address and the node
// of these.
func TestPodsWithoutAStatus(t *testing.T) {
	const bare = "---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {%s}%s}\n"
	for _, c := range []struct{ name, before, after, want string }{
		{"bare", "", fmt.Sprintf(bare, "", ""), "a 10.254.0.1"},
		{"with_a_workload", "", fmt.Sprintf(bare, "", "") + "---\n" + deployment, "a 10.254.0.2, web 10.254.0.1"},
		{"that_waits", "", fmt.Sprintf(bare, "", ", status: {phase: Pending}"), "a"},
		{"with_an_address", "", fmt.Sprintf(bare, "", ", status: {podIP: 10.1.0.1}"), "a 10.1.0.1"},
		{"on_the_network_of_its_node", "", fmt.Sprintf(bare, "hostNetwork: true", ""), "a"},
		{"over_itself", fmt.Sprintf(bare, "nodeName: node1", ", status: {podIP: 10.1.0.1}"), fmt.Sprintf(bare, "", ""), "a 10.1.0.1 on node1"},
		{"over_one_without", fmt.Sprintf(bare, "nodeName: node1", ""), fmt.Sprintf(bare, "nodeName: node2", ""), "a 10.254.0.1 on node2"},
		{"with_another_status", fmt.Sprintf(bare, "", ", status: {podIP: 10.1.0.1}"), fmt.Sprintf(bare, "", ", status: {podIP: 10.1.0.2}"), "a 10.1.0.2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var states [2]Declared
			for i, text := range []string{c.before, c.after} {
				var err error
				if states[i], err = OfFiles("d", []File{{"d/m.yaml", []byte(text)}}).Declared(); err != nil {
					t.Fatal(err)
				}
			}
			d := states[1].Over(states[0])
			for range 2 { // the first leaves nothing behind
				var got []string
				for _, p := range d.Made().Pods {
					line := strings.TrimSpace(p.Name + " " + p.Status.PodIP)
					if p.Spec.NodeName != "" {
						line += " on " + p.Spec.NodeName
					}
					got = append(got, line)
				}
				if got := strings.Join(got, ", "); got != c.want {
					t.Errorf("%s, want %s", got, c.want)
				}
			}
		})
	}
}
