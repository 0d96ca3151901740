package synthetic_test

import (
	"fmt"

	"github.com/weave-npc/weave-npc/test/synthetic"
)

func ExampleCluster() {
	c := synthetic.Cluster{Pods: 1_000, Namespaces: 100, Policies: 100, Local: 110}
	fmt.Println(c)
	for _, i := range []int{0, 999, 1_000, 1_109} {
		p := c.Pod(i)
		fmt.Println(p.Node, p.Namespace, p.Name, p.Addrs[0], p.Labels["app"])
	}
	p := c.Policy(1)
	fmt.Println(p.Namespace, p.Name, p.Spec.PodSelector.MatchLabels, p.Spec.PolicyTypes)
	// Output:
	// pods=1000/namespaces=100/policies=100/local=110
	// node-0 ns-0000 pod-000000 10.64.0.0 app-0
	// node-9 ns-0099 pod-000999 10.64.3.231 app-9
	// node1 ns-0000 pod-001000 10.32.1.2 app-0
	// node1 ns-0009 pod-001109 10.32.1.111 app-1
	// ns-0001 np-00001 map[app:app-0] [Ingress Egress]
}
