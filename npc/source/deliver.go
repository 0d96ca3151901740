package source

import (
	"log/slog"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// delivery hands what is on the shelves to a sink. New policies come before new pods, and pods go before their
// policies, so that no pod is open on the way between two states that both isolate it.
type delivery struct {
	shelves map[string]*shelf
	feeds   map[string]feed // kind of an object -> the way to the sink
	// stored is what was last handed over: kind -> namespace/name -> what the feed stores of it.
	stored map[string]map[string]any
	log    *slog.Logger
}

func newDelivery(shelves map[string]*shelf, sink Sink, log *slog.Logger) *delivery {
	d := &delivery{shelves: shelves, feeds: map[string]feed{}, stored: map[string]map[string]any{}, log: log}
	kinds := map[string]string{Namespaces: kindNamespace, Pods: kindPod, NetworkPolicies: kindNetworkPolicy}
	for _, f := range feeds(sink, log) {
		d.feeds[kinds[f.kind]] = f
		d.stored[kinds[f.kind]] = map[string]any{}
	}
	return d
}

// run hands over all updates.
func (d *delivery) run() {
	updates := map[string][]update{}
	for kind, s := range d.shelves {
		updates[kind] = s.take()
	}
	for _, kind := range []string{kindNamespace, kindNetworkPolicy, kindPod} {
		for _, u := range updates[kind] {
			if !u.removed {
				d.set(kind, u)
			}
		}
	}
	for _, kind := range []string{kindPod, kindNetworkPolicy, kindNamespace} {
		for _, u := range updates[kind] {
			if u.removed {
				m := u.object.(metav1.Object)
				delete(d.stored[kind], u.key)
				d.feeds[kind].remove(m.GetNamespace(), m.GetName(), m.GetUID())
			}
		}
	}
}

func (d *delivery) set(kind string, u update) {
	f := d.feeds[kind]
	kept, err := f.keep(u.object)
	if err != nil {
		d.log.Error("object of a manifest cannot be used", "kind", kind, "object", u.key, "err", err)
		return
	}
	f.set(d.stored[kind][u.key], kept)
	d.stored[kind][u.key] = kept
}
