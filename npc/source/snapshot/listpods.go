package snapshot

import (
	"context"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"
)

// listPods lists the pods of a namespace, or all, page by page, and keeps only the parts that facts and owners are read
// from. Most of a pod is something else.
func listPods(ctx context.Context, client kubernetes.Interface, namespace string) (out []*corev1.Pod, err error) {
	list := pager.New(pager.SimplePageFunc(func(o metav1.ListOptions) (runtime.Object, error) {
		return client.CoreV1().Pods(namespace).List(ctx, o)
	}))
	list.PageBufferSize = 1
	err = list.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		p, ok := o.(*corev1.Pod)
		if !ok {
			return errors.Errorf("got a %T", o)
		}
		out = append(out, shortened(p))
		return nil
	})
	return out, err
}

// shortened returns the parts of a pod that its facts and its owner depend on.
func shortened(p *corev1.Pod) *corev1.Pod {
	short := &corev1.Pod{Status: p.Status}
	short.ObjectMeta = metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID,
		ResourceVersion: p.ResourceVersion, Labels: p.Labels,
		CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp,
		OwnerReferences: p.OwnerReferences}
	short.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork}
	containers := func(all []corev1.Container) (kept []corev1.Container) {
		for i := range all {
			c := &all[i]
			kept = append(kept, corev1.Container{Name: c.Name, Ports: c.Ports, RestartPolicy: c.RestartPolicy})
		}
		return kept
	}
	short.Spec.InitContainers, short.Spec.Containers = containers(p.Spec.InitContainers), containers(p.Spec.Containers)
	return short
}
