package source

import (
	"fmt"
	"slices"
	"strings"
)

// specs returns specs of policies, good and bad ones.
func specs() []string {
	const subject = "subject: {namespaces: {}}"
	out := []string{"", "spec: null\n", "spec: {}\n", "sepc: {}\n", "status: {x: 1}\n"}
	spec := func(parts ...string) { out = append(out, "spec: {"+strings.Join(parts, ", ")+"}\n") }
	for _, head := range []string{"tier: Admin, priority: 0", "tier: Baseline, priority: 1000", "tier: Admin, priority: 1001", "tier: Admin, priority: -1",
		"tier: admin, priority: 1", "tier: '', priority: 1", "priority: 1", "tier: Admin", "tier: Admin, priority: null", "tier: Admin, priority: '1'",
		"tier: Admin, priority: 99999999999", "tier: 1, priority: 1"} {
		spec(head, subject)
	}
	const head = "tier: Admin, priority: 1"
	for _, s := range []string{"{}", "null", "{namespaces: null}", "{pods: {}}", "{pods: {podSelector: {}}}", "{pods: {podSelector: null}}",
		"{pods: {namespaceSelector: {}}}", "{pods: {namespaceSelector: {}, podSelector: {matchLabels: {a: b}}}}",
		"{namespaces: {}, pods: {podSelector: {}}}", "{namespaces: {matchExpressions: [{key: a, operator: Exists}]}}",
		"{namespaces: {matchExpressions: [{operator: Exists}]}}", "{namespaces: {matchExpressions: [{key: a}]}}", "{nodes: {}}"} {
		spec(head, "subject: "+s)
	}
	spec(head)
	many := func(n int, item string) string {
		return "[" + strings.Join(slices.Repeat([]string{item}, n), ", ") + "]"
	}
	for _, peer := range []string{"{}", "{namespaces: {}}", "{pods: {podSelector: {}}}", "{pods: {}}", "{namespaces: {}, pods: {podSelector: {}}}",
		"{nodes: {}}", "{networks: []}", "{networks: null}", "{networks: [10.0.0.0/8, '::/0']}", "{networks: [10.0.0.1/8]}",
		"{networks: [10.0.0.0/8, 10.0.0.0/8]}",
		"{networks: [010.0.0.0/8]}", "{networks: [10.0.0.0]}", "{networks: ['::ffff:10.0.0.0/104']}", "{networks: ['fe80::1%eth0/64']}",
		"{networks: ['']}",
		"{networks: [10.0.0.0/33]}", "{domainNames: [example.com, '*.example.com', example.com.]}", "{domainNames: [com]}",
		"{domainNames: ['a*.example.com']}",
		"{domainNames: [example.com, example.com]}", "{domainNames: []}", "{planets: all}", "{networks: " + many(26, "10.0.0.0/8") + "}",
		"{networks: [10.0.0.0/8], nodes: {}}"} {
		spec(head, subject, "egress: [{action: Deny, to: ["+peer+"]}]")
		spec(head, subject, "ingress: [{action: Deny, from: ["+peer+"]}]")
	}
	for _, rule := range []string{"{action: Accept}", "{action: Accept, to: []}", "{to: [{namespaces: {}}]}",
		"{action: Allow, to: [{namespaces: {}}]}",
		"{action: Pass, to: [{namespaces: {}}]}", "{action: Pass, to: " + many(25, "{namespaces: {}}") + "}",
		"{action: Pass, to: " + many(26, "{namespaces: {}}") + "}",
		"{name: " + strings.Repeat("x", 100) + ", action: Pass, to: [{namespaces: {}}]}",
		"{name: " + strings.Repeat("x", 101) + ", action: Pass, to: [{namespaces: {}}]}",
		"{name: " + strings.Repeat("é", 100) + ", action: Pass, to: [{namespaces: {}}]}"} {
		spec(head, subject, "egress: ["+rule+"]")
	}
	for _, n := range []int{25, 26} {
		spec(head, subject, "egress: "+many(n, "{action: Pass, to: [{namespaces: {}}]}"))
		spec(head, subject, "ingress: "+many(n, "{action: Pass, from: [{namespaces: {}}]}"))
		spec(head, subject, "egress: [{action: Pass, to: [{namespaces: {}}], protocols: "+many(n, "{tcp: {destinationPort: {number: 1}}}")+"}]")
	}
	for _, protocols := range []string{"[]", "null", "[{}]", "[{tcp: {}}]", "[{tcp: null}]", "[{tcp: {destinationPort: {}}}]",
		"[{udp: {destinationPort: {number: 0}}}]",
		"[{sctp: {destinationPort: {number: 65535}}}]", "[{tcp: {destinationPort: {number: 65536}}}]", "[{tcp: {destinationPort: {number: -1}}}]",
		"[{tcp: {destinationPort: {number: 1, range: {start: 1, end: 2}}}}]", "[{tcp: {destinationPort: {range: {start: 1, end: 2}}}}]",
		"[{tcp: {destinationPort: {range: {start: 2, end: 2}}}}]", "[{tcp: {destinationPort: {range: {start: 3, end: 2}}}}]",
		"[{tcp: {destinationPort: {range: {start: 3}}}}]",
		"[{tcp: {destinationPort: {range: {end: 3}}}}]", "[{tcp: {destinationPort: {range: {start: 0, end: 3}}}}]",
		"[{tcp: {destinationPort: {range: {start: 1, end: 65536}}}}]",
		"[{udp: {destinationPort: {range: {}}}}]", "[{destinationNamedPort: http}]", "[{destinationNamedPort: ''}]",
		"[{destinationNamedPort: http, tcp: {destinationPort: {number: 1}}}]",
		"[{destinationNamedPort: '', tcp: {destinationPort: {number: 1}}}]", "[{icmp: {}}]"} {
		for _, peer := range []string{"namespaces: {}", "networks: [10.0.0.0/8]", "nodes: {}", "domainNames: [example.com]"} {
			spec(head, subject, fmt.Sprintf("egress: [{action: Accept, to: [{pods: {podSelector: {}}}, {%s}], protocols: %s}]", peer, protocols))
		}
		spec(head, subject, fmt.Sprintf("ingress: [{action: Accept, from: [{namespaces: {}}], protocols: %s}]", protocols))
	}
	return out
}
