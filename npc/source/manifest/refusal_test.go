package manifest

import (
	"slices"
	"strings"
	"testing"
)

// policyText returns a policy whose spec follows line 5.
func policyText(spec string) string {
	return "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n  {name: web, namespace: shop}\nspec:\n" + spec
}

func podText(rest string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata:\n  {name: web, namespace: shop}\n" + rest
}

const valid = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"

// refusal is a file with the problems that reading it has: the beginning of each, one a line.
type refusal struct{ name, text, want string }

// checkRefusals reads each file and compares the problems, in any order.
func checkRefusals(t *testing.T, refusals []refusal) {
	t.Helper()
	for _, test := range refusals {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, p := range Parse("m.yaml", []byte(test.text)).Problems {
				got = append(got, p.Error())
			}
			want := strings.Split(test.want, "\n")
			if len(got) != len(want) {
				t.Fatalf("%d problems, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
			}
			for _, w := range want {
				if !slices.ContainsFunc(got, func(g string) bool { return strings.HasPrefix(g, w) }) {
					t.Errorf("lacks %s\nin:\n%s", w, strings.Join(got, "\n"))
				}
			}
		})
	}
}

func TestS70_RefusedSyntaxNamesFileAndLine(t *testing.T) {
	checkRefusals(t, []refusal{
		{"unclosed brace", valid + "x: {a: b\n", `m.yaml:4: a comma or a closing } is missing`},
		{"unclosed quote", valid + "x: \"a\n", `m.yaml:5: the file ends within a value: is a quote closed?`},
		{"no time", "apiVersion: v1\nkind: Pod\nmetadata: {name: a, creationTimestamp: yesterday}\n",
			`m.yaml:1: Pod default/a: "yesterday" is no time such as 2026-01-31T12:00:00Z`},
		{"tab", valid + "\tx: y\n", `m.yaml:4: found a character that no value begins with, such as a tab: indent with spaces`},
		{"mapping in a value", valid + "---\na: b\n  c: d\n", `m.yaml:6: mapping values are not allowed in this context`},
		{"duplicate keys", valid + "---\n" + podText("spec: {}\nspec: {}\n") + "metadata: {}\n",
			`m.yaml:10: key "spec" already set in map
m.yaml:11: key "metadata" already set in map`},
		{"duplicate key in JSON", "{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"Pod\",\n\t\"kind\": \"Pod\"\n}",
			`m.yaml:4: Pod: duplicate field "kind"`},
		{"template", "{{ if .Values.web }}\nkind: Pod\n{{ end }}\n",
			"m.yaml:1: a mapping stands where a key belongs; where {{ begins a template, give what `helm template` prints"},
		{"template in a value", valid + "x: {{ .Values.web }}-x\n",
			"m.yaml:3: did not find expected key; where {{ begins a template, give what `helm template` prints"},
		{"braces in quotes", valid + "x: \"{{ .Values.web }}\" {\n", `m.yaml:3: did not find expected key`},
		{"mapping as a key", valid + "? {a: b}\n: c\n", `m.yaml:1: a mapping stands where a key belongs`},
		{"alias of nothing", "a: *b\n", `m.yaml:1: unknown anchor 'b' referenced`},
		{"no mapping", "# c\n- 1\n", `m.yaml:2: is no Kubernetes object: it has a list where a mapping belongs`},
		{"no kind", "\n\napiVersion: v1\n", `m.yaml:3: has no apiVersion or no kind`},
		{"no apiVersion", "kind: Pod\n", `m.yaml:1: has no apiVersion or no kind`},
		{"bad apiVersion", "apiVersion: a/b/c\nkind: Pod\n", `m.yaml:1: Pod: unexpected GroupVersion string: a/b/c`},
		{"line after Windows line ends", "apiVersion: v1\r\nkind: Pod\r\n---\r\nkind: Pod\r\n",
			"m.yaml:1: Pod: metadata.name: Required value\nm.yaml:4: has no apiVersion"},
	})
}

func TestS70_RefusedKindsNameFileAndLine(t *testing.T) {
	checkRefusals(t, []refusal{
		{"policy of a version that is gone", "kind: NetworkPolicy\napiVersion: extensions/v1beta1\n",
			`m.yaml:2: NetworkPolicy: apiVersion "extensions/v1beta1" is not served, use "networking.k8s.io/v1"`},
		{"pod of no version", "apiVersion: v2\nkind: Pod\n", `m.yaml:1: Pod: apiVersion "v2" is not served, use "v1"`},
		{"list of no version", "apiVersion: v1\nkind: NetworkPolicyList\n",
			`m.yaml:1: NetworkPolicyList: apiVersion "v1" is not served, use "networking.k8s.io/v1"`},
		{"unknown field of a list", "apiVersion: v1\nkind: List\nitem: []\n", `m.yaml:3: List: unknown field "item"`},
		{"list in a list", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: PodList\n",
			`m.yaml:4: PodList: is a list in a list`},
		{"item of another kind", "apiVersion: v1\nkind: PodList\nitems:\n- apiVersion: v1\n  kind: Namespace\n",
			`m.yaml:4: PodList: has an item of v1 Namespace`},
	})
}

func TestS70_RefusedFieldsNameFileAndLine(t *testing.T) {
	checkRefusals(t, []refusal{
		{"unknown fields", policyText("  podselector: {}\n  ingress:\n  - form: []\n"),
			`m.yaml:6: NetworkPolicy shop/web: unknown field "spec.podselector"
m.yaml:8: NetworkPolicy shop/web: unknown field "spec.ingress[0].form"`},
		{"unknown field in a list", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n" +
			"  metadata:\n    name: web\n    nme: x\n", `m.yaml:8: Pod default/web: unknown field "metadata.nme"`},
		{"number as a label", "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: shop\n  labels:\n    a: 1\n",
			`m.yaml:5: Namespace shop: metadata.labels has a number where a string belongs: put it in quotes`},
		{"number as a name", "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: 1\n",
			`m.yaml:4: Namespace: metadata.name has a number where a string belongs: put it in quotes`},
		{"number as a list", podText("spec: {containers: 5}\n"), `m.yaml:5: Pod shop/web: spec.containers has a number where a list belongs`},
		{"list as a mapping", "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: shop\n  labels: [a]\n",
			`m.yaml:5: Namespace shop: metadata.labels has a list where a mapping belongs`},
		{"string as a boolean", podText("spec: {hostNetwork: \"yes\"}\n"), `m.yaml:5: Pod shop/web: spec.hostNetwork has a string where true or false belongs`},
		{"fraction as a port", policyText("  ingress: [{ports: [{port: 1.5}]}]\n"),
			`m.yaml:6: NetworkPolicy shop/web: spec.ingress.ports.port has a number where a whole number belongs`},
	})
}

func TestS70_RefusedNamesNameFileAndLine(t *testing.T) {
	checkRefusals(t, []refusal{
		{"no name", "apiVersion: v1\nkind: Pod\nmetadata: {}\n",
			`m.yaml:3: Pod: metadata.name: Required value: name or generateName is required`},
		{"namespace name", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a.b}\n",
			`m.yaml:3: Namespace a.b: metadata.name: Invalid value: "a.b": must not contain dots`},
		{"pod name", "apiVersion: v1\nkind: Pod\nmetadata:\n  labels: {}\n  name: Web;x\n",
			`m.yaml:5: Pod default/Web;x: metadata.name: Invalid value: "Web;x": a lowercase RFC 1123 subdomain`},
		{"namespace of a pod", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  namespace: a/b\n",
			`m.yaml:5: Pod a/b/web: metadata.namespace: Invalid value: "a/b": a lowercase RFC 1123 label`},
		{"label", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  labels:\n    a: b c\n",
			`m.yaml:5: Pod default/web: metadata.labels: Invalid value: "b c": a valid label must be`},
		{"node name", podText("spec:\n  nodeName: a_b\n"),
			`m.yaml:6: Pod shop/web: spec.nodeName: Invalid value: "a_b": a lowercase RFC 1123 subdomain`},
	})
}

func TestS70_RefusedPodsNameFileAndLine(t *testing.T) {
	checkRefusals(t, []refusal{
		{"container ports", podText(`spec:
  containers:
  - name: c
    ports:
    - containerPort: 0
    - containerPort: 65536
    - {containerPort: 1, name: Http}
    - {containerPort: 1, protocol: tcp}
    - {containerPort: 1, name: http}
    - {containerPort: 2, name: http}
  initContainers:
  - restartPolicy: always
`), `m.yaml:9: Pod shop/web: spec.containers[0].ports[0].containerPort: Required value
m.yaml:10: Pod shop/web: spec.containers[0].ports[1].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive
m.yaml:11: Pod shop/web: spec.containers[0].ports[2].name: Invalid value: "Http": must contain only alpha-numeric
m.yaml:12: Pod shop/web: spec.containers[0].ports[3].protocol: Unsupported value: "tcp": supported values: "TCP", "UDP", "SCTP"
m.yaml:14: Pod shop/web: spec.containers[0].ports[5].name: Duplicate value: "http"
m.yaml:16: Pod shop/web: spec.initContainers[0].restartPolicy: Unsupported value: "always": supported values: `},
		{"addresses", podText(`status:
  phase: running
  podIPs:
  - ip: 10.0.0.300
  - ip: fd00::1
  - ip: fd00::2
  hostIP: 192.0.2.1
  hostIPs:
  - ip: 192.0.2.2
`), `m.yaml:6: Pod shop/web: status.phase: Unsupported value: "running": supported values: "Pending", "Running", "Succeeded", "Failed", "Unknown"
m.yaml:8: Pod shop/web: status.podIPs[0].ip: Invalid value: "10.0.0.300": must be a valid IP address
m.yaml:10: Pod shop/web: status.podIPs[2].ip: Invalid value: "fd00::2": only one address of each family is allowed
m.yaml:13: Pod shop/web: status.hostIPs[0].ip: Invalid value: "192.0.2.2": must be the same as ` + "`hostIP`"},
	})
}

func TestS70_RefusedPoliciesNameFileAndLine(t *testing.T) {
	checkRefusals(t, []refusal{
		{"pod selector", policyText("  podSelector:\n    matchLabels: {a: b c}\n"),
			`m.yaml:7: NetworkPolicy shop/web: spec.podSelector.matchLabels: Invalid value: "b c": a valid label must be`},
		{"selector operator", policyText("  podSelector:\n    matchExpressions:\n    - {key: a, operator: in, values: [b]}\n"),
			`m.yaml:8: NetworkPolicy shop/web: spec.podSelector.matchExpressions[0].operator: Invalid value: "in": not a valid selector operator`},
		{"policy types", policyText("  policyTypes:\n  - ingress\n"),
			`m.yaml:7: NetworkPolicy shop/web: spec.policyTypes[0]: Unsupported value: "ingress": supported values: "Ingress", "Egress"`},
		{"three policy types", policyText("  policyTypes: [Ingress, Egress, Ingress]\n"),
			`m.yaml:6: NetworkPolicy shop/web: spec.policyTypes: Too many: 3: must have at most 2 items`},
		{"peers", policyText(`  ingress:
  - from:
    - {}
    - ipBlock: {cidr: 10.0.0.0/8}
      podSelector: {}
    - namespaceSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}
`), `m.yaml:8: NetworkPolicy shop/web: spec.ingress[0].from[0]: Required value: one of podSelector, namespaceSelector and ipBlock
m.yaml:9: NetworkPolicy shop/web: spec.ingress[0].from[1]: Forbidden: ipBlock excludes podSelector and namespaceSelector
m.yaml:11: NetworkPolicy shop/web: spec.ingress[0].from[2].namespaceSelector.matchExpressions[0].values: Forbidden`},
		{"address blocks", policyText(`  egress:
  - to:
    - ipBlock: {}
    - ipBlock: {cidr: 10.0.0.0}
    - ipBlock:
        cidr: 10.0.0.0/8
        except:
        - 10.0.0.0/8
        - 11.0.0.0/9
        - ::/9
        - x
`), `m.yaml:8: NetworkPolicy shop/web: spec.egress[0].to[0].ipBlock.cidr: Required value
m.yaml:9: NetworkPolicy shop/web: spec.egress[0].to[1].ipBlock.cidr: Invalid value: "10.0.0.0": must be a CIDR like
m.yaml:13: NetworkPolicy shop/web: spec.egress[0].to[2].ipBlock.except[0]: Invalid value: "10.0.0.0/8": must lie inside ` + "`cidr`" + ` and be smaller
m.yaml:14: NetworkPolicy shop/web: spec.egress[0].to[2].ipBlock.except[1]: Invalid value: "11.0.0.0/9": must lie inside
m.yaml:15: NetworkPolicy shop/web: spec.egress[0].to[2].ipBlock.except[2]: Invalid value: "::/9": must lie inside
m.yaml:16: NetworkPolicy shop/web: spec.egress[0].to[2].ipBlock.except[3]: Invalid value: "x": must be a CIDR like`},
		{"ports", policyText(`  ingress:
  - ports:
    - port: 0
    - port: 65536
    - port: -http
    - protocol: ICMP
    - endPort: 81
    - {port: http, endPort: 81}
    - {port: 80, endPort: 79}
    - {port: 80, endPort: 65536}
`), `m.yaml:8: NetworkPolicy shop/web: spec.ingress[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive
m.yaml:9: NetworkPolicy shop/web: spec.ingress[0].ports[1].port: Invalid value: 65536: must be between
m.yaml:10: NetworkPolicy shop/web: spec.ingress[0].ports[2].port: Invalid value: "-http": must not begin or end with a hyphen
m.yaml:11: NetworkPolicy shop/web: spec.ingress[0].ports[3].protocol: Unsupported value: "ICMP"
m.yaml:12: NetworkPolicy shop/web: spec.ingress[0].ports[4].endPort: Invalid value: 81: needs
m.yaml:13: NetworkPolicy shop/web: spec.ingress[0].ports[5].endPort: Invalid value: 81: needs a
m.yaml:14: NetworkPolicy shop/web: spec.ingress[0].ports[6].endPort: Invalid value: 79: must not be less than
m.yaml:15: NetworkPolicy shop/web: spec.ingress[0].ports[7].endPort: Invalid value: 65536: must be between`},
	})
}

func TestS70_RefusedDuplicatesNameFileAndLine(t *testing.T) {
	checkRefusals(t, []refusal{
		{"twice in one file", podText("---\n") + podText("") + "---\n" + podText(""),
			`m.yaml:6: Pod shop/web: is already on line 1
m.yaml:11: Pod shop/web: is already on line 1`},
	})
}
