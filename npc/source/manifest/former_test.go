package manifest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"
)

// adminText returns an AdminNetworkPolicy whose spec has further fields from line 8 on.
func adminText(spec string) string {
	return "apiVersion: policy.networking.k8s.io/v1alpha1\nkind: AdminNetworkPolicy\nmetadata: {name: web}\nspec:\n" +
		"  priority: 7\n  subject:\n    namespaces: {}\n" + spec
}

// baselineText returns a BaselineAdminNetworkPolicy whose spec has further fields from line 7 on.
func baselineText(spec string) string {
	return "apiVersion: policy.networking.k8s.io/v1alpha1\nkind: BaselineAdminNetworkPolicy\n" +
		"metadata: {name: default}\nspec:\n  subject:\n    namespaces: {}\n" + spec
}

// parseFormer reads a file of former kinds.
func parseFormer(text string) File { return Options{Former: true}.Parse("m.yaml", []byte(text)) }

func TestFormerPoliciesAreConverted(t *testing.T) {
	numbers := func(form string, n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(form, i+1))
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	for _, c := range []struct{ name, text, want string }{
		{"actions", adminText(`  ingress:
  - {action: Allow, from: [{namespaces: {}}]}
  - {action: Deny, from: [{namespaces: {}}]}
  - {action: Pass, from: [{namespaces: {}}], name: last}
`), `{tier: Admin, priority: 7, subject: {namespaces: {}}, ingress: [
  {action: Accept, from: [{namespaces: {}}]},
  {action: Deny, from: [{namespaces: {}}]},
  {action: Pass, from: [{namespaces: {}}], name: last}]}`},
		{"peers", adminText(`  egress:
  - action: Deny
    to:
    - namespaces: {matchLabels: {a: b}}
    - pods: {namespaceSelector: {matchLabels: {a: b}}, podSelector: {matchLabels: {c: d}}}
    - nodes: {matchExpressions: [{key: e, operator: Exists}]}
    - networks: [10.0.0.0/8, "fd00::/8"]
    - domainNames: [example.com]
`), `{tier: Admin, priority: 7, subject: {namespaces: {}}, egress: [{action: Deny, to: [
  {namespaces: {matchLabels: {a: b}}},
  {pods: {namespaceSelector: {matchLabels: {a: b}}, podSelector: {matchLabels: {c: d}}}},
  {nodes: {matchExpressions: [{key: e, operator: Exists}]}},
  {networks: [10.0.0.0/8, "fd00::/8"]},
  {domainNames: [example.com]}]}]}`},
		{"ports", adminText(`  ingress:
  - action: Deny
    from: [{namespaces: {}}]
    ports: [{portNumber: {port: 1}}, {portNumber: {protocol: UDP, port: 2}}, {namedPort: http},
      {portRange: {protocol: SCTP, start: 3, end: 4}}, {portRange: {start: 5, end: 5}}]
`), `{tier: Admin, priority: 7, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [
  {tcp: {destinationPort: {number: 1}}}, {udp: {destinationPort: {number: 2}}}, {destinationNamedPort: http},
  {sctp: {destinationPort: {range: {start: 3, end: 4}}}}, {tcp: {destinationPort: {number: 5}}}]}]}`},
		{"baseline", baselineText("  egress: [{action: Allow, to: [{networks: [0.0.0.0/0]}]}]\n" +
			"  ingress: [{action: Deny, from: [{namespaces: {}}], ports: [{portNumber: {port: 1}}]}]\n"),
			`{tier: Baseline, priority: 1000, subject: {namespaces: {}}, egress: [{action: Accept, to: [{networks: [0.0.0.0/0]}]}],
  ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 1}}}]}]}`},
		{"a rule with more peers and ports than one may have", adminText("  egress: [{action: Pass, name: many,\n    to: " +
			numbers("{networks: [10.0.0.%d/32]}", 26) + ",\n    ports: " + numbers("{portNumber: {port: %d}}", 26) + "}]\n"),
			`{tier: Admin, priority: 7, subject: {namespaces: {}}, egress: [
  {action: Pass, name: many, to: ` + numbers("{networks: [10.0.0.%d/32]}", 25) + `, protocols: ` + numbers("{tcp: {destinationPort: {number: %d}}}", 25) + `},
  {action: Pass, name: many, to: ` + numbers("{networks: [10.0.0.%d/32]}", 25) + `, protocols: [{tcp: {destinationPort: {number: 26}}}]},
  {action: Pass, name: many, to: [{networks: [10.0.0.26/32]}], protocols: ` + numbers("{tcp: {destinationPort: {number: %d}}}", 25) + `},
  {action: Pass, name: many, to: [{networks: [10.0.0.26/32]}], protocols: [{tcp: {destinationPort: {number: 26}}}]}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := parseFormer(c.text)
			if len(m.Problems) > 0 || len(m.Objects) != 1 {
				t.Fatalf("problems %v, objects %v", m.Problems, m.Objects)
			}
			var want v1alpha2.ClusterNetworkPolicySpec
			if err := yaml.UnmarshalStrict([]byte(c.want), &want); err != nil {
				t.Fatal(err)
			}
			got := m.Objects[0].Value.(*v1alpha2.ClusterNetworkPolicy)
			if d := cmp.Diff(want, got.Spec); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			checkIsValid(t, got)
		})
	}
}

// checkIsValid fails the test unless a policy can be read again.
func checkIsValid(t *testing.T, p *v1alpha2.ClusterNetworkPolicy) {
	t.Helper()
	p.APIVersion, p.Kind = v1alpha2.GroupVersion.String(), KindClusterNetworkPolicy
	text, err := yaml.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.ReplaceAll(string(text), "conditions: null", "{}"))
	if m := Parse("m.yaml", text); len(m.Problems) > 0 {
		t.Errorf("problems %v\n%s", m.Problems, text)
	}
}

// TestFormerPoliciesAreConvertedAlone, in lists too: other objects are not read.
func TestFormerPoliciesAreConvertedAlone(t *testing.T) {
	indented := "- " + strings.ReplaceAll(strings.TrimSpace(adminText("")), "\n", "\n  ") + "\n"
	m := parseFormer("apiVersion: v1\nkind: List\nitems:\n" + indented + "- {apiVersion: v1, kind: Pod, metadata: {name: 1}}\n" +
		"---\napiVersion: policy.networking.k8s.io/v1alpha1\nkind: BaselineAdminNetworkPolicyList\nitems:\n" +
		"- metadata: {name: default}\n  spec: {subject: {namespaces: {}}}\n" +
		"---\nkind: ClusterNetworkPolicy\napiVersion: policy.networking.k8s.io/v1alpha2\nspec: wrong\n")
	var got []string
	for _, o := range m.Objects {
		got = append(got, fmt.Sprintf("%d %s", o.Line, o))
	}
	if want := []string{"4 AdminNetworkPolicy web", "16 BaselineAdminNetworkPolicy default"}; len(m.Problems) > 0 || !slices.Equal(got, want) {
		t.Errorf("problems %v, %q, want %q", m.Problems, got, want)
	}
}

func TestFormerPoliciesThatCannotBeConverted(t *testing.T) {
	rule := "  - {action: Deny, from: [{namespaces: {}}]}\n"
	for _, c := range []struct{ name, text, want string }{
		{"another version", strings.Replace(adminText(""), "v1alpha1", "v1alpha9", 1),
			`m.yaml:1: AdminNetworkPolicy: apiVersion "policy.networking.k8s.io/v1alpha9" is not known, use "policy.networking.k8s.io/v1alpha1"`},
		{"unknown field", adminText("  ingress:\n  - action: Deny\n    from: [{namespaces: {namespaceSelector: {}}}]\n"),
			`m.yaml:10: AdminNetworkPolicy web: unknown field "spec.ingress[0].from[0].namespaces.namespaceSelector"`},
		{"more rules", adminText("  ingress:\n" + strings.Repeat(rule, 26)),
			`m.yaml:8: AdminNetworkPolicy web: spec.ingress: Forbidden: makes 26 rules, and a ClusterNetworkPolicy has at most 25; join rules, or divide the policy`},
		{"rules that make more", adminText("  ingress:\n" + strings.Repeat(rule, 24) +
			"  - {action: Deny, from: [" + strings.Repeat("{namespaces: {}}, ", 26) + "]}\n"),
			`m.yaml:8: AdminNetworkPolicy web: spec.ingress: Forbidden: makes 26 rules, and`},
		{"too many for the former kind", adminText("  ingress:\n" + strings.Repeat(rule, 101)),
			`m.yaml:8: AdminNetworkPolicy web: spec.ingress: Too many: 101: must have at most 100 items
m.yaml:8: AdminNetworkPolicy web: spec.ingress: Forbidden: makes 100 rules, and`},
		{"no rule of its kind", adminText("  egress:\n  - {action: Accept, to: []}\n"),
			`m.yaml:9: AdminNetworkPolicy web: spec.egress[0].action: Unsupported value: "Accept": supported values: "Allow", "Deny", "Pass"
m.yaml:9: AdminNetworkPolicy web: spec.egress[0].to: Required value: at least one item`},
		{"subject and priority", "apiVersion: policy.networking.k8s.io/v1alpha1\nkind: AdminNetworkPolicy\nmetadata: {name: web}\nspec:\n" +
			"  subject:\n    pods:\n      podSelector: {}\n",
			`m.yaml:4: AdminNetworkPolicy web: spec.priority: Required value
m.yaml:6: AdminNetworkPolicy web: spec.subject.pods.namespaceSelector: Required value`},
		{"peers", adminText("  egress:\n  - action: Deny\n    to:\n    - {}\n    - networks: []\n    - domainNames: [com]\n" +
			"    ports:\n    - namedPort: http\n    - {}\n    - portNumber: {protocol: ICMP, port: 0}\n    - portRange: {start: 2, end: 1}\n"),
			`m.yaml:11: AdminNetworkPolicy web: spec.egress[0].to[0]: Required value: one of namespaces, pods, nodes, networks and domainNames
m.yaml:12: AdminNetworkPolicy web: spec.egress[0].to[1].networks: Required value: at least one item
m.yaml:13: AdminNetworkPolicy web: spec.egress[0].to[2].domainNames[0]: Invalid value: "com": must be a domain name
m.yaml:15: AdminNetworkPolicy web: spec.egress[0].ports[0].namedPort: Forbidden: networks, nodes and domainNames have no named ports
m.yaml:16: AdminNetworkPolicy web: spec.egress[0].ports[1]: Required value: one of portNumber, namedPort and portRange
m.yaml:17: AdminNetworkPolicy web: spec.egress[0].ports[2].portNumber.port: Invalid value: 0: must be between
m.yaml:17: AdminNetworkPolicy web: spec.egress[0].ports[2].portNumber.protocol: Unsupported value: "ICMP"
m.yaml:18: AdminNetworkPolicy web: spec.egress[0].ports[3].portRange.end: Invalid value: 1: must not be less than`},
		{"Pass in the baseline", baselineText("  ingress: [{action: Pass, from: [{namespaces: {}}]}]\n"),
			`m.yaml:7: BaselineAdminNetworkPolicy default: spec.ingress[0].action: Unsupported value: "Pass": supported values: "Allow", "Deny"`},
		{"another baseline", strings.Replace(baselineText(""), "default", "mine", 1),
			`m.yaml:3: BaselineAdminNetworkPolicy mine: metadata.name: Unsupported value: "mine": supported values: "default"`},
		{"twice", adminText("") + "---\n" + adminText(""), `m.yaml:9: AdminNetworkPolicy web: is already on line 1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, p := range parseFormer(c.text).Problems {
				got = append(got, p.Error())
			}
			want := strings.Split(c.want, "\n")
			if len(got) != len(want) || !slices.EqualFunc(got, want, strings.HasPrefix) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), c.want)
			}
		})
	}
}
