// Package snapshot reads once what package source follows: the objects of an API server or of a directory of manifests, what leads to
// pods, and what is known of a node.
//
//	manifests, err := snapshot.Open("manifests/", os.Stdin)
//	objects, err := manifests.Objects() // or List(ctx, client, policies)
//	objects.Deliver(sink)
//
// A right that the user lacks costs only what needs it, where the caller can do without.
package snapshot

import (
	"context"
	"slices"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc/source"
	"github.com/weave-npc/weave-npc/npc/source/facts"
	"github.com/weave-npc/weave-npc/npc/source/policyapi"
)

// Objects are the objects of a cluster that facts come from. Those of manifests are in the order of their names, and pods that
// stand for workloads after the others.
type Objects struct {
	Namespaces []*corev1.Namespace
	Pods       []*corev1.Pod
	Policies   []*networkingv1.NetworkPolicy
	// ClusterPolicies are those that could be read, and ClusterPoliciesUnread the reason why not all could be; empty if they were.
	ClusterPolicies       []*v1alpha2.ClusterNetworkPolicy
	ClusterPoliciesUnread string
	// Nodes are those of manifests, or of an API server if a cluster policy names nodes as peers. NodesUnread is the reason why they could not
	// be read.
	Nodes       []*corev1.Node
	NodesUnread string
	// Notes are sentences for the user about pods that are not in the manifests.
	Notes []string
}

// List reads the objects of an API server, ClusterNetworkPolicies only with a client for them, and Nodes only if one of these names nodes as peers.
func List(ctx context.Context, client kubernetes.Interface, clusterPolicies *policyapi.Client) (Objects, error) {
	var objects Objects
	namespaces, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return objects, errors.Wrap(err, "listing namespaces")
	}
	if objects.Pods, err = listPods(ctx, client); err != nil {
		return objects, errors.Wrap(err, "listing pods")
	}
	policies, err := client.NetworkingV1().NetworkPolicies(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return objects, errors.Wrap(err, "listing network policies")
	}
	objects.Namespaces, objects.Policies = pointers(namespaces.Items), pointers(policies.Items)
	if clusterPolicies != nil {
		if objects.ClusterPolicies, err = listClusterPolicies(ctx, clusterPolicies); err != nil {
			objects.ClusterPoliciesUnread = err.Error()
		}
	}
	if slices.ContainsFunc(objects.ClusterPolicies, policyapi.NamesNodes) {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			objects.NodesUnread = errors.Wrap(err, "listing nodes").Error()
			return objects, nil
		}
		objects.Nodes = pointers(nodes.Items)
	}
	return objects, nil
}

// listClusterPolicies lists ClusterNetworkPolicies; there are none if the API server does not have the kind.
func listClusterPolicies(ctx context.Context, client *policyapi.Client) (out []*v1alpha2.ClusterNetworkPolicy, err error) {
	p, err := client.Discover(ctx)
	switch {
	case err != nil:
		return nil, err
	case p.Unknown() != "":
		return nil, errors.New(p.Unknown())
	case !p.Served:
		return nil, nil
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, errors.Wrap(err, "listing cluster network policies")
	}
	err = meta.EachListItem(list, func(o runtime.Object) error {
		stored, ok := o.(*unstructured.Unstructured)
		if !ok {
			return errors.Errorf("got a %T", o)
		}
		decoded, _ := policyapi.Decode(stored)
		out = append(out, decoded)
		return nil
	})
	return out, err
}

// Deliver delivers everything to sink, as a source does that is connected and synced.
func (o Objects) Deliver(sink source.Sink) {
	for _, kind := range []string{source.Namespaces, source.Pods, source.NetworkPolicies, source.ClusterNetworkPolicies, source.Nodes} {
		sink.SetConnected(kind, true)
	}
	for _, n := range o.Namespaces {
		f, _ := facts.OfNamespace(n)
		sink.SetNamespace(f)
	}
	for _, p := range o.Pods {
		f, _ := facts.OfPod(p)
		sink.SetPod(f)
	}
	for _, n := range o.Nodes {
		sink.SetNode(facts.OfNode(n))
	}
	for _, p := range o.Policies {
		sink.SetPolicy(p)
	}
	for _, p := range o.ClusterPolicies {
		sink.SetClusterPolicy(p)
	}
	sink.SetSynced()
}
