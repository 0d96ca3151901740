package serve

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage/cacher"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/span"
	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/upstream"
	"github.com/weave-npc/weave-npc/npc/source/facts"
	"github.com/weave-npc/weave-npc/npc/source/policyapi"
)

// pause is how long a tap waits before it tries again.
const pause = 100 * time.Millisecond

// tap takes all objects of a kind out of its cache, and then what becomes of them.
type tap struct {
	kind   *Kind
	read   reader
	source upstream.Source // nil if the kind is absent
	cache  *cacher.Cacher
	// put is called with each drop, in their order, by one goroutine. It may wait.
	put func(t *tap, d drop)

	// The goroutine that computes spans alone uses these.
	listed  bool
	applied uint64 // the version of the last drop
}

// drop is what a tap brings: a change, or that it has brought all that there was at a version, or that it is at its end before its time.
type drop struct {
	version      uint64
	apply        change
	listed, lost bool
}

// change applies what has become of an object.
type change func(*span.Spans) []span.Change

// reader reads an object with its version, which is deleted or not.
type reader func(o runtime.Object, version uint64, deleted bool) (change, error)

// reached returns what the spans have taken in of the kind, and whether that is all that the API server has.
func (t *tap) reached() (version uint64, fresh bool) {
	at := t.source.Reached()
	if t.applied < at.Event {
		return t.applied, false
	}
	return max(t.applied, at.Version), at.Fresh
}

// replaced reports whether the kind is served from elsewhere now, or only now, or no longer.
func (t *tap) replaced() bool {
	source, _ := t.kind.serving()
	return source != t.source
}

func (t *tap) run(ctx context.Context) {
	version, err := t.list(ctx)
	for err != nil {
		if !t.wait(ctx) {
			return
		}
		version, err = t.list(ctx)
	}
	t.put(t, drop{version: version, listed: true})
	for ctx.Err() == nil {
		version, err = t.watch(ctx, version)
		if err != nil {
			t.put(t, drop{lost: true})
			return
		}
		t.wait(ctx)
	}
}

// wait waits before another attempt; it returns false at the end.
func (t *tap) wait(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return true
	}
}

// list brings all objects, and returns the version at which they were.
func (t *tap) list(ctx context.Context) (uint64, error) {
	list, options := t.kind.kind.NewList(), everything("0")
	if err := t.cache.GetList(ctx, "/"+t.kind.kind.Name, options, list); err != nil {
		return 0, errors.Wrapf(err, "listing %s", t.kind.kind.Name)
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return 0, errors.Wrapf(err, "listing %s", t.kind.kind.Name)
	}
	err = meta.EachListItem(list, func(o runtime.Object) error {
		_, err := t.pass(o, watch.Added)
		return err
	})
	if err != nil {
		return 0, err
	}
	version, err := t.source.Versioner().ParseResourceVersion(m.GetResourceVersion())
	return version, errors.Wrapf(err, "listing %s", t.kind.kind.Name)
}

// watch brings what happens after a version until the cache ends the watch, which it does to those for which it has no time. It returns the version
// to go on from, or an error if that is not possible.
func (t *tap) watch(ctx context.Context, version uint64) (uint64, error) {
	w, err := t.cache.Watch(ctx, "/"+t.kind.kind.Name, everything(strconv.FormatUint(version, 10)))
	if err != nil {
		return version, err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			return version, errors.Errorf("watching %s: %v", t.kind.kind.Name, e.Object)
		}
		o := e.Object
		if shared, ok := o.(runtime.CacheableObject); ok {
			o = shared.GetObject()
		}
		if version, err = t.pass(o, e.Type); err != nil {
			return version, err
		}
	}
	return version, nil
}

// pass brings an object, and returns its version. It may wait: the cache ends the watch then, and another one goes on from there.
func (t *tap) pass(o runtime.Object, typ watch.EventType) (uint64, error) {
	version, err := t.source.Versioner().ObjectResourceVersion(o)
	if err != nil {
		return 0, errors.Wrapf(err, "reading one of %s", t.kind.kind.Name)
	}
	apply, err := t.read(o, version, typ == watch.Deleted)
	if err != nil {
		return 0, err
	}
	t.put(t, drop{version: version, apply: apply})
	return version, nil
}

// pods returns a reader of pods.
func (k *packing) pods(o runtime.Object, version uint64, deleted bool) (change, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return nil, errors.Errorf("a %T is no pod", o)
	}
	e, err := k.entry(p, version)
	if err != nil {
		return nil, err
	}
	if deleted {
		namespace, name := p.Namespace, p.Name
		return func(x *span.Spans) []span.Change { return x.DeletePod(namespace, name, e) }, nil
	}
	f, _ := facts.OfPod(p)
	return func(x *span.Spans) []span.Change { return x.SetPod(f, e) }, nil
}

func readNamespace(o runtime.Object, _ uint64, deleted bool) (change, error) {
	n, ok := o.(*corev1.Namespace)
	if !ok {
		return nil, errors.Errorf("a %T is no namespace", o)
	}
	if deleted {
		return func(x *span.Spans) []span.Change { return x.DeleteNamespace(n.Name) }, nil
	}
	f, _ := facts.OfNamespace(n)
	return func(x *span.Spans) []span.Change { return x.SetNamespace(f) }, nil
}

func readPolicy(o runtime.Object, _ uint64, deleted bool) (change, error) {
	p, ok := o.(*networkingv1.NetworkPolicy)
	if !ok {
		return nil, errors.Errorf("a %T is no policy", o)
	}
	if deleted {
		return func(x *span.Spans) []span.Change { return x.DeletePolicy(p.Namespace, p.Name) }, nil
	}
	return func(x *span.Spans) []span.Change { return x.SetPolicy(p) }, nil
}

// readClusterPolicy reads it as agents do, to whom it is passed on as it was read: one that they cannot read decides nothing.
func readClusterPolicy(o runtime.Object, _ uint64, deleted bool) (change, error) {
	m, ok := o.(metav1.ObjectMetaAccessor)
	if !ok {
		return nil, errors.Errorf("a %T has no metadata", o)
	}
	if name := m.GetObjectMeta().GetName(); deleted {
		return func(x *span.Spans) []span.Change { return x.DeleteClusterPolicy(name) }, nil
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, errors.Wrap(err, "encoding a cluster network policy")
	}
	var stored unstructured.Unstructured
	if err := stored.UnmarshalJSON(text); err != nil {
		return nil, errors.Wrap(err, "decoding a cluster network policy")
	}
	p, _ := policyapi.Decode(&stored)
	return func(x *span.Spans) []span.Change { return x.SetClusterPolicy(p) }, nil
}
