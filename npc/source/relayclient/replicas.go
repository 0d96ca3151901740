package relayclient

import (
	"cmp"
	"context"
	"hash/maphash"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// findTimeout is how long the first list may wait for the addresses of the replicas.
const findTimeout = 5 * time.Second

// replicas are the addresses of the relay's replicas, in the preferred order of this agent. Each agent has an order of
// its own, which stays the same: agents spread over replicas, and all kinds of one go to the same replica.
type replicas struct {
	where address
	seed  maphash.Seed
	found chan struct{} // is closed when the addresses have been read
	find  func()        // closes it

	mu    sync.Mutex // guards the fields below
	addrs []string
}

func newReplicas(where address) *replicas {
	found := make(chan struct{})
	r := &replicas{where: where, seed: maphash.MakeSeed(), found: found, find: sync.OnceFunc(func() { close(found) })}
	if where.service == "" {
		r.set(where.hosts)
	}
	return r
}

// set records the addresses.
func (r *replicas) set(addrs []string) {
	addrs = slices.Clone(addrs)
	slices.SortFunc(addrs, func(a, b string) int {
		return cmp.Compare(maphash.String(r.seed, a), maphash.String(r.seed, b))
	})
	r.mu.Lock()
	r.addrs = slices.Compact(addrs)
	r.mu.Unlock()
	r.find()
}

// list returns the addresses, which the caller does not change. It waits for a while until they are known.
func (r *replicas) list(ctx context.Context) []string {
	select {
	case <-r.found:
	default:
		timer := time.NewTimer(findTimeout)
		defer timer.Stop()
		select {
		case <-r.found:
		case <-ctx.Done():
		case <-timer.C:
			r.find() // none waits again
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.addrs
}

// run follows the EndpointSlices of the Service until ctx ends.
func (r *replicas) run(ctx context.Context, client kubernetes.Interface, log *slog.Logger) {
	if r.where.service == "" {
		return
	}
	all := client.DiscoveryV1().EndpointSlices(r.where.namespace)
	of := discoveryv1.LabelServiceName + "=" + r.where.service
	informer := cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = of
			return all.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = of
			return all.Watch(ctx, o)
		},
	}, client), &discoveryv1.EndpointSlice{}, cache.SharedIndexInformerOptions{
		ObjectDescription: "endpointslices of the relay"})
	refresh := func() { r.set(endpoints(informer.GetStore().List())) }
	unsynced := false
	// It cannot fail: the informer does not run yet.
	_ = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() == nil && !informer.HasSynced() && !unsynced {
			unsynced = true
			log.Warn("the replicas of the relay are not known: its EndpointSlices cannot be read",
				"service", r.where.namespace+"/"+r.where.service, "err", err)
			r.find()
		}
	})
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { refresh() },
		UpdateFunc: func(any, any) { refresh() },
		DeleteFunc: func(any) { refresh() },
	})
	if err != nil {
		log.Error("the replicas of the relay are not followed", "err", err)
		return
	}
	var ends sync.WaitGroup
	defer ends.Wait()
	ends.Go(func() {
		if cache.WaitFor(ctx, "", registration.HasSyncedChecker()) {
			refresh() // there may be none
		}
	})
	informer.RunWithContext(ctx)
}

// endpoints returns the addresses of the endpoints that are ready.
func endpoints(objects []any) []string {
	var all []string
	for _, o := range objects {
		s := o.(*discoveryv1.EndpointSlice)
		port := servedPort(s.Ports)
		if port == 0 || s.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		for _, e := range s.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			for _, a := range e.Addresses {
				if net.ParseIP(a) != nil {
					all = append(all, net.JoinHostPort(a, strconv.Itoa(int(port))))
				}
			}
		}
	}
	return all
}

// servedPort returns the port that is called https, or else the first one of TCP; 0 if there is none.
func servedPort(ports []discoveryv1.EndpointPort) int32 {
	first := int32(0)
	for _, p := range ports {
		if p.Port == nil || p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP {
			continue
		}
		if p.Name != nil && *p.Name == "https" {
			return *p.Port
		}
		if first == 0 {
			first = *p.Port
		}
	}
	return first
}
