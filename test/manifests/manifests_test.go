// Package manifests asks what the manifests of prod make of a cluster: kustomize's bases and components, and the Helm
// chart. It is a module of its own, so that neither tool is one of the product's dependencies.
package manifests

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

// decode makes an object of a rendered one, and fails if there is none, or if it has a field that objects of its kind
// have not.
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

// kustomized returns what kustomize makes of a directory.
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

// overlaid returns what kustomize makes of an overlay and a CNI's manifest.
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

// container returns the container of a pod that has the name.
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
			if v.Name == m.Name && v.EmptyDir != nil {
				mounts[m.MountPath] = "empty, " + string(v.EmptyDir.Medium)
			}
		}
	}
	if d := cmp.Diff(map[string]string{"/run/xtables.lock": "/run/xtables.lock FileOrCreate", "/run/weave-npc": "empty, Memory"}, mounts); d != "" {
		t.Errorf("mounts (-want +got):\n%s", d)
	}
	checkProbe(t, c, "/healthz", c.LivenessProbe)
	checkProbe(t, c, "/readyz", c.ReadinessProbe)
	if limit := c.Resources.Limits.Memory(); limit.Value() < 512<<20 || limit.Value() > 1<<30 {
		t.Errorf("the limit of memory is %s", limit)
	}
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
	want := map[string]string{"namespaces": "get list watch", "pods": "get list watch", "nodes": "get list watch", "events": "create patch",
		"networking.k8s.io/networkpolicies": "get list watch", "policy.networking.k8s.io/clusternetworkpolicies": "get list watch",
		"policy.networking.k8s.io/adminnetworkpolicies": "list", "policy.networking.k8s.io/baselineadminnetworkpolicies": "list"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("rights (-want +got):\n%s", d)
	}
}

// TestReadersOnlyRead shows that the roles of users who ask give no right to change or to follow anything, nor one to
// secrets.
func TestReadersOnlyRead(t *testing.T) {
	rules := decode[rbacv1.ClusterRole](t, kustomized(t, prod+"/readers"), "ClusterRole weave-npc-reader").Rules
	rules = append(rules, decode[rbacv1.Role](t, kustomized(t, prod+"/readers/namespace"), "Role weave-npc-reader").Rules...)
	known := []string{"namespaces", "pods", "networkpolicies", "clusternetworkpolicies", "nodes", "services", "endpointslices",
		"ingresses", "httproutes"}
	for _, r := range rules {
		for _, verb := range r.Verbs {
			if verb != "get" && verb != "list" {
				t.Errorf("%s %v", verb, r.Resources)
			}
		}
		for _, resource := range r.Resources {
			if !slices.Contains(known, resource) {
				t.Errorf("a right to %s", resource)
			}
		}
	}
	if len(rules) != 11 {
		t.Errorf("there are %d rules", len(rules))
	}
}

// TestCleanupIsAJob that has the rights of the base's container and no more. It serves nothing.
func TestCleanupIsAJob(t *testing.T) {
	text, err := os.ReadFile(prod + "/cleanup.yaml")
	if err != nil {
		t.Fatal(err)
	}
	job := decode[batchv1.Job](t, objects{"cleanup": string(text)}, "cleanup")
	checkJob(t, job, decode[appsv1.DaemonSet](t, kustomized(t, prod+"/base"), "DaemonSet weave-npc"), "NODE", "cleanup")
}

// checkJob checks that a Job runs weave-npc on a node with arguments, with the rights of the DaemonSet's container and
// no more.
func checkJob(t *testing.T, job *batchv1.Job, ds *appsv1.DaemonSet, node string, args ...string) {
	t.Helper()
	pod, own := job.Spec.Template.Spec, container(t, ds.Spec.Template.Spec, "weave-npc")
	c := container(t, pod, "weave-npc")
	type part struct {
		Image    string
		Security *corev1.SecurityContext
		Mounts   []corev1.VolumeMount
		Volumes  []corev1.Volume
	}
	const served = "weave-npc-run"
	want := part{own.Image, own.SecurityContext, slices.DeleteFunc(slices.Clone(own.VolumeMounts), func(m corev1.VolumeMount) bool { return m.Name == served }),
		slices.DeleteFunc(slices.Clone(ds.Spec.Template.Spec.Volumes), func(v corev1.Volume) bool { return v.Name == served })}
	if d := cmp.Diff(want, part{c.Image, c.SecurityContext, c.VolumeMounts, pod.Volumes}); d != "" {
		t.Errorf("it runs otherwise than weave-npc (-weave-npc +Job):\n%s", d)
	}
	if !slices.Equal(c.Args, args) || pod.NodeName != node || !pod.HostNetwork {
		t.Errorf("it runs %v on node %q, on the host's network: %t", c.Args, pod.NodeName, pod.HostNetwork)
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Error("it may talk to the API server, which it does not need")
	}
}

// TestRelayIsConfined: it needs no rights on its node, may write nothing but questions about tokens, and no policy can
// isolate it.
func TestRelayIsConfined(t *testing.T) {
	all := kustomized(t, withComponents(t, "../relay"))
	pod := decode[appsv1.Deployment](t, all, "Deployment weave-npc-relay").Spec.Template.Spec
	c := container(t, pod, "weave-npc-relay")
	yes, no, none := true, false, int64(65532)
	want := &corev1.SecurityContext{RunAsUser: &none, RunAsGroup: &none, RunAsNonRoot: &yes, Privileged: &no, AllowPrivilegeEscalation: &no,
		ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
	if d := cmp.Diff(want, c.SecurityContext); d != "" {
		t.Errorf("the container is not confined as it should be (-want +got):\n%s", d)
	}
	if !pod.HostNetwork || pod.PriorityClassName != "system-cluster-critical" || pod.Affinity == nil || pod.Affinity.PodAntiAffinity == nil {
		t.Errorf("host network: %t, priority class: %q, affinity: %v", pod.HostNetwork, pod.PriorityClassName, pod.Affinity)
	}
	got := map[string]string{}
	for _, r := range decode[rbacv1.ClusterRole](t, all, "ClusterRole weave-npc-relay").Rules {
		for _, resource := range r.Resources {
			got[resource] = strings.Join(r.Verbs, " ")
		}
	}
	rights := map[string]string{"namespaces": "list watch", "pods": "list watch", "nodes": "list watch", "networkpolicies": "list watch",
		"clusternetworkpolicies": "list watch", "tokenreviews": "create"}
	if d := cmp.Diff(rights, got); d != "" {
		t.Errorf("rights (-want +got):\n%s", d)
	}
}
