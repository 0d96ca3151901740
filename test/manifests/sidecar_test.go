package manifests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// defaultContainer is the annotation that names the container that kubectl takes for the pod's.
const defaultContainer = "kubectl.kubernetes.io/default-container"

func TestSidecar(t *testing.T) {
	cases := []struct {
		overlay, daemonSet, namespace, account string
		theirs                                 []string
		flags                                  map[string]string
	}{
		{"weave-net", "weave-net", "kube-system", "weave-net", []string{"weave"},
			map[string]string{"WEAVE_NPC_FORWARD_JUMP": "none", "WEAVE_NPC_POD_INTERFACE": "weave"}},
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

// TestSidecarAmongSeveralDaemonSets has manifests with more than one DaemonSet, as docs/install.md describes.
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

// checkSame checks that a sidecar is the container of the base, except for its flags.
func checkSame(t *testing.T, sidecar corev1.Container) {
	t.Helper()
	ds := decode[appsv1.DaemonSet](t, kustomized(t, prod+"/base"), "DaemonSet weave-npc")
	own := container(t, ds.Spec.Template.Spec, "weave-npc")
	own.Env, sidecar.Env = nil, nil
	if d := cmp.Diff(own, sidecar); d != "" {
		t.Errorf("the sidecar is not the base's container (-base +sidecar):\n%s", d)
	}
}
