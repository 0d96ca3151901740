package services_test

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/services"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

func object[T any](t *testing.T, text string) *T {
	t.Helper()
	o := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
		t.Fatal(err)
	}
	return o
}

// network has two pods of a Service whose port has another number on each, and a node.
func network(t *testing.T, change func(*snapshot.Network)) *services.Network {
	w := cluster.New()
	for i, port := range []uint16{8080, 9090} {
		w.SetPod(npc.Pod{Namespace: "shop", Name: []string{"old", "new"}[i], Labels: map[string]string{"app": "web"},
			Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 32, 1, byte(i + 2)})}, Ports: []npc.NamedPort{{Name: "http", Protocol: 6, Port: port}},
			HostAddrs: []netip.Addr{netip.MustParseAddr("172.31.0.1")}})
	}
	n := snapshot.Network{Services: []*corev1.Service{object[corev1.Service](t, `{metadata: {namespace: shop, name: web},
		spec: {clusterIP: 10.96.0.10, selector: {app: web}, ports: [{port: 80, targetPort: http, nodePort: 30080}]}}`)}}
	change(&n)
	return services.New(w.View(), n)
}

// TestEndpoints shows which pods and ports a Service leads to, by its selector and by its slices.
func TestEndpoints(t *testing.T) {
	slice := func(text string) func(*snapshot.Network) {
		return func(n *snapshot.Network) {
			n.Slices = append(n.Slices, object[discoveryv1.EndpointSlice](t, text))
		}
	}
	const head = `metadata: {namespace: shop, name: web-1, labels: {kubernetes.io/service-name: web}}, addressType: `
	for _, c := range []struct {
		name, to, port string
		change         func(*snapshot.Network)
		want           string // endpoints, or an error
	}{
		{"by_selector_with_each_pods_port", "10.96.0.10", "80", func(*snapshot.Network) {}, "shop/new tcp/9090, shop/old tcp/8080"},
		{"by_slices", "svc/web.shop", "80", slice(`{` + head + `IPv4, ports: [{name: "", port: 8080}],
			endpoints: [{addresses: [10.32.1.2], targetRef: {kind: Pod, namespace: shop, name: old}}]}`), "shop/old tcp/8080"},
		{"not_ready", "10.96.0.10", "80", slice(`{` + head + `IPv4, ports: [{name: "", port: 8080}],
			endpoints: [{addresses: [10.32.1.2], conditions: {ready: false}}, {addresses: [10.32.1.9]}]}`), "10.32.1.9 tcp/8080"},
		{"of_the_other_family", "10.96.0.10", "80", slice(`{` + head + `IPv6, ports: [{name: "", port: 8080}],
			endpoints: [{addresses: ["fd32::2"]}]}`), "Service shop/web has no endpoints for port tcp/80: nothing answers"},
		{"of_another_pod_now", "10.96.0.10", "80", slice(`{` + head + `IPv4, ports: [{name: "", port: 8080}],
			endpoints: [{addresses: [10.32.1.9], targetRef: {kind: Pod, namespace: shop, name: old}}]}`), "10.32.1.9 tcp/8080"},
		{"at_a_node", "172.31.0.1", "30080", func(*snapshot.Network) {}, "shop/new tcp/9090, shop/old tcp/8080"},
		{"at_a_node_that_answers_itself", "172.31.0.1", "22", func(*snapshot.Network) {}, "none"},
		{"a_pod", "10.32.1.2", "80", func(*snapshot.Network) {}, "none"},
		{"services_that_cannot_be_read", "svc/db.shop", "80", func(n *snapshot.Network) {
			*n = snapshot.Network{Unread: []string{"services cannot be listed: forbidden"}}
		}, "Service shop/db is not known: services cannot be listed: forbidden"},
	} {
		t.Run(c.name, func(t *testing.T) {
			target, err := network(t, c.change).Find(c.to, c.port)
			got := "none"
			if err != nil {
				got = err.Error()
			} else if target != nil {
				var words []string
				for _, e := range target.Endpoints {
					name := e.Pod
					if name == "" {
						name = e.Addr.String()
					}
					words = append(words, name+" "+e.Service.String())
				}
				got = strings.Join(words, ", ")
			}
			if got != c.want {
				t.Errorf("leads to %s, not %s", got, c.want)
			}
		})
	}
}

// TestDoubt shows which addresses are taken for mistyped ones.
func TestDoubt(t *testing.T) {
	x := network(t, func(n *snapshot.Network) {
		n.Nodes = append(n.Nodes, object[corev1.Node](t, `{metadata: {name: node1}, spec: {podCIDRs: [10.32.0.0/16, "fd32::/64"]},
			status: {addresses: [{type: InternalIP, address: 10.32.0.1}, {type: Hostname, address: node1}]}}`))
	})
	for addr, want := range map[string]string{
		"10.32.1.2": "", "10.32.0.1": "", "172.31.0.1": "", "10.96.0.10": "", "192.0.2.1": "", "224.0.0.1": "", "10.33.0.1": "", "10.97.0.1": "",
		"10.32.9.9": "in the range of pods, 10.32.0.0/16", "fd32::9": "in the range of pods, fd32::/64",
		"10.96.0.11": "in the range of Services, 10.96.0.0/24",
	} {
		got := x.Doubt(netip.MustParseAddr(addr))
		if (want == "") != (got == "") || !strings.HasSuffix(got, want) {
			t.Errorf("%s: %q, not %q", addr, got, want)
		}
	}
	without := network(t, func(n *snapshot.Network) { n.Services = nil })
	if got := without.Doubt(netip.MustParseAddr("10.32.1.77")); !strings.HasSuffix(got, "pods, 10.32.1.0/24") {
		t.Errorf("without nodes: %q", got)
	}
}
