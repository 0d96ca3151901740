package source

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// policyKeeper is a sink that records which ClusterNetworkPolicies the one behind it has: they stay there while no
// informer runs, and are deleted when the kind turns out to be gone.
type policyKeeper struct {
	keeper
	known map[string]types.UID
}

// keeper is what those have in common that record what the sink behind them has of a kind.
type keeper struct {
	Sink
	kind string

	mu     sync.Mutex // guards broken, and known of what embeds this; held during calls of the Sink
	broken bool       // as last reported to the sink
}

// SetConnected implements Sink.
func (k *keeper) SetConnected(kind string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.broken = !ok
	k.Sink.SetConnected(kind, ok)
}

// reconnect reports that the watch works if it was last reported as broken: a kind that is gone, or that is not needed
// any more, has no watch to wait for. k.mu is held.
func (k *keeper) reconnect() {
	if k.broken {
		k.broken = false
		k.Sink.SetConnected(k.kind, true)
	}
}

func newPolicyKeeper(sink Sink) *policyKeeper {
	return &policyKeeper{keeper: keeper{Sink: sink, kind: ClusterNetworkPolicies}, known: map[string]types.UID{}}
}

// SetClusterPolicy implements Sink.
func (k *policyKeeper) SetClusterPolicy(p *v1alpha2.ClusterNetworkPolicy) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known[p.Name] = p.UID
	k.Sink.SetClusterPolicy(p)
}

// DeleteClusterPolicy implements Sink.
func (k *policyKeeper) DeleteClusterPolicy(name string, uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known, ok := k.known[name]; !ok || uid != "" && known != uid {
		return
	}
	k.delete(name)
}

// gone reports that the watch works if it was last reported as broken: the kind has none.
func (k *policyKeeper) gone() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reconnect()
}

// keepOnly deletes all objects except those with some names.
func (k *policyKeeper) keepOnly(names []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	slices.Sort(names)
	for name := range k.known {
		if _, keep := slices.BinarySearch(names, name); !keep {
			k.delete(name)
		}
	}
}

// delete deletes an object from the sink. k.mu is held.
func (k *policyKeeper) delete(name string) {
	uid := k.known[name]
	delete(k.known, name)
	k.Sink.DeleteClusterPolicy(name, uid)
}

// any reports whether the sink has objects.
func (k *policyKeeper) any() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.known) > 0
}
