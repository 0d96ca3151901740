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
	// SetMissing tells what of the input is missing, until it tells that nothing is. It is called before SetSynced if
	// anything is missing then, and again when that changes. What is missing is not gone: the sink takes nothing away
	// for it.
	SetMissing(npc.Missing)
	// SetSynced says, once, that the sink has been handed everything that existed at the start and could be read.
	SetSynced()
	// SetConnected says that the watch of a kind works or is broken. It is called when that changes.
	SetConnected(kind string, ok bool)
}

// Source is where the facts come from. FromAPI and FromManifests make one; it is run once.
type Source struct {
	watches map[string]listWatcher      // kind -> its list and watch; empty with manifests
	client  any                         // tells whether streaming lists are supported
	getNode func(context.Context) error // gets the Node of this node; nil with manifests
	dir     *directory                  // nil with an API server
	node    *nodeName
	unread  *unread
}

// listWatcher lists and watches one kind.
type listWatcher struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// FromAPI returns the source that watches an API server on behalf of a node. Without a name, nobody asks whether the
// node exists.
func FromAPI(client kubernetes.Interface, node string) Source {
	namespaces := client.CoreV1().Namespaces()
	pods := client.CoreV1().Pods(metav1.NamespaceAll)
	policies := client.NetworkingV1().NetworkPolicies(metav1.NamespaceAll)
	missing := newUnread()
	getNode := func(ctx context.Context) error {
		_, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		return err
	}
	return Source{client: client, unread: missing, node: newNodeName(node, missing), getNode: getNode, watches: map[string]listWatcher{
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

// Unread returns the number of inputs that have not been read once: kinds of objects, files and directories, and the
// Node of this node if no pod is on it.
func (s Source) Unread() int {
	if s.unread == nil {
		return 0
	}
	return s.unread.count()
}

// Ignored returns the number of objects in manifests that are of kinds which are not used. It is 0 with an API server.
func (s Source) Ignored() int {
	if s.dir == nil {
		return 0
	}
	return int(s.dir.ignored.Load())
}

// WhyUnread says what has not been read once, and why; empty if everything has been.
func (s Source) WhyUnread() string { return s.unread.String() }

// Run feeds sink until ctx ends, and returns nil then. Whatever fails meanwhile is logged and tried again, for ever.
// No call reaches sink after Run has returned.
func (s Source) Run(ctx context.Context, sink Sink, log *slog.Logger) error {
	sink = podWatcher{sink, s.node}
	if s.dir != nil {
		s.dir.follower().run(ctx, sink, s.node)
		return nil
	}
	informers := make([]*informer, 0, len(s.watches))
	for _, f := range feeds(sink, log) {
		i, err := newInformer(f, s.watches[f.kind], s.client, sink, log)
		if err != nil {
			return err
		}
		i.connection.failing = func(err error) { s.unread.update(f.kind, f.kind+" cannot be listed: "+err.Error()) }
		s.unread.set(f.kind, "not all "+f.kind+" have been received yet")
		informers = append(informers, i)
	}

	var running sync.WaitGroup
	defer running.Wait()
	asked := make(chan struct{})
	running.Go(func() { s.node.ask(ctx, s.getNode, asked, log) })
	synced := make([]cache.DoneChecker, 0, len(informers))
	for _, i := range informers {
		running.Go(func() { i.run(ctx) })
		running.Go(func() {
			if cache.WaitFor(ctx, "", i.handled) {
				s.unread.set(i.connection.kind, "")
			}
		})
		synced = append(synced, i.handled)
	}
	if cache.WaitFor(ctx, "", synced...) {
		s.begin(ctx, sink, asked)
	}
	<-ctx.Done()
	return nil
}

// begin tells sink that everything has been handed over, and waits until the node is known.
func (s Source) begin(ctx context.Context, sink Sink, asked <-chan struct{}) {
	select {
	case <-ctx.Done():
		return
	case <-asked:
	case <-s.node.confirmed:
	}
	missing := !s.node.known()
	if missing {
		sink.SetMissing(npc.NodeMissing)
	}
	sink.SetSynced()
	select {
	case <-ctx.Done():
	case <-s.node.confirmed:
		if missing {
			sink.SetMissing(npc.NothingMissing)
		}
	}
}
