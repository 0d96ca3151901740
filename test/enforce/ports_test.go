package enforce

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// portCases show what the ports of a rule open.
func portCases() []testCase {
	const closed = "-*>web"
	ingress := func(ports string) change {
		return policy("shop/p", "podSelector: {matchLabels: {app: web}}\ningress:\n- ports: "+ports)
	}
	return []testCase{
		{name: "S40_no_protocol_is_tcp_and_no_port_is_all_ports", steps: []step{
			{do: ingress(`[{port: 80}]`), want: wants{"tcp 80": "", "tcp 81": closed, "udp 80": closed, "sctp 80": closed,
				"icmp": closed}},
			{about: "no port", do: ingress(`[{protocol: UDP}]`), want: wants{"udp 53": "", "udp 9": "", "tcp 53": closed,
				"sctp 53": closed, "icmp": closed}},
			{about: "neither", do: ingress(`[{}]`), want: wants{"tcp 53": "", "tcp 9": "", "udp 53": closed, "icmp": closed}},
			{about: "SCTP", do: ingress(`[{protocol: SCTP}]`), want: wants{"sctp 80": "", "tcp 80": closed, "udp 53": closed}},
		}},
		{name: "S41_sctp_and_udp_open_no_tcp", steps: []step{
			{do: ingress(`[{protocol: SCTP, port: 80}]`), want: wants{"sctp 80": "", "sctp 81": closed, "tcp 80": closed,
				"udp 80": closed, "icmp": closed}},
			{do: ingress(`[{protocol: UDP, port: 80}]`), want: wants{"udp 80": "", "udp 81": closed, "tcp 80": closed,
				"sctp 80": closed, "icmp": closed}},
		}},
		{name: "S43_end_port_is_inclusive", steps: []step{
			{do: ingress(`[{port: 81, endPort: 83}]`), want: wants{"tcp 80": closed, "tcp 81": "", "tcp 82": "", "tcp 83": "",
				"tcp 84": closed, "udp 82": closed}},
			{about: "equal", do: ingress(`[{port: 81, endPort: 81}]`),
				want: wants{"tcp 80": closed, "tcp 81": "", "tcp 82": closed}},
			{about: "everything", do: ingress(`[{port: 1, endPort: 65535}]`), want: wants{"tcp 1": "", "tcp 65535": "",
				"udp 53": closed, "icmp": closed}},
			{about: "UDP and SCTP", do: ingress(`
  - {protocol: UDP, port: 53, endPort: 54}
  - {protocol: SCTP, port: 79, endPort: 80}`),
				want: wants{"udp 52": closed, "udp 53": "", "udp 54": "", "udp 55": closed, "sctp 79": "", "sctp 80": "",
					"sctp 81": closed, "tcp 80": closed}},
			{about: "egress", do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Egress]
egress: [{ports: [{port: 81, endPort: 82}]}]`),
				want: wants{"tcp 80": "-web>*", "tcp 81": "", "tcp 82": "", "tcp 83": "-web>*"}},
		}},
		{name: "S44_a_named_port_is_each_pods_own_number", steps: []step{
			{do: do(pod("shop/web", port("http", 80, "")), pod("shop/db", port("http", 8080, corev1.ProtocolTCP)),
				pod("shop/api", port("http", 80, "")),
				policy("shop/p", `{podSelector: {}, ingress: [{ports: [{port: http}]}]}`)),
				want: wants{"tcp 80": "-*>db", "tcp 8080": "-*>web,api", "udp 80": "-*>shop", "icmp": "-*>shop"}},
			{about: "with a peer", do: policy("shop/p",
				`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}}], ports: [{port: http}]}]}`),
				want: wants{"tcp 80": "-*>shop +ops>web,api", "tcp 8080": "-*>shop +ops>db"}},
			{about: "with an address block", do: policy("shop/p", `
podSelector: {}
ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24}}, {ipBlock: {cidr: "2001:db8::/32"}}], ports: [{port: http}]}]`),
				want: wants{"tcp 80": "-*>shop +out>web,api", "tcp 8080": "-*>shop +out>db"}},
		}},
		{name: "S45_for_egress_it_is_looked_up_on_the_destination", steps: []step{
			{about: "in all namespaces when to is empty", do: do(pod("shop/web", port("http", 9999, "")),
				pod("shop/db", port("http", 80, "")), pod("shop/api", port("http", 8080, "")), pod("ops/mon", port("http", 80, "")),
				policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Egress]
egress: [{ports: [{port: http}]}]`)),
				want: wants{"tcp 80": "-web>* +web>db,mon", "tcp 8080": "-web>* +web>api", "tcp 9999": "-web>*"}},
			{about: "with a peer", do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Egress]
egress: [{to: [{podSelector: {}}], ports: [{port: http}]}]`),
				want: wants{"tcp 80": "-web>* +web>db", "tcp 8080": "-web>* +web>api"}},
			{about: "with namespaces", do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Egress]
egress: [{to: [{namespaceSelector: {matchLabels: {team: b}}}], ports: [{port: http}]}]`),
				want: wants{"tcp 80": "-web>* +web>mon", "tcp 8080": "-web>*"}},
			{about: "with an address block of pods", do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Egress]
egress: [{to: [{ipBlock: {cidr: 10.32.2.0/24}}, {ipBlock: {cidr: "fd10:32:0:2::/64"}}], ports: [{port: http}]}]`),
				want: wants{"tcp 80": "-web>*", "tcp 8080": "-web>* +web>api"}},
		}},
		{name: "S46_the_protocol_decides_and_names_that_no_pod_has_allow_nothing", steps: []step{
			{about: "one name for TCP and for UDP", do: do(
				pod("shop/web", port("dns", 53, corev1.ProtocolUDP), twoNamed("dns", 5353)),
				policy("shop/p", `{podSelector: {}, ingress: [{ports: [{port: dns, protocol: UDP}]}]}`)),
				want: wants{"udp 53": "-*>db,api", "tcp 53": "-*>shop", "tcp 5353": "-*>shop", "udp 5353": "-*>shop"}},
			{do: policy("shop/p", `{podSelector: {}, ingress: [{ports: [{port: dns}]}]}`),
				want: wants{"udp 53": "-*>shop", "tcp 53": "-*>shop", "tcp 5353": "-*>db,api", "udp 5353": "-*>shop"}},
			{about: "a name that no pod has", do: ingress(`[{port: unknown}, {port: 80}]`),
				want: wants{"tcp 80": "", "tcp 53": closed, "udp 53": closed}},
			{about: "and nothing else", do: ingress(`[{port: unknown}]`), want: wants{"tcp 80": closed, "tcp 53": closed}},
			{about: "the name's number changes by a new pod", do: do(ingress(`[{port: http}]`),
				pod("shop/web", uid("one"), noPorts, port("http", 80, ""))), want: wants{"tcp 80": "", "tcp 81": closed}},
			{do: pod("shop/web", uid("two"), noPorts, port("http", 81, "")), want: wants{"tcp 80": closed, "tcp 81": ""}},
		}},
		{name: "S47_named_ports_of_sidecars_count", steps: []step{
			{do: do(pod("shop/web", initPort("proxy", 81, corev1.ContainerRestartPolicyAlways), initPort("setup", 82, "")),
				ingress(`[{port: proxy}, {port: setup}]`)), want: wants{"tcp 81": "", "tcp 82": closed}},
		}},
		{name: "S48_a_named_port_towards_an_outside_address_never_matches", steps: []step{
			{do: do(pod("shop/db", port("http", 80, "")), pod("shop/api", port("http", 80, "")), policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Egress]
egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0}}, {ipBlock: {cidr: "::/0"}}], ports: [{port: http}]}]`)),
				want: wants{"tcp 80": "-web>* +web>db,api"}},
		}},
		{name: "S49_many_ports_add_up", steps: []step{
			{about: "numbers, names and ranges", do: do(pod("shop/web", port("http", 8080, "")),
				ingress(`[{port: 80}, {port: http}, {port: 90, endPort: 92}, {port: 53, protocol: UDP}]`)),
				want: wants{"tcp 80": "", "tcp 8080": "", "tcp 90": "", "tcp 92": "", "tcp 93": closed, "udp 53": "",
					"udp 80": closed}},
			{about: "forty ports", do: ingress(manyPorts(40)), want: wants{"tcp 1000": "", "tcp 1001": closed, "tcp 1028": "",
				"tcp 1030": "", "tcp 1032": "", "tcp 1078": "", "tcp 1079": closed, "tcp 1080": closed}},
			{about: "twenty ranges", do: ingress(manyRanges(20)), want: wants{"tcp 2000": "", "tcp 2001": "", "tcp 2002": closed,
				"tcp 2060": "", "tcp 2077": "", "tcp 2078": closed}},
		}},
	}
}

// manyPorts returns a list of every other port from 1000.
func manyPorts(n int) string {
	var ports []string
	for i := range n {
		ports = append(ports, fmt.Sprintf("{port: %d}", 1000+2*i))
	}
	return "[" + strings.Join(ports, ", ") + "]"
}

// manyRanges returns a list of ranges of two ports, 2000 and 2001, 2004 and 2005...
func manyRanges(n int) string {
	var ports []string
	for i := range n {
		ports = append(ports, fmt.Sprintf("{port: %d, endPort: %d}", 2000+4*i, 2001+4*i))
	}
	return "[" + strings.Join(ports, ", ") + "]"
}

// twoNamed adds a container with a TCP port of a name that another container has for UDP.
func twoNamed(name string, number int32) func(*harness, *corev1.Pod) {
	return func(_ *harness, p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "other", Image: "other",
			Ports: []corev1.ContainerPort{{Name: name, ContainerPort: number}}})
	}
}

// initPort adds an init container with a named port.
func initPort(name string, number int32, restart corev1.ContainerRestartPolicy) func(*harness, *corev1.Pod) {
	return func(_ *harness, p *corev1.Pod) {
		c := corev1.Container{Name: name, Image: name, Ports: []corev1.ContainerPort{{Name: name, ContainerPort: number}}}
		if restart != "" {
			c.RestartPolicy = &restart
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
}
