package main

import (
	"context"
	"time"

	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/weave-npc/weave-npc/test/controlplane/conformance/cluster"
)

const (
	// baseSelector matches the namespaces of the suite.
	baseSelector = "conformance-house"
	// removalLimit is how long the removal of policies may take.
	removalLimit = time.Minute
)

// Resources of the API server.
var (
	policies = schema.GroupVersionResource{
		Group: "policy.networking.k8s.io", Version: "v1alpha2", Resource: "clusternetworkpolicies",
	}
	definitions = schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	}
)

// kind is the kind ClusterNetworkPolicy of a cluster.
type kind struct {
	client          dynamic.Interface
	bundle, channel string // of its resource definition
}

// findKind looks for the kind in a cluster that the suite can run on, by the name of its host and the number of its
// nodes. Every error names a remedy.
func findKind(ctx context.Context, client dynamic.Interface, host string, nodes int, experimental bool) (*kind, error) {
	k := &kind{client: client, bundle: "unknown", channel: "unknown"}
	existing, err := client.Resource(policies).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, errors.Errorf("%s has no %s of %s: apply config/crd of %s %s to it, or say SUITE=NetworkPolicy",
			host, suiteName, policies.GroupVersion(), suiteModule, suiteVersion())
	case err != nil:
		return nil, errors.Wrapf(err, "%s does not list its %s", host, policies.Resource)
	case len(existing.Items) > 0:
		return nil, errors.Errorf("%s has %d %s, %s among them: the suite needs a cluster without, "+
			"where it may make one of any name",
			host, len(existing.Items), policies.Resource, existing.Items[0].GetName())
	case nodes < 2:
		return nil, errors.Errorf("only one node of %s is ready and takes pods: "+
			"the suite needs two for its pods in the network of nodes", host)
	}
	definition, err := client.Resource(definitions).Get(ctx, policies.GroupResource().String(), metav1.GetOptions{})
	if err != nil {
		return nil, errors.Wrapf(err, "%s does not show the resource definition of %s", host, policies.Resource)
	}
	if v := definition.GetAnnotations()["policy.networking.k8s.io/bundle-version"]; v != "" {
		k.bundle = v
	}
	if v := definition.GetAnnotations()["policy.networking.k8s.io/channel"]; v != "" {
		k.channel = v
	}
	if experimental && k.channel == "standard" {
		return nil, errors.Errorf("%s has the standard resource definition of %s, "+
			"and EXPERIMENTAL=1 needs the experimental one", host, policies.Resource)
	}
	return k, nil
}

// cleanup removes what the suite may have left: its policies, which are all that there are, and its namespaces.
func (k *kind) cleanup(c *cluster.Cluster) error {
	ctx, cancel := context.WithTimeout(context.Background(), removalLimit)
	defer cancel()
	err := k.client.Resource(policies).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	if failed := c.Cleanup(baseSelector); failed != nil {
		return failed
	}
	return errors.Wrapf(err, "removing the policies of this run (kubectl delete %s --all)", policies.Resource)
}
