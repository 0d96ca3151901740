package manifests

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// chartFile reads a YAML or JSON file of the chart.
func chartFile(t *testing.T, into any, name string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(prod, "chart", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// TestSchemaKnowsAllValues compares it with values.yaml, docs/flags.md and the chart's README.
func TestSchemaKnowsAllValues(t *testing.T) {
	var values map[string]any
	chartFile(t, &values, "values.yaml")
	type node struct{ Properties map[string]json.RawMessage }
	var schema node
	chartFile(t, &schema, "values.schema.json")
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(schema.Properties)), func(n string) bool { return n == "global" })
	if d := cmp.Diff(slices.Sorted(maps.Keys(values)), names); d != "" {
		t.Errorf("values (-values.yaml +values.schema.json):\n%s", d)
	}
	for name, want := range map[string][]string{
		"flags": slices.Sorted(maps.Keys(flagDefaults(t))),
		"image": slices.Sorted(maps.Keys(values["image"].(map[string]any))),
	} {
		var n node
		if err := json.Unmarshal(schema.Properties[name], &n); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, slices.Sorted(maps.Keys(n.Properties))); d != "" {
			t.Errorf("%s (-want +values.schema.json):\n%s", name, d)
		}
	}
	readme, err := os.ReadFile(prod + "/chart/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range values {
		if !regexp.MustCompile("(?m)^\\|[^|]* `" + name + "[`.]").Match(readme) {
			t.Errorf("the chart's README does not explain %s", name)
		}
	}
}

// TestSchemaAccepts what people give: each flag's default as text, which --set-string makes of all, and values as YAML
// and --set read them.
func TestSchemaAccepts(t *testing.T) {
	all := []string{
		`flags: {allow-mcast: false, max-list-size: 8, terminate-mark: 0x2000, fail-closed: null, pod-cidr: [10.0.0.0/8], counted-ports: [80, 443]}`,
		`flags: {max-sets: [policy=10, node=20], ulogd-pcap-size: "12", allow-vlan: "true", staged: "off", counted-ports: 80}`,
		`flags: {max-rules: 'policy=10,namespace=20', iptables-backend: "", pod-cidr: "10.0.0.0/8,fd00::/8"}`,
		`{image: {tag: v1, pullPolicy: Always}, imagePullSecrets: [{name: a}], resources: {limits: {cpu: 1}}, maxUnavailable: 3}`,
		`{nodeSelector: {a: b, kubernetes.io/os: null}, tolerations: [{key: a, effect: NoSchedule}], priorityClassName: ""}`,
		`{nodeSelector: null, tolerations: null, imagePullSecrets: null, resources: null, maxUnavailable: 10%, global: {a: 1}}`,
		`{affinity: {nodeAffinity: {}}, podAnnotations: {a: b}, podLabels: null, serviceAccountAnnotations: {}, dashboard: {enabled: true, labels: {a: b}}}`,
		`{podMonitor: {enabled: true}, prometheusRule: {enabled: true}, monitorLabels: {release: prom}, cluster: eu-1, checkNodes: [a], runbooks: "https://HOST/PATH/"}`,
	}
	for name, value := range flagDefaults(t) {
		text, err := json.Marshal(map[string]any{"flags": map[string]any{name: value}})
		if err != nil {
			t.Fatal(err)
		}
		if value != "" || name == "metrics-addr" {
			all = append(all, string(text))
		}
	}
	for _, values := range all {
		if _, err := render(t, values); err != nil {
			t.Errorf("%s: %v", values, err)
		}
	}
}

func TestSchemaRefusesOtherTypes(t *testing.T) {
	for values, want := range map[string]string{
		`image: {tag: 1.10}`:                        "'/image/tag': got number, want null or string",
		`image: weave-npc:v1`:                       "'/image': got string, want object",
		`image: {pullPolicy: always}`:               "'/image/pullPolicy': value must be one of",
		`image: {repository: ""}`:                   "'/image/repository': minLength",
		`imagePullSecrets: [registry]`:              "'/imagePullSecrets/0': got string, want object",
		`imagePullSecrets: [{nam: a}]`:              "'/imagePullSecrets/0': missing property 'name'",
		`flags: null`:                               "missing property 'flags'",
		`flags: {staged: off}`:                      "'/flags/staged': got boolean",
		`flags: {fail-closed: shut}`:                "'/flags/fail-closed': value must be one of",
		`flags: {allow-mcast: "no"}`:                "'/flags/allow-mcast': value must be one of",
		`flags: {max-list-size: many}`:              "'/flags/max-list-size': 'many' does not match",
		`flags: {nflog-group: 1.5}`:                 "'/flags/nflog-group': got number",
		`flags: {max-sets: 4000}`:                   "'/flags/max-sets': got number",
		`flags: {max-sets: [pod=1]}`:                "'/flags/max-sets/0': 'pod=1' does not match",
		`flags: {pod-cidr: {a: b}}`:                 "'/flags/pod-cidr': got object",
		`flags: {counted-ports: [http]}`:            "'/flags/counted-ports/0': got string, want integer",
		`flags: {counted-ports: [70000]}`:           "'/flags/counted-ports/0': maximum",
		`flags: {metrics-addr: 6781}`:               "'/flags/metrics-addr': got number, want null or string",
		`nodeSelector: {a: true}`:                   "'/nodeSelector/a': got boolean",
		`tolerations: {operator: Exists}`:           "'/tolerations': got object, want array",
		`maxUnavailable: 0`:                         "'/maxUnavailable': minimum",
		`maxUnavailable: most`:                      "'/maxUnavailable': 'most' does not match",
		`podMonitor: "true"`:                        "'/podMonitor': got string, want object",
		`{podMonitor: {enabled: true}, cluster: 1}`: "'/cluster': got number, want string",
		`runbooks: here`:                            "'/runbooks': 'here' does not match",
		`{monitorLabels: [release]}`:                "'/monitorLabels': got array, want object",
		`priorityClassName: [a]`:                    "'/priorityClassName': got array, want string",
		`resources: {limits: 1Gi}`:                  "'/resources/limits': got string, want object",
		`prometheusRule: {enabled: 1}`:              "'/prometheusRule/enabled': got number, want boolean",
		`podLabels: {a: 1}`:                         "'/podLabels/a': got number",
		`checkNodes: a`:                             "'/checkNodes': got string, want array",
		`affinity: [a]`:                             "'/affinity': got array, want object",
	} {
		if text, err := render(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v\n%s", values, err, text)
		}
	}
}

// prometheusRule is what a test wants to know of one.
type prometheusRule struct {
	Metadata struct {
		Namespace string
		Labels    map[string]string
	}
	Spec struct {
		Groups []struct {
			Name  string
			Rules []map[string]any
		}
	}
}

// TestChartHasTheAlerts checks that the chart has a copy of prod/alerts.yaml: a chart has no files of other folders,
// and not all tools follow links.
func TestChartHasTheAlerts(t *testing.T) {
	if _, there := charted(t, "")["PrometheusRule weave-npc"]; there {
		t.Error("there is a PrometheusRule although the values do not ask for it")
	}
	all := charted(t, `{prometheusRule: {enabled: true}, podMonitor: {enabled: true}, monitorLabels: {release: prom}, cluster: eu, runbooks: "https://HOST/PATH/",
		relay: {enabled: true}}`)
	var got prometheusRule
	if err := yaml.Unmarshal([]byte(all["PrometheusRule weave-npc"]), &got); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(prod + "/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want prometheusRule
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(string(text), "runbook_url: ", "runbook_url: https://HOST/PATH/")), &want.Spec); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want.Spec, got.Spec); d != "" || len(want.Spec.Groups) == 0 {
		t.Errorf("the chart has other alerts: cp prod/alerts.yaml prod/chart/files (-prod +chart):\n%s", d)
	}
	labels := map[string]string{"app.kubernetes.io/name": "weave-npc", "release": "prom"}
	if got.Metadata.Namespace != "kube-system" || !has(got.Metadata.Labels, labels) {
		t.Errorf("the PrometheusRule is in %q with labels %v", got.Metadata.Namespace, got.Metadata.Labels)
	}
	for _, name := range []string{"weave-npc", "weave-npc-relay"} {
		checkMonitored(t, name, all["PodMonitor "+name])
	}
}

// has reports whether labels have others among them.
func has(labels, others map[string]string) bool {
	for name, value := range others {
		if labels[name] != value {
			return false
		}
	}
	return true
}

// TestChartHasTheDashboard checks that the chart has a copy of prod/dashboard.json.
func TestChartHasTheDashboard(t *testing.T) {
	const name = "ConfigMap weave-npc-dashboard"
	if _, there := charted(t, "")[name]; there {
		t.Error("there is a dashboard although the values do not ask for it")
	}
	got := decode[corev1.ConfigMap](t, charted(t, `{dashboard: {enabled: true, labels: {team: a}}}`), name)
	want, err := os.ReadFile(prod + "/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if got.Data["weave-npc.json"] != string(want) {
		t.Error("the chart has another dashboard: cp prod/dashboard.json prod/chart/files")
	}
	labels := map[string]string{"app.kubernetes.io/name": "weave-npc", "grafana_dashboard": "1", "team": "a"}
	if !has(got.Labels, labels) {
		t.Errorf("the ConfigMap has labels %v", got.Labels)
	}
}

// checkMonitored checks the labels of a PodMonitor and of what it scrapes.
func checkMonitored(t *testing.T, name, text string) {
	t.Helper()
	var monitor struct {
		Metadata struct{ Labels map[string]string }
		Spec     struct{ PodMetricsEndpoints []scraped }
	}
	if err := yaml.Unmarshal([]byte(text), &monitor); err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app.kubernetes.io/name": name, "release": "prom"}
	r := monitor.Spec.PodMetricsEndpoints[0].Relabelings
	if last := r[len(r)-1]; last.TargetLabel != "cluster" || last.Replacement != "eu" || !has(monitor.Metadata.Labels, labels) {
		t.Errorf("the PodMonitor %s has the labels %v and gives %v", name, monitor.Metadata.Labels, r)
	}
}

// TestNotes checks that the notes name what the values leave to be done, and nothing that the values already have.
func TestNotes(t *testing.T) {
	const registry, address, multicast = "names no registry", "flags.pod-interface", "allow-mcast=false"
	cases := []struct {
		values          string
		includes, omits []string
	}{
		{"", []string{"-n kube-system rollout status", registry, address, multicast}, nil},
		{"{image: {repository: mirror/npc}, flags: {pod-interface: cni0, allow-mcast: false}}", []string{"one engine"},
			[]string{registry, address, multicast}},
		{`flags: {pod-cidr: [10.0.0.0/8], allow-mcast: "true"}`, []string{registry, multicast}, []string{address}},
	}
	for _, c := range cases {
		_, notes, err := renderWithNotes(t, c.values)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range c.includes {
			if !strings.Contains(notes, text) {
				t.Errorf("%s: %q is not in\n%s", c.values, text, notes)
			}
		}
		for _, text := range c.omits {
			if strings.Contains(notes, text) {
				t.Errorf("%s: %q is in\n%s", c.values, text, notes)
			}
		}
	}
}

// TestArtifactHub reads what it would: annotations are text, and the image is the one that the chart runs.
func TestArtifactHub(t *testing.T) {
	var chart struct {
		Name, Description, AppVersion string
		Keywords                      []string
		Annotations                   map[string]string
	}
	chartFile(t, &chart, "Chart.yaml")
	var images []struct {
		Name, Image string
		Platforms   []string
	}
	if err := yaml.UnmarshalStrict([]byte(chart.Annotations["artifacthub.io/images"]), &images); err != nil {
		t.Fatal(err)
	}
	want := chartedContainer(t, "{}").Image
	if len(images) != 1 || images[0].Image != want || !slices.Equal(images[0].Platforms, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("the images are %v, the chart runs %s", images, want)
	}
	if a := chart.Annotations; a["artifacthub.io/category"] != "security" || a["artifacthub.io/license"] != "Apache-2.0" ||
		a["artifacthub.io/operator"] != "false" || len(chart.Keywords) == 0 {
		t.Errorf("annotations %v, keywords %v", a, chart.Keywords)
	}
}
