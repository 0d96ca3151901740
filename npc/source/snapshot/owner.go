package snapshot

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weave-npc/weave-npc/npc/source/convert"
	"github.com/weave-npc/weave-npc/npc/source/manifest"
)

// identity is what an owner reference says of an object, with its namespace. The version may be another one.
type identity struct{ group, kind, namespace, name string }

func identityOf(w *manifest.Workload) identity {
	return identity{groupOf(w.APIVersion), w.Kind, w.Namespace, w.Name}
}

func groupOf(apiVersion string) string {
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return ""
	}
	return version.Group
}

// controllerOf returns what made an object, if anything did.
func controllerOf(o metav1.Object) (identity, bool) {
	ref := metav1.GetControllerOfNoCopy(o)
	if ref == nil {
		return identity{}, false
	}
	return identity{groupOf(ref.APIVersion), ref.Kind, o.GetNamespace(), ref.Name}, true
}

// missing returns the workloads that neither a pod nor another workload stands for. Those that own a pod, directly or
// through another workload, have an existing pod. A workload that another one made, as a Deployment makes ReplicaSets,
// is left out.
func (r workloadRequest) missing() (out []*manifest.Workload) {
	known := map[identity]*manifest.Workload{}
	for _, w := range r.Workloads {
		known[identityOf(w)] = w
	}
	present := map[identity]bool{}
	for _, p := range r.Pods {
		markOwners(p, known, present)
	}
	for _, w := range r.Workloads {
		owner, owned := controllerOf(w)
		if !present[identityOf(w)] && (!owned || known[owner] == nil) {
			out = append(out, w)
		}
	}
	return out
}

// markOwners marks what owns a pod, and what owns that. A pod that has finished stands for nothing: another one will
// run.
func markOwners(p *corev1.Pod, known map[identity]*manifest.Workload, present map[identity]bool) {
	f, _ := convert.OfPod(p)
	if f.Finished {
		return
	}
	// The pod's labels show the Deployment, even if its ReplicaSet is missing.
	if f.Workload != nil && f.Workload.Kind == "Deployment" {
		present[identity{appsv1.GroupName, f.Workload.Kind, p.Namespace, f.Workload.Name}] = true
	}
	owner, owned := controllerOf(p)
	for owned && !present[owner] {
		present[owner] = true
		w := known[owner]
		if w == nil {
			return
		}
		owner, owned = controllerOf(w)
	}
}
