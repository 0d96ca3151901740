package snapshot

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// userOf returns a client that may do some things: KIND/NAMESPACE to list or get a kind there, and what it has not is
// forbidden.
func userOf(may string, objects ...runtime.Object) kubernetes.Interface {
	client := fake.NewClientset(objects...)
	client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		kind, namespace := a.GetResource().Resource, a.GetNamespace()
		if get, ok := a.(clienttesting.GetAction); ok && kind == "namespaces" {
			namespace = get.GetName()
		}
		if strings.Contains(" "+may+" ", " "+kind+"/"+namespace+" ") {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: kind}, "", nil)
	})
	return client
}

func in[T any](namespace, name string, make func(metav1.ObjectMeta) T) T {
	return make(metav1.ObjectMeta{Namespace: namespace, Name: name})
}

// TestListPartly reads what the user may read, in all namespaces or in those that are asked about, and says what it did
// not.
func TestListPartly(t *testing.T) {
	pod := func(m metav1.ObjectMeta) *corev1.Pod { return &corev1.Pod{ObjectMeta: m} }
	policy := func(m metav1.ObjectMeta) *networkingv1.NetworkPolicy {
		return &networkingv1.NetworkPolicy{ObjectMeta: m}
	}
	all := []runtime.Object{in("shop", "web", pod), in("pay", "db", pod), in("shop", "p", policy), in("pay", "q", policy),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "pay"}}}
	const everything = "namespaces/ pods/ networkpolicies/"
	for _, c := range []struct {
		name, may   string
		within      []string
		read, lacks string // kinds with the number read, and those not read in namespace pay
		err         string
	}{
		{"everything", everything, []string{"shop"}, "2 2 2", "", ""},
		{"one_namespace", "namespaces/shop pods/shop networkpolicies/shop", []string{"shop", "pay"}, "1 1 1", "namespaces pods policies", ""},
		{"both_by_name", "namespaces/shop namespaces/pay pods/shop pods/pay networkpolicies/shop networkpolicies/pay", []string{"shop", "pay"}, "2 2 2", "", ""},
		{"policies_of_one", "namespaces/ pods/ networkpolicies/shop", []string{"shop", "pay"}, "2 2 1", "policies", ""},
		{"absent_namespace", "namespaces/gone pods/gone networkpolicies/gone", []string{"gone"}, "0 0 0", "namespaces pods policies", ""},
		{"no_namespace_is_asked_about", "namespaces/shop pods/shop networkpolicies/shop", nil, "", "", "listing namespaces"},
		{"nothing", "namespaces/", []string{"shop"}, "", "", "neither pods nor network policies can be listed, in all namespaces or in shop"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, err := List(t.Context(), userOf(c.may, all...), nil, c.within...)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var lacks []string
			for _, kind := range []struct {
				name  string
				lacks bool
			}{{"namespaces", o.Unreadable.Namespaces.Lacks("pay")}, {"pods", o.Unreadable.Pods.Lacks("pay")}, {"policies", o.Unreadable.Policies.Lacks("pay")}} {
				if kind.lacks {
					lacks = append(lacks, kind.name)
				}
			}
			read := strings.Join([]string{count(o.Namespaces), count(o.Pods), count(o.Policies)}, " ")
			if got := strings.Join(lacks, " "); read != c.read || got != c.lacks || (len(o.UnreadableNotes()) > 0) != (o.Unreadable.Any()) {
				t.Errorf("read %s, lacks %s: %v", read, got, o.UnreadableNotes())
			}
		})
	}
}

func count[T any](list []T) string { return string(rune('0' + len(list))) }

// TestListNetworkPartly reads the Services of the namespaces that the user may read, and says that these are not all.
func TestListNetworkPartly(t *testing.T) {
	service := func(m metav1.ObjectMeta) *corev1.Service { return &corev1.Service{ObjectMeta: m} }
	n := ListNetwork(t.Context(), userOf("services/shop endpointslices/", in("shop", "web", service), in("pay", "db", service)), "shop")
	said := strings.Join(n.Unreadable, "; ")
	if len(n.Services) != 1 || !strings.Contains(said, "services cannot be listed: services is forbidden") || strings.Contains(said, "endpointslices") ||
		!strings.Contains(said, "nodes cannot be listed") {
		t.Errorf("%d Services, unreadable: %s", len(n.Services), said)
	}
}
