package source

import (
	"log/slog"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/npc/source/internal/directory"
	"github.com/weave-npc/weave-npc/npc/source/manifest"
)

// publisher delivers the objects of manifests. New policies come before new pods, and pods go before their policies, so
// that no pod is open between two states that both isolate it. Nodes, which policies name as peers, come before
// policies and go after them.
type publisher struct {
	deliveries map[string]delivery // by kind of object
	// delivered is what was last delivered of each object: kind -> key -> stored.
	delivered map[string]map[string]any
	log       *slog.Logger
}

func newPublisher(sink Sink, log *slog.Logger) *publisher {
	p := &publisher{deliveries: map[string]delivery{}, delivered: map[string]map[string]any{}, log: log}
	kinds := map[string]string{Namespaces: manifest.KindNamespace, Pods: manifest.KindPod,
		Nodes: manifest.KindNode, NetworkPolicies: manifest.KindNetworkPolicy,
		ClusterNetworkPolicies: manifest.KindClusterNetworkPolicy}
	for _, d := range deliveries(sink, log) {
		p.deliveries[kinds[d.kind]] = d
		p.delivered[kinds[d.kind]] = map[string]any{}
	}
	return p
}

// publish delivers the updates of all kinds.
func (p *publisher) publish(updates map[string][]directory.Update) {
	order := []string{manifest.KindNamespace, manifest.KindNode, manifest.KindClusterNetworkPolicy,
		manifest.KindNetworkPolicy, manifest.KindPod}
	for _, kind := range order {
		for _, u := range updates[kind] {
			if !u.Removed {
				p.set(kind, u)
			}
		}
	}
	for _, kind := range slices.Backward(order) {
		for _, u := range updates[kind] {
			if u.Removed {
				m := u.Object.(metav1.Object)
				delete(p.delivered[kind], u.Key)
				p.deliveries[kind].remove(m.GetNamespace(), m.GetName(), m.GetUID())
			}
		}
	}
}

func (p *publisher) set(kind string, u directory.Update) {
	d := p.deliveries[kind]
	object, err := d.transform(u.Object)
	if err != nil {
		p.log.Error("object of a manifest cannot be used", "kind", kind, "object", u.Key, "err", err)
		return
	}
	d.set(p.delivered[kind][u.Key], object)
	p.delivered[kind][u.Key] = object
}
