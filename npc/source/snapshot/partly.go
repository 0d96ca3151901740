package snapshot

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/weave-npc/weave-npc/npc"
)

// lister reads objects of all namespaces, or of some where the user may not read all.
type lister struct {
	client     kubernetes.Interface
	namespaces []string
}

// some lists a kind in all namespaces. Where that is forbidden, it lists it in those of the lister that are not
// forbidden too.
func some[T any](
	l lister, what string, list func(namespace string) ([]T, error),
) (all []T, unreadable npc.Partly, err error) {
	all, err = list(metav1.NamespaceAll)
	if err == nil || !apierrors.IsForbidden(err) || len(l.namespaces) == 0 {
		return all, unreadable, errors.Wrap(err, "listing "+what)
	}
	unreadable = npc.Partly{Reason: "forbidden", Said: err.Error(), Read: map[string]bool{}}
	for _, namespace := range l.namespaces {
		items, err := list(namespace)
		if apierrors.IsForbidden(err) {
			continue
		}
		if err != nil {
			return nil, unreadable, errors.Wrapf(err, "listing %s of namespace %s", what, namespace)
		}
		all, unreadable.Read[namespace] = append(all, items...), true
	}
	return all, unreadable, nil
}

func (l lister) listNamespaces(ctx context.Context) (all []*corev1.Namespace, unreadable npc.Partly, err error) {
	return some(l, "namespaces", func(namespace string) ([]*corev1.Namespace, error) {
		if namespace == metav1.NamespaceAll {
			list, err := l.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			return pointers(list.Items), nil
		}
		n, err := l.client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return []*corev1.Namespace{n}, err
	})
}

func (l lister) listPods(ctx context.Context) ([]*corev1.Pod, npc.Partly, error) {
	return some(l, "pods", func(namespace string) ([]*corev1.Pod, error) { return listPods(ctx, l.client, namespace) })
}

func (l lister) listPolicies(ctx context.Context) ([]*networkingv1.NetworkPolicy, npc.Partly, error) {
	return some(l, "network policies", func(namespace string) ([]*networkingv1.NetworkPolicy, error) {
		list, err := l.client.NetworkingV1().NetworkPolicies(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		return pointers(list.Items), nil
	})
}

// UnreadableNotes returns a sentence for each kind whose objects could not all be read.
func (o *Objects) UnreadableNotes() (notes []string) {
	for _, kind := range []struct {
		name string
		npc.Partly
	}{
		{"labels of namespaces", o.Unreadable.Namespaces},
		{"pods", o.Unreadable.Pods},
		{"network policies", o.Unreadable.Policies},
	} {
		where := "in no namespace"
		if len(kind.Read) > 0 {
			where = "only in " + strings.Join(slices.Sorted(maps.Keys(kind.Read)), ", ")
		}
		if kind.Reason != "" {
			notes = append(notes, fmt.Sprintf("%s are read %s: %s", kind.name, where, kind.Said))
		}
	}
	return notes
}
