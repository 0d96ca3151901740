package snapshot

import (
	"context"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/weave-npc/weave-npc/npc/source/convert"
)

// listPods lists the pods of a namespace, or all, page by page, and keeps only what facts and owners are read from.
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
		out = append(out, convert.ReducePod(p))
		return nil
	})
	return out, err
}
