package manifests

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// charted returns what Helm makes of the chart with the given values.
func charted(t *testing.T, values string) objects {
	t.Helper()
	text, err := render(t, values)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, []byte(text))
}

// render returns the objects that Helm makes of the chart with the given values, as text.
func render(t *testing.T, values string) (string, error) {
	t.Helper()
	text, _, err := renderWithNotes(t, values)
	return text, err
}

// renderWithNotes returns the objects, and the notes that Helm prints after an installation.
func renderWithNotes(t *testing.T, values string) (objects, notes string, err error) {
	t.Helper()
	return renderAs(t, "weave-npc", values)
}

// renderAs returns the same for a release of a name.
func renderAs(t *testing.T, name, values string) (objects, notes string, err error) {
	t.Helper()
	chart, err := loader.Load(filepath.Join(prod, "chart"))
	if err != nil {
		t.Fatal(err)
	}
	given, err := common.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	release := common.ReleaseOptions{Name: name, Namespace: "kube-system", IsInstall: true}
	all, err := util.ToRenderValues(chart, given, release, common.DefaultCapabilities)
	if err != nil {
		return "", "", err
	}
	rendered, err := engine.Render(chart, all)
	if err != nil {
		return "", "", err
	}
	var text strings.Builder
	for name, r := range rendered {
		if filepath.Base(name) == "NOTES.txt" {
			notes = r
		} else {
			text.WriteString("---\n" + r + "\n")
		}
	}
	return text.String(), notes, nil
}

func TestChartRendersWhatKustomizeRenders(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(prod)); err != nil {
		t.Fatal(err)
	}
	cases := []struct{ name, dir, values string }{
		{"as they are", prod + "/base", ""},
		{"with a PodMonitor", withComponents(t, "../monitoring"), "podMonitor: {enabled: true}"},
		{"with readers", withReaders(t, dir), "readers: {cluster: true, namespaces: [shop]}"},
		{"with relays", withComponents(t, "../relay"), "relay: {enabled: true}"},
		{"with relays and PodMonitors", withComponents(t, "../relay, ../monitoring, ../monitoring/relay"), "{relay: {enabled: true}, podMonitor: {enabled: true}}"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(plain(t, kustomized(t, c.dir)), unlabelled(t, plain(t, charted(t, c.values)))); d != "" {
				t.Errorf("they differ (-kustomize +Helm):\n%s", d)
			}
		})
	}
}

// withReaders returns an overlay of the base with the roles of readers, of a namespace too.
func withReaders(t *testing.T, dir string) string {
	t.Helper()
	for name, text := range map[string]string{"": "resources: [../base, ../readers, shop]",
		"shop": "{namespace: shop, resources: [../../readers/namespace]}"} {
		folder := filepath.Join(dir, "read", name)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "read")
}

// withComponents returns an overlay of the base with components, in a copy of prod.
func withComponents(t *testing.T, components string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(prod)); err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay")
	if err := os.Mkdir(overlay, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(overlay, "kustomization.yaml"), "resources: [../base]\ncomponents: ["+components+"]\n")
	return overlay
}

// plain returns objects as maps, whatever the order of their fields.
func plain(t *testing.T, all objects) map[string]any {
	t.Helper()
	m := map[string]any{}
	for name, text := range all {
		var o any
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		m[name] = o
	}
	return m
}

// unlabelled removes the labels that say which release of which chart objects are of, which all must have.
func unlabelled(t *testing.T, all map[string]any) map[string]any {
	t.Helper()
	for name, o := range all {
		metadata := o.(map[string]any)["metadata"].(map[string]any)
		labels, _ := metadata["labels"].(map[string]any)
		for label, want := range map[string]string{"app.kubernetes.io/instance": "weave-npc", "app.kubernetes.io/managed-by": "Helm",
			"app.kubernetes.io/version": "", "helm.sh/chart": "weave-npc-"} {
			if got, _ := labels[label].(string); got == "" || !strings.HasPrefix(got, want) {
				t.Errorf("%s has %s=%q", name, label, got)
			}
			delete(labels, label)
		}
		if len(labels) == 0 {
			delete(metadata, "labels")
		}
	}
	return all
}

func TestChartValues(t *testing.T) {
	all := charted(t, `
image: {repository: mirror/npc, tag: v1, pullPolicy: Never}
imagePullSecrets: [{name: registry}]
flags: {pod-interface: cni0, allow-mcast: false, ulogd-pcap-size: 12}
resources: {limits: {memory: 1Gi}, requests: {memory: 200Mi}}
priorityClassName: mine
nodeSelector: {a: b}
tolerations: []
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}
podAnnotations: {note: b}
podLabels: {team: c}
serviceAccountAnnotations: {identity: d}
maxUnavailable: 10%
`)
	ds := decode[appsv1.DaemonSet](t, all, "DaemonSet weave-npc")
	pod := ds.Spec.Template.Spec
	c := container(t, pod, "weave-npc")
	flags := map[string]string{}
	for _, e := range c.Env {
		flags[e.Name] = e.Value
	}
	got := []any{c.Image, c.ImagePullPolicy, pod.ImagePullSecrets, flags, c.Resources.Limits.Memory().String(),
		c.Resources.Requests.Memory().String(), pod.PriorityClassName, pod.NodeSelector, len(pod.Tolerations),
		ds.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.String(), ds.Spec.Template.Annotations,
		ds.Spec.Template.Labels["team"], pod.Affinity.NodeAffinity != nil,
		decode[corev1.ServiceAccount](t, all, "ServiceAccount weave-npc").Annotations}
	want := []any{"mirror/npc:v1", corev1.PullNever, []corev1.LocalObjectReference{{Name: "registry"}},
		map[string]string{"WEAVE_NPC_NODE_NAME": "", "WEAVE_NPC_POD_INTERFACE": "cni0", "WEAVE_NPC_ALLOW_MCAST": "false",
			"WEAVE_NPC_ULOGD_PCAP_SIZE": "12"},
		"1Gi", "200Mi", "mine", map[string]string{"kubernetes.io/os": "linux", "a": "b"}, 0, "10%",
		map[string]string{"note": "b"}, "c", true, map[string]string{"identity": "d"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("values (-want +got):\n%s", d)
	}
	checkConfined(t, pod, c)
}

// TestChartChecksNodes before an installation, with a Job for each.
func TestChartChecksNodes(t *testing.T) {
	all := charted(t, `{checkNodes: [a, b.example], flags: {iptables-backend: legacy}}`)
	ds := decode[appsv1.DaemonSet](t, all, "DaemonSet weave-npc")
	for i, node := range []string{"a", "b.example"} {
		job := decode[batchv1.Job](t, all, fmt.Sprintf("Job weave-npc-check-node-%d", i))
		checkJob(t, job, ds, node, "check-node", "--iptables-backend=legacy")
		if job.Annotations["helm.sh/hook"] != "pre-install,pre-upgrade" || *job.Spec.BackoffLimit != 0 ||
			job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyNever {
			t.Errorf("the Job is %v, of %v", job.Spec, job.Annotations)
		}
	}
}

// chartedContainer returns the container that the chart makes with the given flags.
func chartedContainer(t *testing.T, flags string) corev1.Container {
	t.Helper()
	ds := decode[appsv1.DaemonSet](t, charted(t, "flags: "+flags), "DaemonSet weave-npc")
	return container(t, ds.Spec.Template.Spec, "weave-npc")
}

func TestChartRendersFlagsAsTheyAreRead(t *testing.T) {
	for flags, want := range map[string]string{
		`{pod-cidr: [10.32.0.0/12, "fd10:32::/48"]}`: "WEAVE_NPC_POD_CIDR=10.32.0.0/12,fd10:32::/48",
		`{pod-cidr: "10.32.0.0/12"}`:                 "WEAVE_NPC_POD_CIDR=10.32.0.0/12",
		`{counted-ports: [80, 27017]}`:               "WEAVE_NPC_COUNTED_PORTS=80,27017",
		`{counted-ports: []}`:                        "WEAVE_NPC_COUNTED_PORTS=",
		`{ulogd-pcap-size: 1048576}`:                 "WEAVE_NPC_ULOGD_PCAP_SIZE=1048576",
		`{allow-mcast: false}`:                       "WEAVE_NPC_ALLOW_MCAST=false",
		`{pod-interface: "lxc+"}`:                    "WEAVE_NPC_POD_INTERFACE=lxc+",
		`{fail-closed: null}`:                        "",
	} {
		var got []string
		for _, e := range chartedContainer(t, flags).Env {
			if e.ValueFrom == nil {
				got = append(got, e.Name+"="+e.Value)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s becomes %q", flags, got)
		}
	}
}

func TestChartFollowsTheAddressForMetrics(t *testing.T) {
	for addr, want := range map[string]struct {
		port int32
		host string
	}{
		":6781":           {6781, ""},
		":9100":           {9100, ""},
		"0.0.0.0:9100":    {9100, ""},
		"[::]:9100":       {9100, ""},
		"127.0.0.1:9100":  {9100, "127.0.0.1"},
		"localhost:9100":  {9100, "localhost"},
		"[::1]:9100":      {9100, "::1"},
		"169.254.20.1:80": {80, "169.254.20.1"},
	} {
		c := chartedContainer(t, `{metrics-addr: "`+addr+`"}`)
		if len(c.Ports) != 1 || c.Ports[0].Name != "weave-npc" || c.Ports[0].ContainerPort != want.port {
			t.Errorf("%s: the ports are %v", addr, c.Ports)
		}
		for path, p := range map[string]*corev1.Probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
			if p == nil || p.HTTPGet.Path != path || p.HTTPGet.Port.StrVal != "weave-npc" || p.HTTPGet.Host != want.host {
				t.Errorf("%s: %s is probed by %v", addr, path, p)
			}
		}
	}
	if c := chartedContainer(t, `{metrics-addr: ""}`); c.Ports != nil || c.LivenessProbe != nil || c.ReadinessProbe != nil {
		t.Errorf("without an address there are ports %v and probes %v, %v", c.Ports, c.LivenessProbe, c.ReadinessProbe)
	}
}

func TestChartRefusesWhatItWouldPassOver(t *testing.T) {
	for values, want := range map[string]string{
		`flags: {pod-interfac: cni0}`:                                            "flags.pod-interfac is unknown: did you mean flags.pod-interface?",
		`flags: {podInterface: cni0}`:                                            "flags.podInterface is unknown: did you mean flags.pod-interface?",
		`flags: {pod_cidr: 10.0.0.0/8}`:                                          "flags.pod_cidr is unknown: did you mean flags.pod-cidr?",
		`flags: {frobnicate: true}`:                                              "flags.frobnicate is unknown",
		`flags: {node-name: a}`:                                                  "flags.node-name is for the chart to set",
		`flags: {fail-closed: {mode: never}}`:                                    "at '/flags/fail-closed': got object, want null or string",
		`flag: {pod-interface: cni0}`:                                            "flag is unknown: did you mean flags?",
		`image: {tagg: v1}`:                                                      "image.tagg is unknown: did you mean image.tag?",
		`flags: {metrics-addr: "6781"}`:                                          `flags.metrics-addr: "6781" is no address and port`,
		`flags: {metrics-addr: "::1:6781"}`:                                      `flags.metrics-addr: "::1:6781" is no address and port`,
		`flags: {metrics-addr: ":0"}`:                                            `flags.metrics-addr: ":0" has no port from 1 to 65535`,
		`flags: {metrics-addr: ":70000"}`:                                        `flags.metrics-addr: ":70000" has no port from 1 to 65535`,
		`{podMonitor: {enabled: true}, flags: {metrics-addr: ""}}`:               "podMonitor: Prometheus does not reach",
		`{podMonitor: {enabled: true}, flags: {metrics-addr: "127.0.0.1:6781"}}`: "podMonitor: Prometheus does not reach",
		`{podMonitor: {enabled: true}, flags: {metrics-addr: "[::1]:6781"}}`:     "podMonitor: Prometheus does not reach",
		`{prometheusRule: {enabled: true}, flags: {metrics-addr: ""}}`:           "prometheusRule: without flags.metrics-addr there are no metrics",
		`{cluster: eu}`:                                                          "cluster is a label that the PodMonitor gives: set podMonitor.enabled",
		`{podMonitor: {enabled: true}, runbooks: "https://HOST"}`:                "runbooks is for the alerts: set prometheusRule.enabled",
		`{monitorLabels: {a: b}}`:                                                "monitorLabels are those of a PodMonitor or PrometheusRule",
		`{readers: {namespace: [a]}}`:                                            "readers.namespace is unknown: did you mean readers.namespaces?",
		`{readers: {namespaces: ["a: b"]}}`:                                      "does not match pattern",
		`{readers: null}`:                                                        "missing property 'readers'",
		`relay: {enable: true}`:                                                  "relay.enable is unknown: did you mean relay.enabled?",
		`{podmonitor: true}`:                                                     "podmonitor is unknown: did you mean podMonitor?",
	} {
		if text, err := render(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v\n%s", values, err, text)
		}
	}
}

// flagDefaults returns the flags of docs/flags.md, which is written from the code, and their defaults. The name of the
// node is for the chart to set.
func flagDefaults(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/flags.md")
	if err != nil {
		t.Fatal(err)
	}
	_, daemon, _ := strings.Cut(string(page), "\n## weave-npc\n")
	daemon, _, _ = strings.Cut(daemon, "\n## ")
	flags := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| `?([^`|]*)`? \\|").FindAllStringSubmatch(daemon, -1) {
		flags[row[1]] = strings.TrimSpace(row[2])
	}
	if len(flags) == 0 || flags["fail-closed"] != "auto" {
		t.Fatalf("the flags of docs/flags.md are %q", flags)
	}
	delete(flags, "node-name")
	return flags
}

// TestChartKnowsAllFlags compares the chart's flags with those of docs/flags.md.
func TestChartKnowsAllFlags(t *testing.T) {
	text, err := os.ReadFile(prod + "/chart/templates/_flags.tpl")
	if err != nil {
		t.Fatal(err)
	}
	_, known, _ := strings.Cut(string(text), `{{- define "weave-npc.known" -}}`)
	known, _, _ = strings.Cut(known, "{{- end }}")
	if d := cmp.Diff(slices.Sorted(maps.Keys(flagDefaults(t))), strings.Fields(known)); d != "" {
		t.Errorf("flags (-docs/flags.md +chart):\n%s", d)
	}
}
