package refmodel_test

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/test/refmodel"
)

// verdict says what a packet gets at its source and at its destination.
type verdict string

const (
	passes    verdict = "let out and in"
	notIn     verdict = "let out and not in"
	notOut    verdict = "in, but not let out"
	isDenied  verdict = "neither let out nor in"
	webDBTCP          = "web>db tcp/80"
	dbWebTCP          = "db>web tcp/80"
	monWebTCP         = "mon>web tcp/80"
)

// scenario is a cluster of shop's pods web and db on node1 and ops' pod mon on node2, and what packets get there.
type scenario struct {
	name string
	// cluster has cluster policies, name -> spec, and policies has v1 policies, namespace/name -> spec, as YAML.
	cluster, policies string
	// want has packets as "FROM>TO PROTOCOL/PORT". An end is a pod, a node, "outside", or one of these with a 6 for its
	// IPv6 address. A pod that reaches itself "through a Service" says so behind.
	want map[string]verdict
}

// fromAll and toAll are the peers of scenarios about something else: all pods.
const (
	fromAll = `from: [{namespaces: {}}]`
	toAll   = `to: [{namespaces: {}}]`
)

func run(t *testing.T, scenarios []scenario) {
	t.Helper()
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			w := harness(t, s.cluster, s.policies)
			for _, order := range []string{"as named", "in reverse"} {
				for text, want := range s.want {
					if got := ask(t, w, text); got != want {
						t.Errorf("objects %s: %s is %s; must be %s", order, text, got, want)
					}
				}
				slices.Reverse(w.ClusterPolicies)
				slices.Reverse(w.Policies)
			}
		})
	}
}

// addresses has the ends of packets.
var addresses = map[string]string{
	"web": "10.32.1.2", "web6": "fd32:1::2", "db": "10.32.1.3", "db6": "fd32:1::3", "mon": "10.32.2.2", "mon6": "fd32:2::2",
	"node1": "172.31.0.1", "node16": "fd31::1", "also1": "192.168.7.1", "node2": "172.31.0.2", "node26": "fd31::2",
	"outside": "198.51.100.7", "outside6": "2001:db8::7",
}

// harness returns the cluster of all scenarios with policies.
func harness(t *testing.T, cluster, policies string) refmodel.State {
	t.Helper()
	addrs := func(names ...string) (all []netip.Addr) {
		for _, name := range names {
			all = append(all, netip.MustParseAddr(addresses[name]))
		}
		return all
	}
	port := func(name string, number int32, protocol corev1.Protocol) corev1.ContainerPort {
		return corev1.ContainerPort{Name: name, ContainerPort: number, Protocol: protocol}
	}
	w := refmodel.State{
		Namespaces: map[string]map[string]string{"shop": {"team": "a"}, "ops": {"team": "b", "zone": "z"}},
		Pods: []refmodel.Pod{
			{Namespace: "shop", Name: "web", Node: "node1", Labels: map[string]string{"app": "web"}, Addrs: addrs("web", "web6"),
				Ports: []corev1.ContainerPort{port("http", 80, corev1.ProtocolTCP), port("dns", 53, corev1.ProtocolUDP)}},
			{Namespace: "shop", Name: "db", Node: "node1", Labels: map[string]string{"app": "db"}, Addrs: addrs("db", "db6"),
				Ports: []corev1.ContainerPort{port("http", 8080, corev1.ProtocolTCP)}},
			{Namespace: "ops", Name: "mon", Node: "node2", Labels: map[string]string{"app": "mon"}, Addrs: addrs("mon", "mon6")},
		},
		Nodes: []refmodel.Node{
			{Name: "node1", Labels: map[string]string{"role": "edge"}, Addrs: addrs("node1", "node16", "also1")},
			{Name: "node2", Addrs: addrs("node2", "node26")},
		},
	}
	clusterSpecs, specs := map[string]v1alpha2.ClusterNetworkPolicySpec{}, map[string]networkingv1.NetworkPolicySpec{}
	for text, into := range map[string]any{cluster: &clusterSpecs, policies: &specs} {
		if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(clusterSpecs)) {
		p := v1alpha2.ClusterNetworkPolicy{Spec: clusterSpecs[name]}
		p.Name = name
		w.ClusterPolicies = append(w.ClusterPolicies, p)
	}
	for _, key := range slices.Sorted(maps.Keys(specs)) {
		p := networkingv1.NetworkPolicy{Spec: specs[key]}
		p.Namespace, p.Name, _ = strings.Cut(key, "/")
		w.Policies = append(w.Policies, p)
	}
	return w
}

// ask evaluates a packet as scenario.want has it.
func ask(t *testing.T, w refmodel.State, text string) verdict {
	t.Helper()
	ends, service, _ := strings.Cut(text, " ")
	service, through := strings.CutSuffix(service, " through a Service")
	from, to, ok := strings.Cut(ends, ">")
	protocol, number, _ := strings.Cut(service, "/")
	if number == "" {
		number = "0"
	}
	port, err := strconv.Atoi(number)
	if !ok || protocol == "" || err != nil || addresses[from] == "" || addresses[to] == "" {
		t.Fatalf("%q is no packet", text)
	}
	out, in := w.Evaluate(refmodel.Everywhere, refmodel.Packet{Src: netip.MustParseAddr(addresses[from]), Dst: netip.MustParseAddr(addresses[to]),
		Protocol: corev1.Protocol(strings.ToUpper(protocol)), Port: int32(port), ThroughService: through})
	return map[[2]bool]verdict{{true, true}: passes, {true, false}: notIn, {false, true}: notOut, {false, false}: isDenied}[[2]bool{out, in}]
}
