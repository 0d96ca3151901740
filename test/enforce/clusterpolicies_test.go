package enforce

import (
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
)

// kindPatience is how long a daemon may take to find a kind that was installed while it ran: it asks every 30 to 45 s.
const kindPatience = 90 * time.Second

// TestClusterPoliciesAreReported installs the kind in a real API server while daemons run, and writes a policy that denies everything: the log,
// an Event and a metric tell that it is not enforced, and explain that it does not consider it.
func TestClusterPoliciesAreReported(t *testing.T) {
	w, c := newCluster(t, lab.NFT)
	c.assignRanges(t, w)
	c.write(t, w.objects(base()))
	w.startAPIDaemons(t, c)
	for _, d := range w.daemons {
		d.log.expect(`policy is not enforced.*clusternetworkpolicy=deny-all`)
	}
	client, err := dynamic.NewForConfig(c.server.Client())
	c.must(t, err)
	create := func(r schema.GroupVersionResource, text []byte) error {
		u := &unstructured.Unstructured{}
		c.must(t, yaml.Unmarshal(text, &u.Object))
		_, err := client.Resource(r).Create(t.Context(), u, metav1.CreateOptions{})
		return err
	}
	definition, err := os.ReadFile("../../npc/source/testdata/crd.yaml")
	c.must(t, err)
	c.must(t, create(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, definition))
	policies := schema.GroupVersion(v1alpha2.GroupVersion).WithResource("clusternetworkpolicies")
	await.Within(t, kindPatience, func() bool {
		err = create(policies, []byte(`{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: deny-all},
spec: {tier: Admin, priority: 0, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}}`))
		return err == nil
	}, func() string { return "the kind is not served: " + err.Error() })

	for _, d := range w.daemons {
		await.Within(t, kindPatience, func() bool { return d.metric(t, "weavenpc_unenforced_cluster_policies") == 1 },
			func() string { return "it is not counted\n" + w.state() })
		d.awaitLine(t, 0, `level=WARN msg="policy is not enforced" clusternetworkpolicy=deny-all`)
		d.awaitReady(t)
	}
	await.Within(t, patience, func() bool {
		events, err := c.client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		c.must(t, err)
		for _, e := range events.Items {
			if e.InvolvedObject.Kind == "ClusterNetworkPolicy" && e.InvolvedObject.Name == "deny-all" && e.Type == corev1.EventTypeWarning &&
				e.Reason == "NotEnforced" && e.Source.Component == "weave-npc" {
				return true
			}
		}
		return false
	}, func() string { return "no Event on the policy\n" + w.state() })
	out, stderr, _ := execute(t, w.Node("node1"), nil, "explain", "--kubeconfig", c.server.Kubeconfig(), "--from", "shop/db", "--to", "shop/web",
		"--port", "tcp/80")
	if !strings.Contains(stderr, "does not consider ClusterNetworkPolicies, of which there are 1: deny-all") {
		t.Errorf("explain:\n%s%s", out, stderr)
	}
	c.must(t, client.Resource(policies).Delete(t.Context(), "deny-all", metav1.DeleteOptions{}))
	for _, d := range w.daemons {
		await.Within(t, patience, func() bool { return d.metric(t, "weavenpc_unenforced_cluster_policies") == 0 },
			func() string { return "it is still counted\n" + w.state() })
	}
}
