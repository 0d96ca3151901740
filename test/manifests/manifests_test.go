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
	text, err := kustomize(dir)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, text)
}

func kustomize(dir string) ([]byte, error) {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, err
	}
	return resources.AsYaml()
}

// overlaid is what kustomize makes of an overlay and a CNI's manifest.
func overlaid(t *testing.T, overlay string) objects {
	t.Helper()
	return kustomized(t, overlayDir(t, overlay, manifestOf(t, overlay)))
}

// manifestOf returns the manifest of the CNI that an overlay is for.
func manifestOf(t *testing.T, overlay string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", overlay+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// overlayDir returns the directory of a copy of an overlay, with a CNI's manifest in it.
func overlayDir(t *testing.T, overlay, manifest string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(prod)); err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(dir, "overlays", overlay)
	write(t, filepath.Join(dir, "cni.yaml"), manifest)
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// edit replaces texts in a file, which has each of them.
func edit(t *testing.T, path string, oldNew ...string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(oldNew); i += 2 {
		if !strings.Contains(string(text), oldNew[i]) {
			t.Fatalf("%s has no %q", path, oldNew[i])
		}
	}
	write(t, path, strings.NewReplacer(oldNew...).Replace(string(text)))
}

// charted is what Helm makes of the chart with the given values.
func charted(t *testing.T, values string) objects {
	t.Helper()
	text, err := render(t, values)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, []byte(text))
}

// render renders the chart with the given values.
func render(t *testing.T, values string) (string, error) {
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
		return "", err
	}
	rendered, err := engine.Render(chart, all)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, r := range rendered {
		text.WriteString("---\n" + r + "\n")
	}
	return text.String(), nil
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
	if pod.EnableServiceLinks == nil || *pod.EnableServiceLinks {
		t.Error("a Service called weave-npc would give the container variables that look like flags")
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

// defaultContainer is the annotation that names the container that kubectl takes for the pod's.
const defaultContainer = "kubectl.kubernetes.io/default-container"

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
			plain := manifestOf(t, c.overlay)
			all := overlaid(t, c.overlay)
			ds := decode[appsv1.DaemonSet](t, all, "DaemonSet "+c.daemonSet)
			pod := ds.Spec.Template.Spec
			ours := container(t, pod, "weave-npc")
			checkConfined(t, pod, ours)
			if len(pod.Containers) != len(c.theirs)+1 {
				t.Errorf("there are %d containers", len(pod.Containers))
			}
			for _, name := range c.theirs {
				if !strings.Contains(plain, "image: "+container(t, pod, name).Image) {
					t.Errorf("container %s is not as it was", name)
				}
			}
			if got := ds.Spec.Template.Annotations[defaultContainer]; got != c.theirs[0] {
				t.Errorf("kubectl logs shows container %q, not the CNI's", got)
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

// anotherDaemonSet makes a DaemonSet of a name, with a service account and a container of its own.
func anotherDaemonSet(name, account string) string {
	return strings.NewReplacer("NAME", name, "ACCOUNT", account).Replace(`---
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: NAME
  namespace: kube-flannel
spec:
  selector: {matchLabels: {app: NAME}}
  template:
    metadata:
      labels: {app: NAME}
    spec:
      serviceAccountName: ACCOUNT
      containers:
        - name: kube-flannel
          image: flannel
`)
}

// checkSidecarIn checks which of the rendered DaemonSets weave-npc is in, and whose service account has its rights.
func checkSidecarIn(t *testing.T, all objects, account string, daemonSets ...string) {
	t.Helper()
	for name := range all {
		kind, name, _ := strings.Cut(name, " ")
		if kind != "DaemonSet" {
			continue
		}
		template := decode[appsv1.DaemonSet](t, all, "DaemonSet "+name).Spec.Template
		if !slices.Contains(daemonSets, name) {
			if template.Labels["network-policy-controller"] != "" || len(template.Annotations) > 0 || len(template.Spec.Containers) != 1 {
				t.Errorf("%s is not as it was: %v", name, template)
			}
			continue
		}
		ours := container(t, template.Spec, "weave-npc")
		checkConfined(t, template.Spec, ours)
		if got := template.Annotations[defaultContainer]; got != "kube-flannel" {
			t.Errorf("kubectl logs shows container %q of %s", got, name)
		}
		if !slices.Contains(ours.Env, corev1.EnvVar{Name: "WEAVE_NPC_POD_INTERFACE", Value: "cni0"}) {
			t.Errorf("weave-npc in %s has the flags %v", name, ours.Env)
		}
	}
	want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: account, Namespace: "kube-flannel"}}
	if d := cmp.Diff(want, decode[rbacv1.ClusterRoleBinding](t, all, "ClusterRoleBinding weave-npc").Subjects); d != "" {
		t.Errorf("the rights are whose (-want +got):\n%s", d)
	}
}

// TestSidecarAmongSeveralDaemonSets has manifests with more than one DaemonSet, in the ways of docs/install.md.
func TestSidecarAmongSeveralDaemonSets(t *testing.T) {
	t.Run("an overlay finds its own", func(t *testing.T) {
		manifest := manifestOf(t, "flannel") + anotherDaemonSet("kube-flannel-ds-windows-amd64", "windows")
		checkSidecarIn(t, kustomized(t, overlayDir(t, "flannel", manifest)), "flannel", "kube-flannel-ds")
	})
	t.Run("one that has another name", func(t *testing.T) {
		dir := overlayDir(t, "flannel", anotherDaemonSet("agent", "agent")+anotherDaemonSet("helper", "helper"))
		edit(t, filepath.Join(dir, "daemonset", "kustomization.yaml"), "kube-flannel-ds", "agent")
		checkSidecarIn(t, kustomized(t, dir), "agent", "agent")
	})
	t.Run("one for each architecture", func(t *testing.T) {
		dir := overlayDir(t, "flannel", anotherDaemonSet("kube-flannel-ds-amd64", "flannel")+
			anotherDaemonSet("kube-flannel-ds-arm64", "flannel")+anotherDaemonSet("helper", "helper"))
		edit(t, filepath.Join(dir, "daemonset", "kustomization.yaml"),
			"target: {kind: DaemonSet, name: kube-flannel-ds}", "target: {kind: DaemonSet, name: kube-flannel-ds-.*}",
			"source: {kind: DaemonSet, name: kube-flannel-ds,", "source: {kind: DaemonSet, name: kube-flannel-ds-amd64,")
		checkSidecarIn(t, kustomized(t, dir), "flannel", "kube-flannel-ds-amd64", "kube-flannel-ds-arm64")
	})
	t.Run("the component for the only one fails", func(t *testing.T) {
		_, err := kustomize(overlayDir(t, "bridge", anotherDaemonSet("agent", "agent")+anotherDaemonSet("helper", "helper")))
		if err == nil || !strings.Contains(err.Error(), "multiple matches for selector DaemonSet") {
			t.Errorf("the error is %v", err)
		}
	})
	t.Run("and with the DaemonSet named does not", func(t *testing.T) {
		dir := overlayDir(t, "bridge", anotherDaemonSet("agent", "agent")+anotherDaemonSet("helper", "helper"))
		if err := os.CopyFS(filepath.Join(dir, "daemonset"), os.DirFS(prod+"/overlays/flannel/daemonset")); err != nil {
			t.Fatal(err)
		}
		edit(t, filepath.Join(dir, "daemonset", "kustomization.yaml"), "kube-flannel-ds", "agent")
		edit(t, filepath.Join(dir, "kustomization.yaml"), "resources: [cni.yaml]", "resources: [cni.yaml, ../../rbac]",
			"components: [../../sidecar]", "components: [daemonset, ../../sidecar/container]")
		checkSidecarIn(t, kustomized(t, dir), "agent", "agent")
	})
}

// TestSidecarIsAppliedAgain renders a DaemonSet as it is in a cluster that has weave-npc in it already.
func TestSidecarIsAppliedAgain(t *testing.T) {
	once := overlaid(t, "kindnet")
	twice := kustomized(t, overlayDir(t, "kindnet", once["DaemonSet kindnet"]))
	if d := cmp.Diff(plain(t, once)["DaemonSet kindnet"], plain(t, twice)["DaemonSet kindnet"]); d != "" {
		t.Errorf("it is another the second time (-once +twice):\n%s", d)
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
		`{gate: null}`:                               "",
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
		`flags: {pod-interfac: cni0}`:                                 "flags.pod-interfac is unknown: did you mean flags.pod-interface?",
		`flags: {podInterface: cni0}`:                                 "flags.podInterface is unknown: did you mean flags.pod-interface?",
		`flags: {pod_cidr: 10.0.0.0/8}`:                               "flags.pod_cidr is unknown: did you mean flags.pod-cidr?",
		`flags: {frobnicate: true}`:                                   "flags.frobnicate is unknown",
		`flags: {node-name: a}`:                                       "flags.node-name is for the chart to set",
		`flags: {gate: {mode: open}}`:                                 "flags.gate is a map",
		`flag: {pod-interface: cni0}`:                                 "flag is unknown: did you mean flags?",
		`image: {tagg: v1}`:                                           "image.tagg is unknown: did you mean image.tag?",
		`flags: {metrics-addr: "6781"}`:                               `flags.metrics-addr: "6781" is no address and port`,
		`flags: {metrics-addr: "::1:6781"}`:                           `flags.metrics-addr: "::1:6781" is no address and port`,
		`flags: {metrics-addr: ":0"}`:                                 `flags.metrics-addr: ":0" has no port from 1 to 65535`,
		`flags: {metrics-addr: ":70000"}`:                             `flags.metrics-addr: ":70000" has no port from 1 to 65535`,
		`{podMonitor: true, flags: {metrics-addr: ""}}`:               "podMonitor: Prometheus does not reach",
		`{podMonitor: true, flags: {metrics-addr: "127.0.0.1:6781"}}`: "podMonitor: Prometheus does not reach",
		`{podMonitor: true, flags: {metrics-addr: "[::1]:6781"}}`:     "podMonitor: Prometheus does not reach",
	} {
		if text, err := render(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v\n%s", values, err, text)
		}
	}
}

// TestChartKnowsAllFlags compares the chart's flags with those of docs/flags.md, which is written from the code.
func TestChartKnowsAllFlags(t *testing.T) {
	page, err := os.ReadFile("../../docs/flags.md")
	if err != nil {
		t.Fatal(err)
	}
	_, daemon, _ := strings.Cut(string(page), "\n## weave-npc\n")
	daemon, _, _ = strings.Cut(daemon, "\n## ")
	var flags []string
	for _, row := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)`").FindAllStringSubmatch(daemon, -1) {
		if row[1] != "node-name" {
			flags = append(flags, row[1])
		}
	}
	text, err := os.ReadFile(prod + "/chart/templates/_flags.tpl")
	if err != nil {
		t.Fatal(err)
	}
	_, known, _ := strings.Cut(string(text), `{{- define "weave-npc.known" -}}`)
	known, _, _ = strings.Cut(known, "{{- end }}")
	slices.Sort(flags)
	if d := cmp.Diff(flags, strings.Fields(known)); d != "" || len(flags) == 0 {
		t.Errorf("flags (-docs/flags.md +chart):\n%s", d)
	}
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
