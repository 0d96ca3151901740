package snapshot

import (
	"context"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/source"
	"github.com/weave-npc/weave-npc/npc/source/apiclient"
	"github.com/weave-npc/weave-npc/npc/source/convert"
)

// Objects are the objects of a cluster that facts come from. Those of manifests are in the order of their names, and
// pods that stand for workloads after the others.
type Objects struct {
	Namespaces []*corev1.Namespace
	Pods       []*corev1.Pod
	Policies   []*networkingv1.NetworkPolicy
	// ClusterPolicies are those that could be read, and ClusterPoliciesUnreadable the reason why not all could be;
	// empty if they were.
	ClusterPolicies           []*v1alpha2.ClusterNetworkPolicy
	ClusterPoliciesUnreadable string
	// Nodes are those of manifests, or of an API server if a cluster policy names nodes as peers. NodesUnreadable is
	// the reason why they could not be read.
	Nodes           []*corev1.Node
	NodesUnreadable string
	// Positions are where the objects are in manifests; nil if they are from an API server.
	Positions *Positions
	// Unreadable is what else could not be read.
	Unreadable npc.Unreadable
	// StagedEnforced is set if nodes are known to enforce policies that are annotated as staged.
	StagedEnforced bool
	// Unused are objects of manifests that may be intended to be used.
	Unused []Unused
	// Notes are sentences for the user about pods that are not in the manifests, and about what of these is not read.
	Notes []string
}

// Empty reports whether there are no objects, also none that is not used and may be intended to be.
func (o Objects) Empty() bool {
	return len(o.Namespaces)+len(o.Pods)+len(o.Policies)+len(o.ClusterPolicies)+len(o.Nodes)+len(o.Unused) == 0
}

// List reads the objects of an API server, ClusterNetworkPolicies only with a client for them, and Nodes only if one of
// these names nodes as peers. Kinds that the user may not list in all namespaces are read in those that are given; it
// is an error if there is none with pods or policies that he may list.
func List(
	ctx context.Context, client kubernetes.Interface, clusterPolicies *apiclient.PolicyClient, namespaces ...string,
) (objects Objects, err error) {
	l := lister{client, namespaces}
	if objects.Namespaces, objects.Unreadable.Namespaces, err = l.listNamespaces(ctx); err != nil {
		return objects, err
	}
	if objects.Pods, objects.Unreadable.Pods, err = l.listPods(ctx); err != nil {
		return objects, err
	}
	if objects.Policies, objects.Unreadable.Policies, err = l.listPolicies(ctx); err != nil {
		return objects, err
	}
	if u := &objects.Unreadable; u.Pods.Reason != "" && u.Policies.Reason != "" &&
		len(u.Pods.Read)+len(u.Policies.Read) == 0 {
		return objects, errors.Errorf("neither pods nor network policies can be listed, in all namespaces or in %s: %s",
			strings.Join(namespaces, ", "),
			u.Pods.Said)
	}
	if clusterPolicies != nil {
		if objects.ClusterPolicies, err = listClusterPolicies(ctx, clusterPolicies); err != nil {
			objects.ClusterPoliciesUnreadable = err.Error()
		}
	}
	if slices.ContainsFunc(objects.ClusterPolicies, apiclient.NamesNodes) {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			objects.NodesUnreadable = errors.Wrap(err, "listing nodes").Error()
			return objects, nil
		}
		objects.Nodes = pointers(nodes.Items)
	}
	return objects, nil
}

// listClusterPolicies lists ClusterNetworkPolicies; there are none if the API server does not have the kind.
func listClusterPolicies(
	ctx context.Context, client *apiclient.PolicyClient,
) (out []*v1alpha2.ClusterNetworkPolicy, err error) {
	p, err := client.Discover(ctx)
	switch {
	case err != nil:
		return nil, err
	case p.Unknown() != "":
		return nil, errors.New(p.Unknown())
	case !p.Served:
		return nil, client.ConfirmAbsence(ctx)
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
		decoded, _ := apiclient.Decode(stored)
		out = append(out, decoded)
		return nil
	})
	return out, err
}

// Deliver delivers everything to sink, as a source does that is connected and synced.
func (o Objects) Deliver(sink source.Sink) {
	for _, kind := range []string{source.Namespaces, source.Pods, source.NetworkPolicies,
		source.ClusterNetworkPolicies, source.Nodes} {
		sink.SetConnected(kind, true)
	}
	for _, n := range o.Namespaces {
		f, _ := convert.OfNamespace(n)
		sink.SetNamespace(f)
	}
	declared, keeps := sink.(interface {
		SetDeclaredPorts(namespace, name string, ports []npc.NamedPort)
	})
	for _, p := range o.Pods {
		f, _ := convert.OfPod(p)
		sink.SetPod(f)
		if keeps {
			declared.SetDeclaredPorts(p.Namespace, p.Name, convert.DeclaredPorts(p))
		}
	}
	for _, n := range o.Nodes {
		sink.SetNode(convert.OfNode(n))
	}
	for _, p := range o.Policies {
		sink.SetPolicy(p)
	}
	for _, p := range o.ClusterPolicies {
		sink.SetClusterPolicy(p)
	}
	sink.SetSynced()
}
