// Package manifests asks what the manifests of prod make of a cluster: kustomize's bases and components, and the Helm chart. It is a module of
// its own, so that neither tool is one of the product's dependencies.
package manifests

import (
	"bytes"
	"io"
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
	rbacv1 "k8s.io/api/rbac/v1"
	yamlreader "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const prod = "../../prod"

// objects are rendered objects, "kind name" -> YAML.
type objects map[string]string

// read divides rendered text into objects.
func read(t *testing.T, text []byte) objects {
	t.Helper()
	all := objects{}
	documents := yamlreader.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
	defer documents.Close()
	buf := make([]byte, len(text)+1)
	for {
		n, err := documents.Read(buf)
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		var o struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := yaml.Unmarshal(buf[:n], &o); err != nil {
			t.Fatal(err)
		}
		if o.Kind == "" {
			continue
		}
		name := o.Kind + " " + o.Metadata.Name
		if all[name] != "" {
			t.Errorf("there are two of %s", name)
		}
		all[name] = string(buf[:n])
	}
}

// decode makes an object of a rendered one, and fails if there is none, or if it has a field that objects of its kind have not.
func decode[T any](t *testing.T, all objects, name string) *T {
	t.Helper()
	text, ok := all[name]
	if !ok {
		t.Fatalf("there is no %s", name)
	}
	o := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return o
}

// kustomized is what kustomize makes of a directory.
func kustomized(t *testing.T, dir string) objects {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return read(t, text)
}

// overlaid is what kustomize makes of an overlay and a CNI's manifest.
func overlaid(t *testing.T, overlay string) objects {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(prod)); err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile(filepath.Join("testdata", overlay+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlays", overlay, "cni.yaml"), manifest, 0o644); err != nil {
		t.Fatal(err)
	}
	return kustomized(t, filepath.Join(dir, "overlays", overlay))
}

// charted is what Helm makes of the chart with the given values.
func charted(t *testing.T, values string) objects {
	t.Helper()
	chart, err := loader.Load(filepath.Join(prod, "chart"))
	if err != nil {
		t.Fatal(err)
	}
	given, err := common.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	release := common.ReleaseOptions{Name: "weave-npc", Namespace: "kube-system", IsInstall: true}
	all, err := util.ToRenderValues(chart, given, release, common.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := engine.Render(chart, all)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, r := range rendered {
		text.WriteString("---\n" + r + "\n")
	}
	return read(t, []byte(text.String()))
}

// container is the container of a pod that has the name.
func container(t *testing.T, pod corev1.PodSpec, name string) corev1.Container {
	t.Helper()
	var found []corev1.Container
	for _, c := range pod.Containers {
		if c.Name == name {
			found = append(found, c)
		}
	}
	if len(found) != 1 {
		t.Fatalf("there are %d containers called %s", len(found), name)
	}
	return found[0]
}

func TestBaseIsConfined(t *testing.T) {
	all := kustomized(t, prod+"/base")
	if len(all) != 4 {
		t.Errorf("there are %d objects", len(all))
	}
	decode[corev1.ServiceAccount](t, all, "ServiceAccount weave-npc")
	ds := decode[appsv1.DaemonSet](t, all, "DaemonSet weave-npc")
	pod := ds.Spec.Template.Spec
	c := container(t, pod, "weave-npc")
	checkConfined(t, pod, c)
	if pod.ServiceAccountName != "weave-npc" || pod.PriorityClassName != "system-node-critical" || len(pod.Tolerations) != 1 {
		t.Errorf("the account is %q, the priority class %q, the tolerations %v",
			pod.ServiceAccountName, pod.PriorityClassName, pod.Tolerations)
	}
	for key, value := range ds.Spec.Selector.MatchLabels {
		if ds.Spec.Template.Labels[key] != value {
			t.Errorf("the DaemonSet selects %s=%s and not its own pods", key, value)
		}
	}
}

// checkConfined checks that weave-npc's container has what it needs, and no more.
func checkConfined(t *testing.T, pod corev1.PodSpec, c corev1.Container) {
	t.Helper()
	yes, no, root := true, false, int64(0)
	want := &corev1.SecurityContext{RunAsUser: &root, Privileged: &no, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
		Capabilities: &corev1.Capabilities{
			Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN", "NET_RAW"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
	if d := cmp.Diff(want, c.SecurityContext); d != "" {
		t.Errorf("the container is not confined as it should be (-want +got):\n%s", d)
	}
	if !pod.HostNetwork {
		t.Error("the pod is not on the host's network")
	}
	mounts := map[string]string{}
	for _, m := range c.VolumeMounts {
		for _, v := range pod.Volumes {
			if v.Name == m.Name && v.HostPath != nil && v.HostPath.Type != nil {
				mounts[m.MountPath] = v.HostPath.Path + " " + string(*v.HostPath.Type)
			}
		}
	}
	if d := cmp.Diff(map[string]string{"/run/xtables.lock": "/run/xtables.lock FileOrCreate"}, mounts); d != "" {
		t.Errorf("mounts (-want +got):\n%s", d)
	}
	checkProbe(t, c, "/healthz", c.LivenessProbe)
	checkProbe(t, c, "/readyz", c.ReadinessProbe)
	if c.Resources.Requests.Memory().Value() < 75<<20 {
		t.Errorf("%s of memory is less than weave-npc takes", c.Resources.Requests.Memory())
	}
}

func checkProbe(t *testing.T, c corev1.Container, path string, p *corev1.Probe) {
	t.Helper()
	if p == nil || p.HTTPGet == nil || p.HTTPGet.Path != path {
		t.Fatalf("the probe of %s is %v", path, p)
	}
	for _, port := range c.Ports {
		if port.Name == p.HTTPGet.Port.String() && port.ContainerPort == 6781 {
			return
		}
	}
	t.Errorf("%s is probed on port %s, which is not 6781", path, p.HTTPGet.Port.String())
}

func TestRightsAreTheLeast(t *testing.T) {
	role := decode[rbacv1.ClusterRole](t, kustomized(t, prod+"/base"), "ClusterRole weave-npc")
	got := map[string]string{}
	for _, r := range role.Rules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				got[strings.TrimPrefix(group+"/"+resource, "/")] += strings.Join(r.Verbs, " ")
			}
		}
		if len(r.NonResourceURLs) > 0 {
			t.Errorf("a right to %v", r.NonResourceURLs)
		}
	}
	want := map[string]string{"namespaces": "get list watch", "pods": "get list watch", "nodes": "get", "events": "create patch",
		"networking.k8s.io/networkpolicies": "get list watch"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("rights (-want +got):\n%s", d)
	}
}

func TestSidecar(t *testing.T) {
	cases := []struct {
		overlay, daemonSet, namespace, account string
		theirs                                 []string
		flags                                  map[string]string
	}{
		{"weave-net", "weave-net", "kube-system", "weave-net", []string{"weave"},
			map[string]string{"WEAVE_NPC_HOOK": "none", "WEAVE_NPC_POD_INTERFACE": "weave"}},
		{"flannel", "kube-flannel-ds", "kube-flannel", "flannel", []string{"kube-flannel"},
			map[string]string{"WEAVE_NPC_POD_INTERFACE": "cni0"}},
		{"kindnet", "kindnet", "kube-system", "kindnet", []string{"kindnet-cni"}, map[string]string{}},
		{"bridge", "bridge-cni", "network", "bridge-cni", []string{"configure"}, map[string]string{"WEAVE_NPC_POD_INTERFACE": "cni0"}},
	}
	for _, c := range cases {
		t.Run(c.overlay, func(t *testing.T) {
			plain, err := os.ReadFile(filepath.Join("testdata", c.overlay+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			all := overlaid(t, c.overlay)
			ds := decode[appsv1.DaemonSet](t, all, "DaemonSet "+c.daemonSet)
			pod := ds.Spec.Template.Spec
			ours := container(t, pod, "weave-npc")
			checkConfined(t, pod, ours)
			if len(pod.Containers) != len(c.theirs)+1 {
				t.Errorf("there are %d containers", len(pod.Containers))
			}
			for _, name := range c.theirs {
				if !strings.Contains(string(plain), "image: "+container(t, pod, name).Image) {
					t.Errorf("container %s is not as it was", name)
				}
			}
			flags := map[string]string{}
			for _, e := range ours.Env {
				if e.ValueFrom == nil {
					flags[e.Name] = e.Value
				} else if e.Name != "WEAVE_NPC_NODE_NAME" {
					t.Errorf("$%s is left of another container", e.Name)
				}
			}
			if d := cmp.Diff(c.flags, flags); d != "" {
				t.Errorf("flags (-want +got):\n%s", d)
			}
			if ours.Args != nil {
				t.Errorf("arguments %v are left of another container", ours.Args)
			}
			checkSame(t, ours)
			want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: c.account, Namespace: c.namespace}}
			if d := cmp.Diff(want, decode[rbacv1.ClusterRoleBinding](t, all, "ClusterRoleBinding weave-npc").Subjects); d != "" {
				t.Errorf("the rights are whose (-want +got):\n%s", d)
			}
			if got := ds.Spec.Template.Labels["network-policy-controller"]; got != "weave-npc" {
				t.Errorf("the PodMonitor does not find the pods, their label is %q", got)
			}
		})
	}
}

// checkSame checks that a sidecar is the container of the base, but for its flags.
func checkSame(t *testing.T, sidecar corev1.Container) {
	t.Helper()
	ds := decode[appsv1.DaemonSet](t, kustomized(t, prod+"/base"), "DaemonSet weave-npc")
	own := container(t, ds.Spec.Template.Spec, "weave-npc")
	own.Env, sidecar.Env = nil, nil
	if d := cmp.Diff(own, sidecar); d != "" {
		t.Errorf("the sidecar is not the base's container (-base +sidecar):\n%s", d)
	}
}

// monitored is an overlay of the base with the PodMonitor.
const monitored = `resources: [../base]
components: [../monitoring]
`

func TestChartRendersWhatKustomizeRenders(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(prod)); err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "monitored")
	if err := os.Mkdir(overlay, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(monitored), 0o644); err != nil {
		t.Fatal(err)
	}
	cases := []struct{ name, dir, values string }{
		{"as they are", prod + "/base", ""},
		{"with a PodMonitor", overlay, "podMonitor: true"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(plain(t, kustomized(t, c.dir)), plain(t, charted(t, c.values))); d != "" {
				t.Errorf("they differ (-kustomize +Helm):\n%s", d)
			}
		})
	}
}

// plain are objects as maps, whatever the order of their fields.
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

func TestChartValues(t *testing.T) {
	all := charted(t, `
image: {repository: mirror/npc, tag: v1, pullPolicy: Never}
imagePullSecrets: [{name: registry}]
flags: {pod-interface: cni0, allow-mcast: false, ulogd-pcap-size: 12}
resources: {limits: {memory: 1Gi}, requests: {memory: 200Mi}}
priorityClassName: mine
nodeSelector: {a: b}
tolerations: []
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
		ds.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.String()}
	want := []any{"mirror/npc:v1", corev1.PullNever, []corev1.LocalObjectReference{{Name: "registry"}},
		map[string]string{"WEAVE_NPC_NODE_NAME": "", "WEAVE_NPC_POD_INTERFACE": "cni0", "WEAVE_NPC_ALLOW_MCAST": "false",
			"WEAVE_NPC_ULOGD_PCAP_SIZE": "12"},
		"1Gi", "200Mi", "mine", map[string]string{"kubernetes.io/os": "linux", "a": "b"}, 0, "10%"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("values (-want +got):\n%s", d)
	}
	checkConfined(t, pod, c)
}

// TestPodMonitorFindsThePort by the name that the container gives it, and the alerts their job.
func TestPodMonitorFindsThePort(t *testing.T) {
	text, err := os.ReadFile(prod + "/monitoring/podmonitor.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Spec struct {
			Selector            struct{ MatchLabels map[string]string }
			PodMetricsEndpoints []struct {
				Port, Path  string
				Relabelings []struct{ TargetLabel, Replacement string }
			}
		}
	}
	if err := yaml.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	ds := decode[appsv1.DaemonSet](t, kustomized(t, prod+"/base"), "DaemonSet weave-npc")
	e := m.Spec.PodMetricsEndpoints[0]
	if port := container(t, ds.Spec.Template.Spec, "weave-npc").Ports[0]; port.Name != e.Port || e.Path != "/metrics" {
		t.Errorf("%s of port %s is scraped, the container's is %s", e.Path, e.Port, port.Name)
	}
	for key, value := range m.Spec.Selector.MatchLabels {
		if ds.Spec.Template.Labels[key] != value {
			t.Errorf("pods with %s=%s are looked for, ours have %q", key, value, ds.Spec.Template.Labels[key])
		}
	}
	alerts, err := os.ReadFile(prod + "/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if r := e.Relabelings[0]; r.TargetLabel != "job" || !regexp.MustCompile(`job="`+r.Replacement+`"`).Match(alerts) {
		t.Errorf("the job is %q, which the alerts do not expect", r.Replacement)
	}
}

// TestCleanupIsAJob that has the rights of the base's container and no more.
func TestCleanupIsAJob(t *testing.T) {
	text, err := os.ReadFile(prod + "/cleanup.yaml")
	if err != nil {
		t.Fatal(err)
	}
	job := decode[batchv1.Job](t, objects{"cleanup": string(text)}, "cleanup")
	ds := decode[appsv1.DaemonSet](t, kustomized(t, prod+"/base"), "DaemonSet weave-npc")
	pod, own := job.Spec.Template.Spec, container(t, ds.Spec.Template.Spec, "weave-npc")
	c := container(t, pod, "weave-npc")
	type part struct {
		Image    string
		Security *corev1.SecurityContext
		Mounts   []corev1.VolumeMount
		Volumes  []corev1.Volume
	}
	want := part{own.Image, own.SecurityContext, own.VolumeMounts, ds.Spec.Template.Spec.Volumes}
	if d := cmp.Diff(want, part{c.Image, c.SecurityContext, c.VolumeMounts, pod.Volumes}); d != "" {
		t.Errorf("it runs otherwise than weave-npc (-weave-npc +cleanup):\n%s", d)
	}
	if !slices.Equal(c.Args, []string{"cleanup"}) || pod.NodeName != "NODE" || !pod.HostNetwork {
		t.Errorf("it runs %v on node %q, on the host's network: %t", c.Args, pod.NodeName, pod.HostNetwork)
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Error("it may talk to the API server, which it does not need")
	}
}
