package source

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/source/apiclient"
)

// nodeWatch returns the list and watch calls of Nodes.
func nodeWatch(client kubernetes.Interface) listWatcher {
	nodes := client.CoreV1().Nodes()
	return listWatcher{
		list:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return nodes.List(ctx, o) },
		watch: checked(nodes.Watch, isA[*corev1.Node]),
	}
}

// nodeFollower is a sink of ClusterNetworkPolicies that follows the Nodes of an API server while the sink behind it has
// a policy that names nodes as peers. Every change of a Node's status is sent to all watches of Nodes: without such a
// policy there should be no watch.
//
// The sink gets the Nodes before the first of these policies, so that none is enforced as if there were no Nodes,
// unless they cannot be listed.
type nodeFollower struct {
	Sink
	// start starts to follow the Nodes.
	start    func(Sink) (*nodeWatcher, error)
	unsynced *unsynced
	log      *slog.Logger
	nodes    *nodeKeeper

	mu      sync.Mutex // guards users, watcher; held while the following begins or ends
	users   map[string]struct{}
	watcher *nodeWatcher // nil while the Nodes are not followed
}

// nodeWatcher follows the Nodes.
type nodeWatcher struct {
	stop func() // returns when the last event has been handled
	// resolved is closed when the sink has all Nodes, or when it is known why it cannot have them, or when the watcher
	// was stopped.
	resolved <-chan struct{}
}

func newNodeFollower(
	sink Sink, unsynced *unsynced, log *slog.Logger, start func(Sink) (*nodeWatcher, error),
) *nodeFollower {
	return &nodeFollower{Sink: sink, start: start, unsynced: unsynced, log: log, users: map[string]struct{}{},
		nodes: newNodeKeeper(sink)}
}

// SetClusterPolicy implements Sink. It returns when the sink has the Nodes that the policy needs, or when they cannot
// be listed.
func (f *nodeFollower) SetClusterPolicy(p *v1alpha2.ClusterNetworkPolicy) {
	if !apiclient.NamesNodes(p) {
		f.Sink.SetClusterPolicy(p)
		f.release(p.Name)
		return
	}
	if w := f.use(p.Name); w != nil {
		<-w.resolved
	}
	f.Sink.SetClusterPolicy(p)
}

// DeleteClusterPolicy implements Sink.
func (f *nodeFollower) DeleteClusterPolicy(name string, uid types.UID) {
	f.Sink.DeleteClusterPolicy(name, uid)
	f.release(name)
}

// use follows the Nodes on behalf of a policy.
func (f *nodeFollower) use(name string) *nodeWatcher {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.users[name] = struct{}{}
	if f.watcher != nil {
		return f.watcher
	}
	f.unsynced.set(Nodes, "not all nodes have been received yet, which ClusterNetworkPolicies name as peers")
	w, err := f.start(f.nodes)
	if err != nil {
		f.unsynced.set(Nodes, err.Error())
		f.log.Error("nodes are not followed", "err", err)
		return nil
	}
	f.watcher = w
	return w
}

// release ends that if no policy needs it any more. The Nodes that were delivered are deleted.
func (f *nodeFollower) release(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, used := f.users[name]; !used {
		return
	}
	if delete(f.users, name); len(f.users) > 0 {
		return
	}
	if f.watcher != nil {
		f.watcher.stop()
		f.watcher = nil
	}
	f.nodes.forget()
	f.unsynced.set(Nodes, "")
}

// end returns when nothing follows the Nodes any more.
func (f *nodeFollower) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watcher != nil {
		f.watcher.stop()
	}
}

// nodeKeeper is a sink of Nodes that records what the one behind it has, and passes on only what differs from that: the
// status of a Node changes every few minutes, but hardly ever its addresses. The records share their memory with those
// of the sink.
type nodeKeeper struct {
	keeper
	known map[string]npc.Node
}

func newNodeKeeper(sink Sink) *nodeKeeper {
	return &nodeKeeper{keeper: keeper{Sink: sink, kind: Nodes}, known: map[string]npc.Node{}}
}

// SetNode implements Sink.
func (k *nodeKeeper) SetNode(n npc.Node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if is, ok := k.known[n.Name]; ok && is.UID == n.UID && maps.Equal(is.Labels, n.Labels) &&
		slices.Equal(is.Addrs, n.Addrs) {
		return
	}
	k.known[n.Name] = n
	k.Sink.SetNode(n)
}

// DeleteNode implements Sink.
func (k *nodeKeeper) DeleteNode(name string, uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if is, ok := k.known[name]; !ok || uid != "" && is.UID != uid {
		return
	}
	delete(k.known, name)
	k.Sink.DeleteNode(name, uid)
}

// forget deletes all Nodes, which are not followed any more: there is no watch that could be broken.
func (k *nodeKeeper) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(k.known)) {
		k.Sink.DeleteNode(name, k.known[name].UID)
	}
	clear(k.known)
	k.reconnect()
}

// followNodes starts to list and watch Nodes until ctx ends.
func (a *apiServer) followNodes(ctx context.Context, sink Sink, log *slog.Logger) (*nodeWatcher, error) {
	i, err := newInformer(nodeDelivery(sink, log), a.nodes, a.client, sink, log)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	resolved := make(chan struct{})
	markResolved := sync.OnceFunc(func() { close(resolved) })
	i.connection.failing = func(err error) {
		a.unsynced.update(Nodes, "nodes cannot be listed, which ClusterNetworkPolicies name as peers: "+err.Error())
		markResolved()
	}
	var tasks sync.WaitGroup
	tasks.Go(func() { i.run(ctx) })
	tasks.Go(func() {
		if cache.WaitFor(ctx, "", i.handled) {
			a.unsynced.set(Nodes, "")
		}
		markResolved()
	})
	return &nodeWatcher{resolved: resolved, stop: func() {
		cancel()
		tasks.Wait()
	}}, nil
}
