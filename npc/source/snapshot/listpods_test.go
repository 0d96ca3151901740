package snapshot

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/npc/source/convert"
)

// TestShortenedPods shows that what is left of a pod has the same facts and owners.
func TestShortenedPods(t *testing.T) {
	always, controller := corev1.ContainerRestartPolicyAlways, true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", Labels: map[string]string{"app": "web"},
		Annotations: map[string]string{"long": "text"}, CreationTimestamp: metav1.Unix(7, 0), DeletionTimestamp: &metav1.Time{Time: metav1.Unix(9, 0).Time},
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-7d4", Controller: &controller}}}}
	p.Spec = corev1.PodSpec{NodeName: "node1", HostNetwork: true, Volumes: []corev1.Volume{{Name: "data"}},
		InitContainers: []corev1.Container{{Name: "side", RestartPolicy: &always, Ports: []corev1.ContainerPort{{Name: "s", ContainerPort: 1}}}},
		Containers:     []corev1.Container{{Name: "main", Image: "main", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}}}}
	start := metav1.Unix(8, 0)
	p.Status = corev1.PodStatus{Phase: corev1.PodSucceeded, StartTime: &start, PodIPs: []corev1.PodIP{{IP: "10.32.1.2"}},
		HostIPs: []corev1.HostIP{{IP: "172.31.0.1"}}}
	want, _ := convert.OfPod(p)
	short := convert.ReducePod(p)
	got, _ := convert.OfPod(short)
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if owner := metav1.GetControllerOf(short); owner == nil || owner.Name != "web-7d4" {
		t.Errorf("its owner is %v", owner)
	}
	if short.Annotations != nil || short.Spec.Volumes != nil || short.Spec.Containers[0].Image != "" {
		t.Errorf("%+v", short)
	}
}
