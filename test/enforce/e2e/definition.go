package e2e

import (
	"os"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/test/await"
)

// Definition returns the resource definition of ClusterNetworkPolicies, edited.
func (c *APIServer) Definition(t *testing.T, edit func(versions []any)) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile("../../../npc/source/testdata/crd.yaml")
	c.Must(t, err)
	u := &unstructured.Unstructured{}
	c.Must(t, yaml.Unmarshal(text, &u.Object))
	versions := u.Object["spec"].(map[string]any)["versions"].([]any)
	if edit != nil {
		edit(versions)
	}
	return u
}

// Definitions are the resource definitions of the API server.
func (c *APIServer) Definitions(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(c.Server.Client())
	c.Must(t, err)
	return client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"})
}

// Define installs a resource definition, and waits until ClusterNetworkPolicies are served.
func (c *APIServer) Define(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	_, err := c.Definitions(t).Create(t.Context(), u, metav1.CreateOptions{})
	c.Must(t, err)
	c.AwaitKind(t, true)
}

// AwaitKind waits until ClusterNetworkPolicies are served, or are not.
func (c *APIServer) AwaitKind(t *testing.T, served bool) {
	t.Helper()
	var err error
	await.Within(t, KindTimeout, func() bool {
		_, err = c.Tiers.List(t.Context(), metav1.ListOptions{})
		return err == nil && served || apierrors.IsNotFound(err) && !served
	}, func() string { return "a list of the kind ends with " + err.Error() })
}

// AdmitAnything makes a version admit every object of the kind.
func AdmitAnything(versions []any) {
	open := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	versions[0].(map[string]any)["schema"] = map[string]any{"openAPIV3Schema": open}
}

// KindTimeout is how long a daemon may take to find a kind that was installed while it ran: it asks every 30 to 45 s.
var KindTimeout = await.Scaled(90 * time.Second)
