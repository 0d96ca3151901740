package service_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/service"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// network has two pods of a Service whose port has another number on each, and a node.
func network(t *testing.T, change func(*snapshot.Network)) *service.Network {
	w := cluster.New()
	w.SetPod(fixture.Pod("shop/old node1@172.31.0.1 10.32.1.2 app=web http:8080"))
	w.SetPod(fixture.Pod("shop/new node1@172.31.0.1 10.32.1.3 app=web http:9090"))
	w.SetNode(npc.Node{Name: "node1", Addrs: []netip.Addr{netip.MustParseAddr("172.31.0.1")}})
	n := snapshot.Network{Services: []*corev1.Service{fixture.Object[corev1.Service](t, `{metadata: {namespace: shop, name: web},
		spec: {clusterIP: 10.96.0.10, selector: {app: web}, ports: [{port: 80, targetPort: http, nodePort: 30080}]}}`)}}
	change(&n)
	return service.New(w.View(), n)
}

// TestEndpoints shows which pods and ports a Service leads to, by its selector and by its slices.
func TestEndpoints(t *testing.T) {
	slice := func(text string) func(*snapshot.Network) {
		return func(n *snapshot.Network) {
			n.Slices = append(n.Slices, fixture.Object[discoveryv1.EndpointSlice](t, text))
		}
	}
	service := func(text string) func(*snapshot.Network) {
		return func(n *snapshot.Network) { n.Services = append(n.Services, fixture.Object[corev1.Service](t, text)) }
	}
	const dns = `{metadata: {namespace: shop, name: dns}, spec: {clusterIP: 10.96.0.11, selector: {app: web},
		ports: [{port: 53, targetPort: 5353, name: dns}, {port: 53, protocol: UDP, name: dns-udp}]}}`
	const public = `{metadata: {namespace: shop, name: public}, spec: {clusterIP: 10.96.0.14, externalIPs: [192.0.2.80], selector: {app: web},
		ports: [{port: 80, targetPort: http}]}, status: {loadBalancer: {ingress: [{hostname: example.org}, {ip: 192.0.2.81}]}}}`
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
		{"at_a_node_by_its_name", "node/node1", "30080", func(*snapshot.Network) {}, "shop/new tcp/9090, shop/old tcp/8080"},
		{"at_a_node_by_its_name_that_answers_itself", "node/node1", "22", func(*snapshot.Network) {}, "none"},
		{"at_a_node_that_there_is_not", "node/node2", "30080", func(*snapshot.Network) {}, "none"},
		{"at_a_node_that_answers_itself", "172.31.0.1", "22", func(*snapshot.Network) {}, "none"},
		{"a_pod", "10.32.1.2", "80", func(*snapshot.Network) {}, "none"},
		{"a_name_as_kubectl_writes_it", "svc/shop/web", "80", func(*snapshot.Network) {}, "shop/new tcp/9090, shop/old tcp/8080"},
		{"a_name_as_DNS_has_it", "svc/web.shop.svc.cluster.local", "80", func(*snapshot.Network) {}, "shop/new tcp/9090, shop/old tcp/8080"},
		{"its_only_port", "svc/web.shop", "", func(*snapshot.Network) {}, "shop/new tcp/9090, shop/old tcp/8080"},
		{"its_only_port_which_has_a_name", "svc/six.shop", "", service(`{metadata: {namespace: shop, name: six},
			spec: {clusterIP: 10.96.0.6, selector: {app: web}, ports: [{port: 80, name: web}]}}`), "shop/new tcp/80, shop/old tcp/80"},
		{"none_of_its_pods", "svc/job.shop", "80", service(`{metadata: {namespace: shop, name: job},
			spec: {clusterIP: 10.96.0.7, selector: {app: job}, ports: [{port: 80}]}}`),
			"Service shop/job has no endpoints for port tcp/80: no running pod of its namespace has app=job"},
		{"the_name_of_a_pod", "shop/old", "80", func(*snapshot.Network) {}, "none"},
		{"at_a_node_by_the_name_of_a_port", "172.31.0.1", "http", func(*snapshot.Network) {}, "none"},
		{"a_port_that_it_does_not_have", "10.96.0.10", "81", func(*snapshot.Network) {}, `Service shop/web has no port "81"; it has tcp/80`},
		{"no_ports_at_all", "10.96.0.10", "icmp", func(*snapshot.Network) {}, "Service shop/web passes on ports, not icmp; ask about its pods"},
		{"a_service_that_there_is_not", "svc/wbe.shop", "80", func(*snapshot.Network) {},
			"there is no Service wbe in namespace shop; did you mean web?"},
		{"in_another_namespace", "svc/web.default", "80", func(*snapshot.Network) {},
			"there is no Service web in namespace default; did you mean svc/web.shop?"},
		{"a_namespace_that_there_is_not", "svc/none.shpo", "80", func(*snapshot.Network) {}, "there is no namespace shpo; did you mean shop?"},
		{"a_port_by_name", "svc/dns.shop", "DNS", service(dns), "shop/new tcp/5353, shop/old tcp/5353"},
		{"a_port_by_protocol_and_name", "svc/dns.shop", "udp/dns-udp", service(dns), "shop/new udp/53, shop/old udp/53"},
		{"a_port_of_another_protocol_by_name", "svc/dns.shop", "tcp/dns-udp", service(dns),
			`Service shop/dns has no port "tcp/dns-udp"; it has tcp/53 (dns), udp/53 (dns-udp)`},
		{"one_of_several_ports", "svc/dns.shop", "", service(dns), `the port of Service shop/dns is missing; it has tcp/53 (dns), udp/53 (dns-udp)`},
		{"headless_by_a_number_it_does_not_have", "svc/all.shop", "tcp/9999", service(`{metadata: {namespace: shop, name: all},
			spec: {clusterIP: None, selector: {app: web}, ports: [{port: 80, targetPort: http, name: web}]}}`), "shop/new tcp/9999, shop/old tcp/9999"},
		{"headless_by_the_name_of_a_port", "svc/all.shop", "web", service(`{metadata: {namespace: shop, name: all},
			spec: {clusterIP: None, selector: {app: web}, ports: [{port: 80, targetPort: http, name: web}]}}`), "shop/new tcp/9090, shop/old tcp/8080"},
		{"another_name_by_DNS", "svc/out.shop", "80", service(`{metadata: {namespace: shop, name: out},
			spec: {type: ExternalName, externalName: example.org}}`), "Service shop/out is another name for example.org, by DNS: ask about its address"},
		{"an_external_address", "192.0.2.80", "80", service(public), "shop/new tcp/9090, shop/old tcp/8080"},
		{"a_load_balancer", "192.0.2.81", "80", service(public), "shop/new tcp/9090, shop/old tcp/8080"},
		{"of_one_family", "svc/six.shop", "80", service(`{metadata: {namespace: shop, name: six},
			spec: {clusterIPs: ["fd96::6"], ipFamilies: [IPv6], selector: {app: web}, ports: [{port: 80}]}}`),
			"Service shop/six has no endpoints for port tcp/80: nothing answers"},
		{"by_its_address_of_IPv6", "fd96::6", "80", service(`{metadata: {namespace: shop, name: six},
			spec: {clusterIPs: [10.96.0.6, "fd96::6"], selector: {app: web}, ports: [{port: 80}]}}`),
			"Service shop/six has no endpoints for port tcp/80: nothing answers"},
		{"slices_with_several_ports", "svc/dns.shop", "tcp/53", func(n *snapshot.Network) {
			service(dns)(n)
			slice(`{metadata: {namespace: shop, name: dns-1, labels: {kubernetes.io/service-name: dns}}, addressType: IPv4,
				ports: [{name: dns-udp, port: 53, protocol: UDP}, {name: none}, {name: dns, port: 5353}],
				endpoints: [{addresses: [10.32.1.2, mistyped]}, {addresses: [10.32.1.2]}, {addresses: [10.32.1.1]}]}`)(n)
		}, "10.32.1.1 tcp/5353, 10.32.1.2 tcp/5353"},
		{"slices_without_ports", "svc/old.shop", "80", func(n *snapshot.Network) {
			service(`{metadata: {namespace: shop, name: old}, spec: {clusterIP: 10.96.0.12, ports: [{port: 80, targetPort: 8081}]}}`)(n)
			slice(`{metadata: {namespace: shop, name: old-1, labels: {kubernetes.io/service-name: old}}, addressType: IPv4, ports: [],
				endpoints: [{addresses: [10.32.1.9]}]}`)(n)
		}, "10.32.1.9 tcp/8081"},
		{"pods_without_the_port", "svc/grpc.shop", "80", service(`{metadata: {namespace: shop, name: grpc},
			spec: {clusterIP: 10.96.0.13, selector: {app: web}, ports: [{port: 80, targetPort: grpc}]}}`),
			"Service shop/grpc has no endpoints for port tcp/80: no pod that it selects has a tcp port of the name grpc"},
		{"services_that_cannot_be_read", "svc/db.shop", "80", func(n *snapshot.Network) {
			*n = snapshot.Network{Unreadable: []string{"services cannot be listed: forbidden"}}
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
		n.Nodes = append(n.Nodes, fixture.Object[corev1.Node](t, `{metadata: {name: node1}, spec: {podCIDRs: [10.32.0.0/16, "fd32::/64"]},
			status: {addresses: [{type: InternalIP, address: 10.32.0.1}, {type: Hostname, address: node1}]}}`))
	})
	for addr, want := range map[string]string{
		"10.32.1.2": "", "10.32.0.1": "", "172.31.0.1": "", "10.96.0.10": "", "192.0.2.1": "", "224.0.0.1": "", "10.33.0.1": "", "10.97.0.1": "",
		"10.32.9.9": "in the range of pods, 10.32.0.0/16", "fd32::9": "in the range of pods, fd32::/64",
		"127.0.0.53": "a loopback address, whose packets do not leave a pod or node", "::1": "pod or node",
		"0.0.0.0": "which no packet on a network has", "::": "which no packet on a network has",
		"255.255.255.255": "the broadcast address, whose packets no node passes on",
		"fe80::1":         "a link-local address, whose packets no node passes on", "169.254.169.254": "",
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

// TestTargetsAsText shows what operators read about a Service, and which flows it leads to.
func TestTargetsAsText(t *testing.T) {
	x := network(t, func(n *snapshot.Network) {
		n.Services = append(n.Services, fixture.Object[corev1.Service](t, `{metadata: {namespace: shop, name: all},
			spec: {clusterIP: None, selector: {app: web}, ports: [{port: 80}]}}`),
			fixture.Object[corev1.Service](t, `{metadata: {namespace: shop, name: db}, spec: {clusterIPs: [10.96.0.20], ports: [{port: 5432}]}}`))
		n.Slices = append(n.Slices, fixture.Object[discoveryv1.EndpointSlice](t, `{metadata: {namespace: shop, name: db-4,
			labels: {kubernetes.io/service-name: db}}, addressType: IPv4, ports: [{name: "", port: 5432}], endpoints: [{addresses: [192.0.2.5]}]}`),
			fixture.Object[discoveryv1.EndpointSlice](t, `{metadata: {namespace: shop, name: db-6,
			labels: {kubernetes.io/service-name: db}}, addressType: IPv6, ports: [{name: "", port: 5432}], endpoints: [{addresses: ["2001:db8::5"]}]}`))
	})
	from := []flow.End{{Pod: "shop/old", Addr: netip.MustParseAddr("10.32.1.2")}}
	for _, c := range []struct{ to, port, text, flows string }{
		{"10.96.0.10", "80", "a cluster IP of Service shop/web: 2 endpoints at tcp/8080, tcp/9090\n",
			"shop/new (10.32.1.3) tcp/9090, shop/old (10.32.1.2) tcp/8080"},
		{"172.31.0.1", "30080", "a node's address, where tcp/30080 is port tcp/80 of Service shop/web: 2 endpoints at tcp/8080, tcp/9090\n" +
			"  a node that passes the connection on may put its own address in place of the source's\n",
			"shop/new (10.32.1.3) tcp/9090, shop/old (10.32.1.2) tcp/8080"},
		{"svc/all.shop", "80", "the name of Service shop/all: 2 endpoints at tcp/80\n" +
			"  the Service is headless: its name leads to its pods, and ports stay as they are\n",
			"shop/new (10.32.1.3) tcp/80, shop/old (10.32.1.2) tcp/80"},
		{"svc/db.shop", "5432", "the name of Service shop/db: 2 endpoints at tcp/5432\n", "192.0.2.5 tcp/5432"},
		{"10.96.0.20", "5432", "a cluster IP of Service shop/db: 1 endpoint at tcp/5432\n", "192.0.2.5 tcp/5432"},
	} {
		target, err := x.Find(c.to, c.port)
		if err != nil {
			t.Fatal(err)
		}
		if got := target.String(); got != c.text {
			t.Errorf("%s: %q\nwant %q", c.to, got, c.text)
		}
		var flows []string
		for _, group := range target.Flows(from) {
			for _, f := range group {
				flows = append(flows, f.To.String()+" "+f.Service.String())
			}
		}
		if got := strings.Join(flows, ", "); got != c.flows {
			t.Errorf("%s: leads to %s\nwant %s", c.to, got, c.flows)
		}
	}
	for a, want := range map[string]string{"10.96.0.10": "a cluster IP of Service shop/web", "10.32.1.2": "", "192.0.2.5": ""} {
		if got := x.Name(netip.MustParseAddr(a)); got != want {
			t.Errorf("%s is %q, not %q", a, got, want)
		}
	}
	if got := x.Name(netip.Addr{}); got != "" {
		t.Errorf("no address is %q", got)
	}
}

// TestFamiliesOfOneEndpoint shows that the flows to the addresses of one pod are together.
func TestFamiliesOfOneEndpoint(t *testing.T) {
	end := func(pod, a string) flow.End { return flow.End{Pod: pod, Addr: netip.MustParseAddr(a)} }
	web := flow.Service{Protocol: 6, Port: 80}
	target := service.Target{Endpoints: []service.Endpoint{{End: end("shop/a", "10.32.1.2"), Service: web},
		{End: end("shop/a", "fd32::2"), Service: web}, {End: end("shop/b", "10.32.1.3"), Service: web}}}
	var got []string
	for _, group := range target.Flows([]flow.End{end("shop/c", "10.32.1.4"), end("shop/c", "fd32::4")}) {
		got = append(got, fmt.Sprintf("%s: %d", group[0].To.Pod, len(group)))
	}
	if text := strings.Join(got, ", "); text != "shop/a: 2, shop/b: 1" {
		t.Errorf("the flows to each endpoint: %s", text)
	}
}

// TestRangesOfServices shows how far the range of the Services is taken to reach, by their addresses.
func TestRangesOfServices(t *testing.T) {
	for _, c := range []struct{ name, ips, asked, want string }{
		{"two_near_each_other", `[10.96.0.10], [10.96.7.1]`, "10.96.5.5", "in the range of Services, 10.96.0.0/21"},
		{"two_of_nothing_in_common", `[10.96.0.10], [200.0.0.1]`, "10.96.0.11", ""},
		{"of_IPv6", `["fd96::1"], ["fd96::2"]`, "fd96::9", "in the range of Services, fd96::/64"},
	} {
		x := network(t, func(n *snapshot.Network) {
			n.Services = nil
			for i, ips := range strings.Split(c.ips, ", ") {
				n.Services = append(n.Services, fixture.Object[corev1.Service](t, fmt.Sprintf(`{metadata: {namespace: shop, name: s%d}, spec: {clusterIPs: %s}}`, i, ips)))
			}
		})
		if got := x.Doubt(netip.MustParseAddr(c.asked)); (got == "") != (c.want == "") || !strings.HasSuffix(got, c.want) {
			t.Errorf("%s: %q, not %q", c.name, got, c.want)
		}
	}
}

// TestAllPortsOfAService are asked about if none is given.
func TestAllPortsOfAService(t *testing.T) {
	x := network(t, func(n *snapshot.Network) {
		for _, text := range []string{`{metadata: {namespace: shop, name: two}, spec: {clusterIP: 10.96.0.12, selector: {app: web},
			ports: [{port: 80, targetPort: http, name: a}, {port: 53, protocol: UDP, name: b}]}}`,
			`{metadata: {namespace: shop, name: none}, spec: {clusterIP: None, selector: {app: web}}}`,
			`{metadata: {namespace: shop, name: other}, spec: {type: ExternalName, externalName: example.org}}`} {
			n.Services = append(n.Services, fixture.Object[corev1.Service](t, text))
		}
	})
	for _, c := range []struct{ text, port, want string }{
		{"svc/two.shop", "", "shop/new tcp/9090, shop/old tcp/8080, shop/new udp/53, shop/old udp/53"},
		{"10.96.0.12", "", "shop/new tcp/9090, shop/old tcp/8080, shop/new udp/53, shop/old udp/53"},
		{"svc/two.shop", "udp/53", "shop/new udp/53, shop/old udp/53"},
		{"svc/web.shop", "", "shop/new tcp/9090, shop/old tcp/8080"},
		{"svc/none.shop", "", "Service shop/none has no port: give the one to ask about"},
		{"svc/none.shop", "tcp/9", "shop/new tcp/9, shop/old tcp/9"},
		{"svc/other.shop", "", "is another name for example.org"},
		{"svc/gone.shop", "", "there is no Service gone in namespace shop"},
		{"10.32.1.2", "", ""},
	} {
		targets, err := x.FindAll(c.text, c.port)
		var got []string
		for _, t := range targets {
			for _, e := range t.Endpoints {
				got = append(got, e.Pod+" "+e.Service.String())
			}
		}
		if text := strings.Join(got, ", "); err == nil && text != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %s, %v", c.text, c.port, text, err)
		}
	}
}
