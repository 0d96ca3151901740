package source

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/source/relayclient"
)

// apiServer watches all kinds of an API server.
type apiServer struct {
	watches  map[string]listWatcher // by kind, of those that every API server has
	nodes    listWatcher            // of Nodes, which are followed only while they are needed
	policies policyAPI              // nil if ClusterNetworkPolicies are not followed
	relay    *relayclient.Relay     // nil if everything is followed at the API server
	// relayPolicies returns calls of ClusterNetworkPolicies that go through the relay; nil if none do.
	relayPolicies func(listWatcher) listWatcher
	askKinds      time.Duration               // between two questions whether there are any
	client        kubernetes.Interface        // reports whether streaming lists are supported, too
	getNode       func(context.Context) error // gets the Node of this node
	node          *nodeName
	unsynced      *unsynced
}

// watches returns the list and watch calls of each kind that every API server has.
func watches(client kubernetes.Interface) map[string]listWatcher {
	namespaces := client.CoreV1().Namespaces()
	pods := client.CoreV1().Pods(metav1.NamespaceAll)
	policies := client.NetworkingV1().NetworkPolicies(metav1.NamespaceAll)
	return map[string]listWatcher{
		Namespaces: {
			list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return namespaces.List(ctx, o)
			},
			watch: checked(namespaces.Watch, isA[*corev1.Namespace]),
		},
		Pods: {
			list:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return pods.List(ctx, o) },
			watch: checked(pods.Watch, isA[*corev1.Pod]),
		},
		NetworkPolicies: {
			list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return policies.List(ctx, o)
			},
			watch: checked(policies.Watch, isA[*networkingv1.NetworkPolicy]),
		},
	}
}

// run delivers to sink until ctx ends.
func (a *apiServer) run(ctx context.Context, sink Sink, log *slog.Logger) error {
	informers, err := a.newInformers(sink, log)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	if a.relay != nil {
		running.Go(func() { a.relay.Run(klog.NewContext(ctx, logr.FromSlogHandler(quiet{log.Handler()})), a.client) })
	}
	asked := make(chan struct{})
	running.Go(func() { a.node.ask(ctx, a.getNode, asked, log) })
	synced := make([]cache.DoneChecker, 0, len(informers))
	for _, i := range informers {
		running.Go(func() { i.run(ctx) })
		running.Go(func() {
			if cache.WaitFor(ctx, "", i.handled) {
				a.unsynced.set(i.connection.kind, "")
			}
		})
		synced = append(synced, i.handled)
	}
	resolved := a.followPolicies(ctx, sink, log, &running)
	if cache.WaitFor(ctx, "", synced...) {
		a.setSynced(ctx, sink, asked, resolved)
	}
	<-ctx.Done()
	return nil
}

func (a *apiServer) newInformers(sink Sink, log *slog.Logger) ([]*informer, error) {
	informers := make([]*informer, 0, len(a.watches))
	for _, d := range deliveries(sink, log) {
		watch, ok := a.watches[d.kind]
		if !ok {
			continue
		}
		i, err := newInformer(d, watch, a.client, sink, log)
		if err != nil {
			return nil, err
		}
		i.connection.failing = func(err error) { a.unsynced.update(d.kind, d.kind+" cannot be listed: "+err.Error()) }
		a.unsynced.set(d.kind, "not all "+d.kind+" have been received yet")
		informers = append(informers, i)
	}
	return informers, nil
}

// followPolicies follows the ClusterNetworkPolicies. What it returns is closed when they have been delivered, or cannot
// be.
func (a *apiServer) followPolicies(
	ctx context.Context, sink Sink, log *slog.Logger, running *sync.WaitGroup,
) <-chan struct{} {
	if a.policies == nil {
		resolved := make(chan struct{})
		close(resolved)
		return resolved
	}
	nodes := newNodeFollower(sink, a.unsynced, log, func(sink Sink) (*nodeWatcher, error) {
		return a.followNodes(ctx, sink, log)
	})
	c := newClusterPolicies(a.policies, a.client, a.unsynced, nodes, log)
	c.every, c.through = a.askKinds, a.relayPolicies
	a.unsynced.set(ClusterNetworkPolicies, "it is not known yet whether the API server has "+ClusterNetworkPolicies)
	running.Go(func() {
		c.run(ctx)
		nodes.end()
	})
	return c.resolved
}

// setSynced reports to sink that everything has been delivered, and returns when nothing is missing.
func (a *apiServer) setSynced(ctx context.Context, sink Sink, asked, resolved <-chan struct{}) {
	select {
	case <-ctx.Done():
		return
	case <-resolved:
	}
	select {
	case <-ctx.Done():
		return
	case <-asked:
	case <-a.node.confirmed:
	}
	read := a.unsynced.whenRead(ClusterNetworkPolicies, Nodes)
	missing := a.missing(read)
	if missing != npc.NothingMissing {
		sink.SetMissing(missing)
	}
	sink.SetSynced()
	for missing != npc.NothingMissing {
		confirmed := a.node.confirmed
		if missing != npc.NodeMissing {
			confirmed = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-confirmed:
		case <-read:
			read = nil
		}
		if now := a.missing(read); now != missing {
			missing = now
			sink.SetMissing(missing)
		}
	}
}

// missing returns what of the input is missing. The channel is closed, or nil, once cluster network policies and what
// they name have been read.
func (a *apiServer) missing(read <-chan struct{}) npc.Missing {
	if !a.node.known() {
		return npc.NodeMissing
	}
	if read == nil {
		return npc.NothingMissing
	}
	select {
	case <-read:
		return npc.NothingMissing
	default:
		return npc.ClusterPoliciesMissing
	}
}
