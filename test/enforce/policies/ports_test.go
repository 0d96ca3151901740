package policies

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
)

// portCases show what the ports of a rule open.
func portCases() []e2e.Case {
	const closed = "-*>web"
	return []e2e.Case{
		{Name: "S40_no_protocol_is_tcp_and_no_port_is_all_ports", Steps: []e2e.Step{
			{Do: ingressAt(`[{port: 80}]`), Want: e2e.Wants{"tcp 80": "", "tcp 81": closed, "udp 80": closed,
				"sctp 80": closed,
				"icmp":    closed}},
			{About: "no port", Do: ingressAt(`[{protocol: UDP}]`), Want: e2e.Wants{"udp 53": "", "udp 9": "",
				"tcp 53":  closed,
				"sctp 53": closed, "icmp": closed}},
			{About: "neither", Do: ingressAt(`[{}]`), Want: e2e.Wants{"tcp 53": "", "tcp 9": "", "udp 53": closed,
				"icmp": closed}},
			{About: "SCTP", Do: ingressAt(`[{protocol: SCTP}]`), Want: e2e.Wants{"sctp 80": "", "tcp 80": closed,
				"udp 53": closed}},
		}},
		{Name: "S41_sctp_and_udp_open_no_tcp", Steps: []e2e.Step{
			{Do: ingressAt(`[{protocol: SCTP, port: 80}]`), Want: e2e.Wants{"sctp 80": "", "sctp 81": closed,
				"tcp 80": closed,
				"udp 80": closed, "icmp": closed}},
			{Do: ingressAt(`[{protocol: UDP, port: 80}]`), Want: e2e.Wants{"udp 80": "", "udp 81": closed,
				"tcp 80":  closed,
				"sctp 80": closed, "icmp": closed}},
		}},
		{Name: "S43_end_port_is_inclusive", Steps: []e2e.Step{
			{Do: ingressAt(`[{port: 81, endPort: 83}]`), Want: e2e.Wants{"tcp 80": closed, "tcp 81": "", "tcp 82": "",
				"tcp 83": "",
				"tcp 84": closed, "udp 82": closed}},
			{About: "equal", Do: ingressAt(`[{port: 81, endPort: 81}]`),
				Want: e2e.Wants{"tcp 80": closed, "tcp 81": "", "tcp 82": closed}},
			{About: "everything", Do: ingressAt(`[{port: 1, endPort: 65535}]`), Want: e2e.Wants{"tcp 1": "",
				"tcp 65535": "",
				"udp 53":    closed, "icmp": closed}},
			{About: "UDP and SCTP", Do: ingressAt(`
  - {protocol: UDP, port: 53, endPort: 54}
  - {protocol: SCTP, port: 79, endPort: 80}`),
				Want: e2e.Wants{"udp 52": closed, "udp 53": "", "udp 54": "", "udp 55": closed, "sctp 79": "",
					"sctp 80": "",
					"sctp 81": closed, "tcp 80": closed}},
			{About: "egress", Do: e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Egress]
egress: [{ports: [{port: 81, endPort: 82}]}]`),
				Want: e2e.Wants{"tcp 80": "-web>*", "tcp 81": "", "tcp 82": "", "tcp 83": "-web>*"}},
		}},
	}
}

// namedPortCases show what names of ports mean, and many ports in one rule.
func namedPortCases() []e2e.Case {
	const closed = "-*>web"
	return []e2e.Case{
		{Name: "S44_a_named_port_is_each_pods_own_number", Steps: []e2e.Step{
			{Do: e2e.Do(e2e.Pod("shop/web", e2e.Port("http", 80, "")),
				e2e.Pod("shop/db", e2e.Port("http", 8080, corev1.ProtocolTCP)),
				e2e.Pod("shop/api", e2e.Port("http", 80, "")),
				e2e.Policy("shop/p", `{podSelector: {}, ingress: [{ports: [{port: http}]}]}`)),
				Want: e2e.Wants{"tcp 80": "-*>db", "tcp 8080": "-*>web,api", "udp 80": "-*>shop", "icmp": "-*>shop"}},
			{About: "with a peer", Do: e2e.Policy("shop/p",
				`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}}], ports: [{port: http}]}]}`),
				Want: e2e.Wants{"tcp 80": "-*>shop +ops>web,api", "tcp 8080": "-*>shop +ops>db"}},
			{About: "with an address block", Do: e2e.Policy("shop/p", `
podSelector: {}
ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24}}, {ipBlock: {cidr: "2001:db8::/32"}}], ports: [{port: http}]}]`),
				Want: e2e.Wants{"tcp 80": "-*>shop +out>web,api", "tcp 8080": "-*>shop +out>db"}},
		}},
		{Name: "S45_for_egress_it_is_looked_up_on_the_destination", Steps: []e2e.Step{
			{About: "in all namespaces when to is empty", Do: e2e.Do(e2e.Pod("shop/web", e2e.Port("http", 9999, "")),
				e2e.Pod("shop/db", e2e.Port("http", 80, "")), e2e.Pod("shop/api",
					e2e.Port("http", 8080, "")), e2e.Pod("ops/mon", e2e.Port("http", 80, "")),
				e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Egress]
egress: [{ports: [{port: http}]}]`)),
				Want: e2e.Wants{"tcp 80": "-web>* +web>db,mon", "tcp 8080": "-web>* +web>api", "tcp 9999": "-web>*"}},
			{About: "with a peer", Do: e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Egress]
egress: [{to: [{podSelector: {}}], ports: [{port: http}]}]`),
				Want: e2e.Wants{"tcp 80": "-web>* +web>db", "tcp 8080": "-web>* +web>api"}},
			{About: "with namespaces", Do: e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Egress]
egress: [{to: [{namespaceSelector: {matchLabels: {team: b}}}], ports: [{port: http}]}]`),
				Want: e2e.Wants{"tcp 80": "-web>* +web>mon", "tcp 8080": "-web>*"}},
			{About: "with an address block of pods", Do: e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Egress]
egress: [{to: [{ipBlock: {cidr: 10.32.2.0/24}}, {ipBlock: {cidr: "fd10:32:0:2::/64"}}], ports: [{port: http}]}]`),
				Want: e2e.Wants{"tcp 80": "-web>*", "tcp 8080": "-web>* +web>api"}},
		}},
		{Name: "S46_the_protocol_decides_and_names_that_no_pod_has_allow_nothing", Steps: []e2e.Step{
			{About: "one name for TCP and for UDP", Do: e2e.Do(
				e2e.Pod("shop/web", e2e.Port("dns", 53, corev1.ProtocolUDP), twoNamed("dns", 5353)),
				e2e.Policy("shop/p", `{podSelector: {}, ingress: [{ports: [{port: dns, protocol: UDP}]}]}`)),
				Want: e2e.Wants{"udp 53": "-*>db,api", "tcp 53": "-*>shop", "tcp 5353": "-*>shop",
					"udp 5353": "-*>shop"}},
			{Do: e2e.Policy("shop/p", `{podSelector: {}, ingress: [{ports: [{port: dns}]}]}`),
				Want: e2e.Wants{"udp 53": "-*>shop", "tcp 53": "-*>shop", "tcp 5353": "-*>db,api",
					"udp 5353": "-*>shop"}},
			{About: "a name that no pod has", Do: ingressAt(`[{port: unknown}, {port: 80}]`),
				Want: e2e.Wants{"tcp 80": "", "tcp 53": closed, "udp 53": closed}},
			{About: "and nothing else", Do: ingressAt(`[{port: unknown}]`), Want: e2e.Wants{"tcp 80": closed,
				"tcp 53": closed}},
			{About: "the name's number changes by a new pod", Do: e2e.Do(ingressAt(`[{port: http}]`),
				e2e.Pod("shop/web", e2e.UID("one"), e2e.NoPorts, e2e.Port("http", 80, ""))),
				Want: e2e.Wants{"tcp 80": "", "tcp 81": closed}},
			{Do: e2e.Pod("shop/web", e2e.UID("two"), e2e.NoPorts, e2e.Port("http", 81, "")),
				Want: e2e.Wants{"tcp 80": closed, "tcp 81": ""}},
		}},
		{Name: "S47_named_ports_of_sidecars_count", Steps: []e2e.Step{
			{Do: e2e.Do(e2e.Pod("shop/web", initPort("proxy", 81, corev1.ContainerRestartPolicyAlways),
				initPort("setup", 82, "")),
				ingressAt(`[{port: proxy}, {port: setup}]`)), Want: e2e.Wants{"tcp 81": "", "tcp 82": closed}},
		}},
		{Name: "S48_a_named_port_towards_an_outside_address_never_matches", Steps: []e2e.Step{
			{Do: e2e.Do(e2e.Pod("shop/db", e2e.Port("http", 80, "")), e2e.Pod("shop/api", e2e.Port("http", 80, "")),
				e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Egress]
egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0}}, {ipBlock: {cidr: "::/0"}}], ports: [{port: http}]}]`)),
				Want: e2e.Wants{"tcp 80": "-web>* +web>db,api"}},
		}},
		{Name: "S49_many_ports_add_up", Steps: []e2e.Step{
			{About: "numbers, names and ranges", Do: e2e.Do(e2e.Pod("shop/web", e2e.Port("http", 8080, "")),
				ingressAt(`[{port: 80}, {port: http}, {port: 90, endPort: 92}, {port: 53, protocol: UDP}]`)),
				Want: e2e.Wants{"tcp 80": "", "tcp 8080": "", "tcp 90": "", "tcp 92": "", "tcp 93": closed,
					"udp 53": "",
					"udp 80": closed}},
			{About: "forty ports", Do: ingressAt(manyPorts(40)), Want: e2e.Wants{"tcp 1000": "", "tcp 1001": closed,
				"tcp 1028": "",
				"tcp 1030": "", "tcp 1032": "", "tcp 1078": "", "tcp 1079": closed, "tcp 1080": closed}},
			{About: "twenty ranges", Do: ingressAt(manyRanges(20)), Want: e2e.Wants{"tcp 2000": "", "tcp 2001": "",
				"tcp 2002": closed,
				"tcp 2060": "", "tcp 2077": "", "tcp 2078": closed}},
		}},
	}
}

// ingressAt lets everyone in to ports of web.
func ingressAt(ports string) e2e.Change {
	return e2e.Policy("shop/p", "podSelector: {matchLabels: {app: web}}\ningress:\n- ports: "+ports)
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
func twoNamed(name string, number int32) func(*e2e.Cluster, *corev1.Pod) {
	return func(_ *e2e.Cluster, p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "other", Image: "other",
			Ports: []corev1.ContainerPort{{Name: name, ContainerPort: number}}})
	}
}

// initPort adds an init container with a named port.
func initPort(name string, number int32, restart corev1.ContainerRestartPolicy) func(*e2e.Cluster, *corev1.Pod) {
	return func(_ *e2e.Cluster, p *corev1.Pod) {
		c := corev1.Container{Name: name, Image: name,
			Ports: []corev1.ContainerPort{{Name: name, ContainerPort: number}}}
		if restart != "" {
			c.RestartPolicy = &restart
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
}
