package source

import (
	"context"
	"log/slog"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Objects is what a cluster has, as its API server or a directory of manifests says, in the order of their names.
type Objects struct {
	Namespaces []*corev1.Namespace
	Pods       []*corev1.Pod
	Policies   []*networkingv1.NetworkPolicy
}

// Load reads the manifests below dir once. The error joins the problems of all files; the objects are those of the
// files that have none.
func Load(dir string) (Objects, error) {
	d, err := newDirectory(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return Objects{}, err
	}
	problems := d.rescan(rescanOptions{})
	var objects Objects
	for _, o := range d.shelves[kindNamespace].sorted() {
		objects.Namespaces = append(objects.Namespaces, o.(*corev1.Namespace))
	}
	for _, o := range d.shelves[kindPod].sorted() {
		objects.Pods = append(objects.Pods, o.(*corev1.Pod))
	}
	for _, o := range d.shelves[kindNetworkPolicy].sorted() {
		objects.Policies = append(objects.Policies, o.(*networkingv1.NetworkPolicy))
	}
	return objects, joined(problems.problems)
}

// List reads the objects of an API server once.
func List(ctx context.Context, client kubernetes.Interface) (Objects, error) {
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
	for i := range namespaces.Items {
		objects.Namespaces = append(objects.Namespaces, &namespaces.Items[i])
	}
	for i := range policies.Items {
		objects.Policies = append(objects.Policies, &policies.Items[i])
	}
	return objects, nil
}

// Feed hands everything to sink, as a source that is connected and synced would.
func (o Objects) Feed(sink Sink) {
	for _, kind := range []string{Namespaces, Pods, NetworkPolicies} {
		sink.SetConnected(kind, true)
	}
	for _, n := range o.Namespaces {
		facts, _ := namespaceFacts(n)
		sink.SetNamespace(facts)
	}
	for _, p := range o.Pods {
		facts, _ := podFacts(p)
		sink.SetPod(facts)
	}
	for _, p := range o.Policies {
		sink.SetPolicy(p)
	}
	sink.SetSynced()
}

// joined returns the problems as one error of as many lines, or nil.
func joined(problems []problem) error {
	if len(problems) == 0 {
		return nil
	}
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.Error()
	}
	return errors.New(strings.Join(lines, "\n"))
}
