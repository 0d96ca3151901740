package apiclient

import (
	"context"
	"fmt"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// resource is the plural of the kind ClusterNetworkPolicy.
const resource = "clusternetworkpolicies"

// PolicyClient asks one API server for the cluster-wide policies of the group policy.networking.k8s.io: whether it has
// their kinds (Discover: a list answers 403 whether the kind exists or not), and for ClusterNetworkPolicies. Its
// methods may be called by several goroutines.
type PolicyClient struct {
	discovery rest.Interface
	objects   dynamic.Interface
}

// NewPolicyClient returns a client for the API server that client asks, and that config leads to. It makes no requests.
func NewPolicyClient(client kubernetes.Interface, config *rest.Config) (*PolicyClient, error) {
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, errors.Wrap(err, "making a client for ClusterNetworkPolicies")
	}
	return &PolicyClient{discovery: client.Discovery().RESTClient(), objects: objects}, nil
}

// List lists ClusterNetworkPolicies, each as it is stored: Decode reads them one by one, so that a bad one harms only
// itself.
func (c *PolicyClient) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := c.policies().List(ctx, o)
	if err != nil {
		return nil, err // with its status, which callers ask for
	}
	return list, nil
}

// Watch watches ClusterNetworkPolicies.
func (c *PolicyClient) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return c.policies().Watch(ctx, o)
}

// Any reports whether there are objects of a resource.
func (c *PolicyClient) Any(ctx context.Context, r schema.GroupVersionResource) (bool, error) {
	list, err := c.objects.Resource(r).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return false, errors.Wrapf(err, "listing %s", r.GroupResource())
	}
	return len(list.Items) > 0, nil
}

func (c *PolicyClient) policies() dynamic.ResourceInterface {
	return c.objects.Resource(schema.GroupVersion(v1alpha2.GroupVersion).WithResource(resource))
}

// Decode reads a stored object. Fields that are not known are left out, so that a peer of an unknown kind becomes one
// without any field. An object that cannot be read has its metadata alone, and the text is the reason.
func Decode(stored *unstructured.Unstructured) (p *v1alpha2.ClusterNetworkPolicy, ignored string) {
	p = &v1alpha2.ClusterNetworkPolicy{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, p)
	if err == nil {
		return p, ""
	}
	return &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{
		Name: stored.GetName(), UID: stored.GetUID(),
		ResourceVersion: stored.GetResourceVersion(), CreationTimestamp: stored.GetCreationTimestamp(),
	}}, fmt.Sprintf("spec: %v", err)
}

// NamesNodes reports whether a policy has nodes as peers.
func NamesNodes(p *v1alpha2.ClusterNetworkPolicy) bool {
	for i := range p.Spec.Egress {
		for j := range p.Spec.Egress[i].To {
			if p.Spec.Egress[i].To[j].Nodes != nil {
				return true
			}
		}
	}
	return false
}
