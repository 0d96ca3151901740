package source

import (
	"context"
	"errors"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestList reads what an API server has, and says what it refuses to list.
func TestList(t *testing.T) {
	client := fake.NewClientset(apiPod("web", "1", "u"),
		&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deny"}})
	o, err := List(context.Background(), client)
	if err != nil || len(o.Pods) != 1 || len(o.Policies) != 1 || o.Pods[0].Name != "web" {
		t.Fatalf("%+v, %v", o, err)
	}
	for kind, says := range map[string]string{"namespaces": "listing namespaces", "pods": "listing pods",
		"networkpolicies": "listing network policies"} {
		client := fake.NewClientset()
		client.PrependReactor("list", kind, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("forbidden")
		})
		if _, err := List(context.Background(), client); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
