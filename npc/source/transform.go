package source

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc/source/apiclient"
	"github.com/weave-npc/weave-npc/npc/source/convert"
)

// stored is the part of an object that an informer stores.
type stored[T any] struct {
	namespace, name string
	uid             types.UID
	version         string   // the resource version
	ignored         []string // texts for parts of the object that cannot be read
	// facts is nil once the sink has the facts, so that they are not in memory twice.
	facts *T
}

// key returns the object's name, after its namespace if it has one.
func (s *stored[T]) key() string { return cache.NewObjectName(s.namespace, s.name).String() }

// GetObjectMeta implements metav1.ObjectMetaAccessor, which client-go requires.
func (s *stored[T]) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: s.namespace, Name: s.name, UID: s.uid, ResourceVersion: s.version}
}

// newStored returns the stored part of an object. It copies the texts: a text that shared the object's memory would
// keep all of that from being freed.
func newStored[T any](m *metav1.ObjectMeta, facts *T, ignored []string) *stored[T] {
	text := m.Namespace + m.Name + string(m.UID) + m.ResourceVersion
	next := func(n int) (part string) {
		part, text = text[:n], text[n:]
		return part
	}
	return &stored[T]{namespace: next(len(m.Namespace)), name: next(len(m.Name)), uid: types.UID(next(len(m.UID))),
		version: next(len(m.ResourceVersion)), ignored: ignored, facts: facts}
}

// transformNamespace is the transform of the namespaces' informer.
func transformNamespace(obj any) (any, error) {
	n, ok := obj.(*corev1.Namespace)
	if !ok {
		return obj, nil
	}
	f, ignored := convert.OfNamespace(n)
	return newStored(&n.ObjectMeta, &f, ignored), nil
}

// transformPod is the transform of the pods' informer.
func transformPod(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	f, ignored := convert.OfPod(p)
	s := newStored(&p.ObjectMeta, &f, ignored)
	f.Namespace, f.Name, f.UID = s.namespace, s.name, s.uid
	return s, nil
}

// transformNode is the transform of the Nodes' informer.
func transformNode(obj any) (any, error) {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	f := convert.OfNode(n)
	s := newStored(&n.ObjectMeta, &f, nil)
	f.Name, f.UID = s.name, s.uid
	return s, nil
}

// transformPolicy is the transform of the policies' informer.
func transformPolicy(obj any) (any, error) {
	p, ok := obj.(*networkingv1.NetworkPolicy)
	if !ok {
		return obj, nil
	}
	return newStored(&p.ObjectMeta, convert.ReducePolicy(p), nil), nil
}

// transformClusterPolicy is the transform of the ClusterNetworkPolicies' informer, and of those in manifests.
func transformClusterPolicy(obj any) (any, error) {
	var p *v1alpha2.ClusterNetworkPolicy
	var ignored []string
	switch o := obj.(type) {
	case *v1alpha2.ClusterNetworkPolicy:
		p = o
	case *unstructured.Unstructured:
		var why string
		if p, why = apiclient.Decode(o); why != "" {
			ignored = []string{why}
		}
	default:
		return obj, nil
	}
	return newStored(&p.ObjectMeta, &v1alpha2.ClusterNetworkPolicy{
		ObjectMeta: convert.PolicyMeta(&p.ObjectMeta), Spec: p.Spec}, ignored), nil
}
