// Package cluster is about the cluster that a conformance suite runs against.
package cluster

import (
	"context"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// answerLimit is how long an API server may take to answer.
	answerLimit = 15 * time.Second
	// cleanupLimit is how long namespaces may take to go.
	cleanupLimit = 2 * time.Minute
)

// Cluster is what a suite runs against.
type Cluster struct {
	// Config is how to reach the API server.
	Config *rest.Config
	// Version is the version of Kubernetes.
	Version string
	// Nodes is how many nodes are ready and take pods.
	Nodes int

	client kubernetes.Interface
}

// Connect finds the cluster of a kubeconfig's current context. Every error names a remedy.
func Connect(ctx context.Context, kubeconfig string) (*Cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, errors.Errorf("%s is no kubeconfig of a cluster: %v; "+
			"kubectl --kubeconfig %[1]s config view shows what it says", kubeconfig, err)
	}
	config.Timeout = answerLimit
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, errors.Wrapf(err, "%s cannot be used", kubeconfig)
	}
	c := &Cluster{Config: config, client: client}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return nil, errors.Errorf("cannot talk to the cluster of %s: %v; "+
			"is it up, and does kubectl --kubeconfig %[1]s get nodes work here?", kubeconfig, err)
	}
	c.Version = version.GitVersion
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, errors.Errorf("%s does not list its nodes: %v; the suite needs the rights of an administrator",
			config.Host, err)
	}
	for i := range nodes.Items {
		if takesPods(&nodes.Items[i]) {
			c.Nodes++
		}
	}
	if c.Nodes == 0 {
		return nil, errors.Errorf("none of the %d nodes of %s is ready and takes pods (kubectl get nodes)",
			len(nodes.Items), config.Host)
	}
	return c, nil
}

// takesPods reports whether a node is ready and accepts pods without tolerations.
func takesPods(n *corev1.Node) bool {
	if n.Spec.Unschedulable {
		return false
	}
	for _, t := range n.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule {
			return false
		}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Cleanup deletes the namespaces that a label selector matches, and waits until all are gone.
func (c *Cluster) Cleanup(selector string) error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
	defer cancel()
	for {
		left, err := c.deleteNamespaces(ctx, selector)
		if err == nil && left == 0 {
			return nil
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			if err == nil {
				err = errors.Errorf("%d are still there after %s", left, cleanupLimit)
			}
			return errors.Wrapf(err, "removing the namespaces of this run (kubectl delete namespaces --selector %s)",
				selector)
		}
	}
}

// deleteNamespaces deletes the namespaces that a label selector matches, and returns how many are still there.
func (c *Cluster) deleteNamespaces(ctx context.Context, selector string) (int, error) {
	api := c.client.CoreV1().Namespaces()
	found, err := api.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return 0, errors.Wrap(err, "listing namespaces")
	}
	for i := range found.Items {
		if found.Items[i].DeletionTimestamp != nil {
			continue
		}
		err := api.Delete(ctx, found.Items[i].Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return len(found.Items), errors.Wrap(err, "deleting a namespace")
		}
	}
	return len(found.Items), nil
}
