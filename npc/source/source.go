// Package source feeds namespaces, pods and network policies to a sink, from an API server or from a directory of
// manifests.
package source

import (
	"context"
	"log/slog"
	"sync"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/weave-npc/weave-npc/npc"
)

// The kinds that a source watches, as Sink.SetConnected names them.
const (
	Namespaces      = "namespaces"
	Pods            = "pods"
	NetworkPolicies = "networkpolicies"
)

// Sink takes the facts. Calls of one kind come one at a time, SetConnected among them; calls of different kinds may
// come at once. A Set call carries the whole object, whose maps and slices belong to the source: the sink does not
// change them. The uid of a Delete call is empty if the object vanished unseen and nothing more than its name is known.
type Sink interface {
	SetNamespace(npc.Namespace)
	DeleteNamespace(name string, uid types.UID)
	SetPod(npc.Pod)
	DeletePod(namespace, name string, uid types.UID)
	SetPolicy(*networkingv1.NetworkPolicy)
	DeletePolicy(namespace, name string, uid types.UID)
	// SetSynced says, once, that the sink has been handed everything that existed at the start.
	SetSynced()
	// SetConnected says that the watch of a kind works or is broken. It is called when that changes.
	SetConnected(kind string, ok bool)
}

// Source is where the facts come from. FromAPI and FromManifests make one; it is run once.
type Source struct {
	watches map[string]listWatcher // kind -> its list and watch
	client  any                    // tells whether streaming lists are supported
	dir     *directory             // nil with an API server
}

// listWatcher lists and watches one kind.
type listWatcher struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// FromAPI returns the source that watches an API server.
func FromAPI(client kubernetes.Interface) Source {
	namespaces := client.CoreV1().Namespaces()
	pods := client.CoreV1().Pods(metav1.NamespaceAll)
	policies := client.NetworkingV1().NetworkPolicies(metav1.NamespaceAll)
	return Source{client: client, watches: map[string]listWatcher{
		Namespaces: {
			list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return namespaces.List(ctx, o)
			},
			watch: namespaces.Watch,
		},
		Pods: {
			list:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return pods.List(ctx, o) },
			watch: pods.Watch,
		},
		NetworkPolicies: {
			list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return policies.List(ctx, o)
			},
			watch: policies.Watch,
		},
	}}
}

// Errors returns the number of manifest files (and directories) that are not in force as they are written now,
// because they cannot be read, do not parse or hold an object that is refused. It is 0 with an API server.
func (s Source) Errors() int {
	if s.dir == nil {
		return 0
	}
	return int(s.dir.bad.Load())
}

// Run feeds sink until ctx ends, and returns nil then. Whatever fails meanwhile is logged and tried again, for ever.
// No call reaches sink after Run has returned.
func (s Source) Run(ctx context.Context, sink Sink, log *slog.Logger) error {
	informers := make([]*informer, 0, len(s.watches))
	for _, f := range feeds(sink, log) {
		i, err := newInformer(f, s.watches[f.kind], s.client, sink, log)
		if err != nil {
			return err
		}
		informers = append(informers, i)
	}

	var running sync.WaitGroup
	defer running.Wait()
	if s.dir != nil {
		follower := s.dir.follower()
		running.Go(func() { follower.run(ctx) })
	}
	synced := make([]cache.DoneChecker, 0, len(informers))
	for _, i := range informers {
		running.Go(func() { i.run(ctx) })
		synced = append(synced, i.handled)
	}
	if cache.WaitFor(ctx, "", synced...) {
		sink.SetSynced()
	}
	<-ctx.Done()
	return nil
}
