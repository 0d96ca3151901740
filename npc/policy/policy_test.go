package policy

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/policy/quota"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// TestInvalidPolicies shows the errors of policies that cannot be compiled.
func TestInvalidPolicies(t *testing.T) {
	for name, c := range map[string]struct{ spec, want string }{
		"valid":               {`{podSelector: {}}`, ""},
		"type":                {`{podSelector: {}, policyTypes: [Up]}`, `spec.policyTypes: "Up" is neither Ingress nor Egress`},
		"key":                 {`{podSelector: {matchLabels: {"a b": x}}}`, "spec.podSelector: matchLabels: key: Invalid value"},
		"operator":            {`{podSelector: {matchExpressions: [{key: a, operator: Is}]}}`, `spec.podSelector: matchExpressions[0]: "Is" is no operator`},
		"values of Exists":    {`{podSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}`, "spec.podSelector: matchExpressions[0]: values"},
		"cidr":                {`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0}}]}]}`, `spec.ingress[0]: from[0]: ipBlock: cidr: "10.0.0.0" is no CIDR`},
		"mapped cidr":         {`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: "::ffff:10.0.0.0/104"}}]}]}`, "is an IPv4 address in the form of an IPv6 one"},
		"except":              {`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/9]}}]}]}`, "except[0]: 11.0.0.0/9 is not within 10.0.0.0/8"},
		"block and selector":  {`{podSelector: {}, ingress: [{from: [{podSelector: {}, ipBlock: {cidr: 10.0.0.0/8}}]}]}`, "both ipBlock and a selector are set"},
		"protocol":            {`{podSelector: {}, ingress: [{ports: [{protocol: ICMP}]}]}`, `spec.ingress[0]: ports[0]: "ICMP" is none of TCP, UDP and SCTP`},
		"port":                {`{podSelector: {}, ingress: [{ports: [{port: 65536}]}]}`, "ports[0]: 65536 to 65536 is no range"},
		"range":               {`{podSelector: {}, ingress: [{ports: [{port: 9, endPort: 8}]}]}`, "9 to 8 is no range"},
		"range of a name":     {`{podSelector: {}, ingress: [{ports: [{port: http, endPort: 8}]}]}`, `"http" is no port name, or has an endPort`},
		"range of all":        {`{podSelector: {}, ingress: [{ports: [{endPort: 8}]}]}`, "endPort without port"},
		"pods of a peer":      {`{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {"-": x}}}]}]}`, "spec.ingress[0]: from[0]: podSelector: matchLabels"},
		"egress":              {`{podSelector: {}, egress: [{}, {to: [{namespaceSelector: {matchLabels: {"-": x}}}]}]}`, "spec.egress[1]: to[0]: namespaceSelector"},
		"ingress ignored":     {`{podSelector: {}, policyTypes: [Egress], ingress: [{ports: [{port: 65536}]}]}`, ""},
		"unknown peer":        {`{podSelector: {}, ingress: [{from: [{}]}]}`, ""},
		"impossible value":    {`{podSelector: {matchLabels: {a: "b c"}}}`, ""},
		"key of an odd value": {`{podSelector: {matchLabels: {"a b": "b c"}}}`, "spec.podSelector: matchLabels: key"},
	} {
		t.Run(name, func(t *testing.T) {
			p := Compile(fixture.Policy(t, "shop/p", c.spec), quota.Default())
			got := ""
			if p.Invalid != nil {
				got = p.Invalid.Error()
				if len(p.Rules[npc.Ingress])+len(p.Rules[npc.Egress]) > 0 || !p.Isolates[npc.Ingress] && !p.Isolates[npc.Egress] {
					t.Errorf("it allows something, or isolates nothing: %+v", p)
				}
			}
			if got != c.want && (c.want == "" || !strings.Contains(got, c.want)) {
				t.Errorf("said %q, want %q", got, c.want)
			}
		})
	}
}

// TestPortMatches shows the iptables matches of ports.
func TestPortMatches(t *testing.T) {
	for name, c := range map[string]struct{ ports, want string }{
		"one":       {`[{port: 80}]`, "-p tcp -m tcp --dport 80"},
		"range":     {`[{port: 80, endPort: 90, protocol: UDP}]`, "-p udp -m udp --dport 80:90"},
		"all":       {`[{protocol: SCTP}, {protocol: SCTP, port: 9}]`, "-p sctp"},
		"merged":    {`[{port: 80}, {port: 81}, {port: 79, endPort: 85}, {port: 90}]`, "-p tcp -m multiport --dports 79:85,90"},
		"to 65535":  {`[{port: 1, endPort: 65535}]`, "-p tcp -m tcp --dport 1:65535"},
		"protocols": {`[{port: 1}, {port: 1, protocol: UDP}]`, "-p tcp -m tcp --dport 1\n-p udp -m udp --dport 1"},
		"sixteen": {`[{port: 1}, {port: 3}, {port: 5}, {port: 7}, {port: 9}, {port: 11}, {port: 13}, {port: 15}, {port: 17}, {port: 19}, {port: 21},
			{port: 23}, {port: 25}, {port: 27}, {port: 29}, {port: 31}]`, "-p tcp -m multiport --dports 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29\n-p tcp -m tcp --dport 31"},
		"ranges take two": {`[{port: 1, endPort: 2}, {port: 4, endPort: 5}, {port: 7, endPort: 8}, {port: 10, endPort: 11}, {port: 13, endPort: 14},
			{port: 16, endPort: 17}, {port: 19, endPort: 20}, {port: 22, endPort: 23}]`,
			"-p tcp -m multiport --dports 1:2,4:5,7:8,10:11,13:14,16:17,19:20\n-p tcp -m tcp --dport 22:23"},
	} {
		t.Run(name, func(t *testing.T) {
			ports := fixture.Object[[]networkingv1.NetworkPolicyPort](t, c.ports)
			r, err := compileRule(npc.Ingress, "", nil, *ports)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range r.merge().Ports {
				got = append(got, s.Match())
			}
			if text := strings.Join(got, "\n"); text != c.want {
				t.Errorf("got\n%s\nwant\n%s", text, c.want)
			}
		})
	}
}

// TestBothForms shows that Rules keeps the peers and ports of the object in their order, and Merged those that the
// kernel needs.
func TestBothForms(t *testing.T) {
	spec := `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/9}}, {podSelector: {matchLabels: {a: "b c"}}}, {}, {namespaceSelector: {}},
		{ipBlock: {cidr: "fd00::/8"}}, {ipBlock: {cidr: 10.128.0.0/9}}], ports: [{port: 90}, {port: http}, {port: 80, endPort: 89}, {protocol: UDP}]}]}`
	p := Compile(fixture.Policy(t, "shop/p", spec), quota.Default())
	if p.Invalid != nil {
		t.Fatal(p.Invalid)
	}
	var peers, ports []string
	for _, c := range p.Rules[npc.Ingress][0].Peers {
		switch {
		case c.Block != nil:
			peers = append(peers, c.Block.CIDR.String())
		case c.IsUnknown():
			peers = append(peers, "unknown")
		case c.Pods != nil:
			peers = append(peers, "pods "+c.Pods.String())
		default:
			peers = append(peers, "namespaces "+c.Namespaces.String())
		}
	}
	for _, c := range p.Rules[npc.Ingress][0].Ports {
		ports = append(ports, c.String())
	}
	if got, want := strings.Join(peers, ", "), "10.0.0.0/9, pods a value that no label can have, unknown, namespaces , fd00::/8, 10.128.0.0/9"; got != want {
		t.Errorf("peers %s\nwant  %s", got, want)
	}
	if got, want := strings.Join(ports, ", "), "tcp/90, tcp/http, tcp/80-89, udp"; got != want {
		t.Errorf("ports %s, want %s", got, want)
	}
	m := p.Merged[npc.Ingress][0]
	peers, ports = nil, nil
	for _, c := range m.Peers {
		if c.Block != nil {
			peers = append(peers, c.Block.String())
		} else {
			peers = append(peers, "namespaces "+c.Namespaces.String())
		}
	}
	for _, c := range m.Ports {
		ports = append(ports, c.Match()+c.Name)
	}
	if got, want := strings.Join(peers, ", "), "namespaces , 2 address blocks, fd00::/8"; got != want {
		t.Errorf("merged peers %s, want %s", got, want)
	}
	if got, want := strings.Join(ports, ", "), "-p tcp -m tcp --dport 80:90, -p tcphttp, -p udp"; got != want {
		t.Errorf("merged ports %s, want %s", got, want)
	}
}
