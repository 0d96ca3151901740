package manifest

import (
	"strings"
	"testing"

	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// clusterPolicyText returns a ClusterNetworkPolicy whose spec has further fields from line 9 on.
func clusterPolicyText(spec string) string {
	return "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: web}\nspec:\n" +
		"  tier: Admin\n  priority: 1\n  subject:\n    namespaces: {}\n" + spec
}

func TestS70_RefusedClusterPoliciesNameFileAndLine(t *testing.T) {
	const head = "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata:\n  name: web\n"
	checkRefusals(t, []refusal{
		{"another version", "apiVersion: policy.networking.k8s.io/v1alpha1\nkind: ClusterNetworkPolicy\n",
			`m.yaml:1: ClusterNetworkPolicy: apiVersion "policy.networking.k8s.io/v1alpha1" is not served, use "policy.networking.k8s.io/v1alpha2"`},
		{"namespace", head + "  namespace: shop\nspec: {tier: Admin, priority: 1, subject: {namespaces: {}}}\n",
			`m.yaml:5: ClusterNetworkPolicy shop/web: metadata.namespace: Forbidden: not allowed on this type`},
		{"no spec", head, `m.yaml:1: ClusterNetworkPolicy web: spec: Required value`},
		{"empty spec", head + "spec:\n  subject: {}\n", `m.yaml:5: ClusterNetworkPolicy web: spec.tier: Required value
m.yaml:5: ClusterNetworkPolicy web: spec.priority: Required value
m.yaml:6: ClusterNetworkPolicy web: spec.subject: Required value: one of namespaces and pods`},
		{"tier and priority", head + "spec:\n  tier: Top\n  priority: 1001\n  subject:\n    namespaces: {}\n    pods: {}\n",
			`m.yaml:6: ClusterNetworkPolicy web: spec.tier: Unsupported value: "Top": supported values: "Admin", "Baseline"
m.yaml:7: ClusterNetworkPolicy web: spec.priority: Invalid value: 1001: must be between 0 and 1000, inclusive
m.yaml:8: ClusterNetworkPolicy web: spec.subject: Forbidden: more than one of namespaces and pods
m.yaml:10: ClusterNetworkPolicy web: spec.subject.pods.podSelector: Required value`},
		{"rules", clusterPolicyText("  ingress:\n  - action: Allow\n  egress:\n  - to: []\n    name: " + long(101) + "\n    protocols: []\n"),
			`m.yaml:10: ClusterNetworkPolicy web: spec.ingress[0].action: Unsupported value: "Allow": supported values: "Accept", "Deny", "Pass"
m.yaml:10: ClusterNetworkPolicy web: spec.ingress[0].from: Required value: at least one item
m.yaml:12: ClusterNetworkPolicy web: spec.egress[0].action: Required value
m.yaml:12: ClusterNetworkPolicy web: spec.egress[0].to: Required value: at least one item
m.yaml:13: ClusterNetworkPolicy web: spec.egress[0].name: Too long: may not be more than 100
m.yaml:14: ClusterNetworkPolicy web: spec.egress[0].protocols: Required value: at least one item`},
		{"peers", clusterPolicyText(`  egress:
  - action: Deny
    to:
    - {}
    - networks: [10.0.0.0/8]
      nodes: {}
    - planets: all
`), `m.yaml:15: ClusterNetworkPolicy web: unknown field "spec.egress[0].to[2].planets"`},
		{"kinds of peers", clusterPolicyText(`  egress:
  - action: Deny
    to:
    - {}
    - networks: [10.0.0.0/8]
      nodes: {}
    - namespaces: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}
  ingress:
  - action: Accept
    from:
    - {}
`), `m.yaml:12: ClusterNetworkPolicy web: spec.egress[0].to[0]: Required value: one of namespaces, pods, nodes, networks and domainNames
m.yaml:13: ClusterNetworkPolicy web: spec.egress[0].to[1]: Forbidden: more than one of namespaces, pods, nodes, networks and domainNames
m.yaml:15: ClusterNetworkPolicy web: spec.egress[0].to[2].namespaces.matchExpressions[0].values: Forbidden
m.yaml:19: ClusterNetworkPolicy web: spec.ingress[0].from[0]: Required value: one of namespaces and pods`},
		{"networks and names", clusterPolicyText(`  egress:
  - action: Deny
    to:
    - networks:
      - 10.0.0.0
      - ::ffff:10.0.0.0/104
      - 10.0.0.0/8
      - 10.0.0.0/8
    - domainNames:
      - com
      - example.com
      - example.com
`), `m.yaml:13: ClusterNetworkPolicy web: spec.egress[0].to[0].networks[0]: Invalid value: "10.0.0.0": must be a CIDR like
m.yaml:14: ClusterNetworkPolicy web: spec.egress[0].to[0].networks[1]: Invalid value: "::ffff:10.0.0.0/104": must not be
m.yaml:16: ClusterNetworkPolicy web: spec.egress[0].to[0].networks[3]: Duplicate value: "10.0.0.0/8"
m.yaml:18: ClusterNetworkPolicy web: spec.egress[0].to[1].domainNames[0]: Invalid value: "com": must be a domain name
m.yaml:20: ClusterNetworkPolicy web: spec.egress[0].to[1].domainNames[2]: Duplicate value: "example.com"`},
		{"protocols", clusterPolicyText(`  egress:
  - action: Deny
    to:
    - networks: [10.0.0.0/8]
    protocols:
    - tcp: {}
    - udp: {destinationPort: {number: 0}}
    - sctp: {destinationPort: {range: {start: 2, end: 2}}}
    - destinationNamedPort: http
    - tcp: {destinationPort: {number: 1, range: {start: 1, end: 65536}}}
`), `m.yaml:14: ClusterNetworkPolicy web: spec.egress[0].protocols[0].tcp.destinationPort: Required value
m.yaml:15: ClusterNetworkPolicy web: spec.egress[0].protocols[1].udp.destinationPort.number: Invalid value: 0: must be between
m.yaml:16: ClusterNetworkPolicy web: spec.egress[0].protocols[2].sctp.destinationPort.range.end: Invalid value: 2: must be greater
m.yaml:17: ClusterNetworkPolicy web: spec.egress[0].protocols[3].destinationNamedPort: Forbidden: networks, nodes and domainNames have no named
m.yaml:18: ClusterNetworkPolicy web: spec.egress[0].protocols[4].tcp.destinationPort: Forbidden: more than one of number and range
m.yaml:18: ClusterNetworkPolicy web: spec.egress[0].protocols[4].tcp.destinationPort.range.end: Invalid value: 65536: must be between`},
		{"twice", clusterPolicyText("") + "---\n" + clusterPolicyText(""), `m.yaml:10: ClusterNetworkPolicy web: is already on line 1`},
	})
}

// TestS70_ClusterPolicyDefaults shows what an API server sets: the definition has no defaults, and a status is not
// taken.
func TestS70_ClusterPolicyDefaults(t *testing.T) {
	m := Parse("m.yaml", []byte(clusterPolicyText("status: {conditions: []}\n")))
	if len(m.Problems) > 0 || len(m.Objects) != 1 {
		t.Fatalf("problems %v, objects %v", m.Problems, m.Objects)
	}
	p := m.Objects[0].Value.(*v1alpha2.ClusterNetworkPolicy)
	if p.UID != stableUID(KindClusterNetworkPolicy, "", "web") || p.Namespace != "" || p.Status.Conditions != nil ||
		m.Objects[0].String() != "ClusterNetworkPolicy web" {
		t.Errorf("%s: %+v", m.Objects[0], p)
	}
}

func long(n int) string { return strings.Repeat("x", n) }
