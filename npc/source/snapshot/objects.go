// Package snapshot reads once what package source follows: the objects of an API server or of a directory of manifests, what leads to
// pods, and what is known of a node.
//
//	objects, err := snapshot.Load("manifests/") // or List(ctx, client)
//	objects.Deliver(sink)
//
// A right that the user lacks costs only what needs it, where the caller can do without.
package snapshot

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/weave-npc/weave-npc/npc/source"
	"github.com/weave-npc/weave-npc/npc/source/directory"
	"github.com/weave-npc/weave-npc/npc/source/facts"
	"github.com/weave-npc/weave-npc/npc/source/manifest"
	"github.com/weave-npc/weave-npc/npc/source/store"
)

// Objects are the objects of a cluster that facts come from. Those of manifests are in the order of their names.
type Objects struct {
	Namespaces []*corev1.Namespace
	Pods       []*corev1.Pod
	Policies   []*networkingv1.NetworkPolicy
}

// Load reads the manifests below dir. The error joins the problems of all files; the objects are those of the files that have none.
func Load(dir string) (Objects, error) {
	d, err := directory.Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return Objects{}, err
	}
	result := d.Read()
	s := store.New()
	merged := s.Replace(result.Files)
	problems := slices.Concat(result.Problems, merged.Problems)
	manifest.SortProblems(problems)
	return Objects{
		Namespaces: as[*corev1.Namespace](s.Objects(manifest.KindNamespace)),
		Pods:       as[*corev1.Pod](s.Objects(manifest.KindPod)),
		Policies:   as[*networkingv1.NetworkPolicy](s.Objects(manifest.KindNetworkPolicy)),
	}, joined(problems)
}

func as[T runtime.Object](objects []runtime.Object) []T {
	var out []T
	for _, o := range objects {
		out = append(out, o.(T))
	}
	return out
}

// List reads the objects of an API server.
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
	objects.Namespaces, objects.Policies = pointers(namespaces.Items), pointers(policies.Items)
	return objects, nil
}

// Deliver delivers everything to sink, as a source does that is connected and synced.
func (o Objects) Deliver(sink source.Sink) {
	for _, kind := range []string{source.Namespaces, source.Pods, source.NetworkPolicies} {
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
	for _, p := range o.Policies {
		sink.SetPolicy(p)
	}
	sink.SetSynced()
}

// joined returns the problems as one error with a line for each, or nil.
func joined(problems []manifest.Problem) error {
	if len(problems) == 0 {
		return nil
	}
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.Error()
	}
	return errors.New(strings.Join(lines, "\n"))
}
