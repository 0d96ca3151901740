package serve

import (
	"context"
	"net/http"
	"strconv"
	"sync"

	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/kinds"
	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/upstream"
)

// Kind serves one kind out of a cache.
type Kind struct {
	kind     *kinds.Kind
	codecs   *kinds.Codecs
	observer Observer

	mu     sync.Mutex       // guards the fields below
	source upstream.Source  // nil while the kind is absent
	cache  *cacher.Cacher   // of the source
	hubs   map[*frames]*hub // of the cache
}

// NewKind returns a kind that is absent until Start.
func NewKind(kind *kinds.Kind, codecs *kinds.Codecs, observer Observer) *Kind {
	return &Kind{kind: kind, codecs: codecs, observer: observer}
}

// Start serves the kind from a source, which Stop closes.
func (k *Kind) Start(source upstream.Source) error {
	prefix := "/" + k.kind.Name + "/"
	keyOf := storage.NoNamespaceKeyFunc
	if k.kind.PerSpace {
		keyOf = storage.NamespaceKeyFunc
	}
	cache, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage: source, Versioner: source.Versioner(), GroupResource: k.kind.Resource().GroupResource(),
		EventsHistoryWindow: cacher.DefaultEventFreshDuration, ResourcePrefix: prefix,
		KeyFunc:      func(o runtime.Object) (string, error) { return keyOf(prefix, o) },
		GetAttrsFunc: attributes, NewFunc: k.kind.New, NewListFunc: k.kind.NewList,
		Codec: k.codecs.Factory.LegacyCodec(k.kind.Version),
	})
	if err != nil {
		return errors.Wrapf(err, "making the cache of %s", k.kind.Name)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.source, k.cache, k.hubs = source, cache, map[*frames]*hub{}
	return nil
}

// Stop ends serving the kind, and all its watches.
func (k *Kind) Stop() {
	k.mu.Lock()
	source, cache, hubs := k.source, k.cache, k.hubs
	k.source, k.cache, k.hubs = nil, nil, nil
	k.mu.Unlock()
	if source == nil {
		return
	}
	source.Close()
	cache.Stop()
	for _, h := range hubs {
		h.stop()
	}
}

// Serving returns how far the kind has come; ok is false while it is absent.
func (k *Kind) Serving() (reached upstream.Reached, ok bool) {
	source, cache := k.serving()
	if source == nil {
		return upstream.Reached{}, false
	}
	reached = source.Reached()
	reached.Fresh = reached.Fresh && cache.Ready()
	return reached, true
}

func (k *Kind) serving() (upstream.Source, *cacher.Cacher) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.source, k.cache
}

// attributes returns what selectors are applied to.
func attributes(o runtime.Object) (labels.Set, fields.Set, error) {
	m, ok := o.(metav1.ObjectMetaAccessor)
	if !ok {
		return nil, nil, errors.Errorf("a %T has no metadata", o)
	}
	meta := m.GetObjectMeta()
	if meta.GetNamespace() == "" {
		return meta.GetLabels(), fields.Set{"metadata.name": meta.GetName()}, nil
	}
	return meta.GetLabels(), fields.Set{"metadata.name": meta.GetName(), "metadata.namespace": meta.GetNamespace()}, nil
}

// lister lists a kind as the handlers of k8s.io/apiserver want it.
type lister struct {
	*Kind
	rest.TableConvertor
}

// NewList implements rest.Lister.
func (k lister) NewList() runtime.Object { return k.kind.NewList() }

// List implements rest.Lister.
func (k lister) List(ctx context.Context, o *metainternalversion.ListOptions) (runtime.Object, error) {
	_, cache := k.serving()
	if cache == nil {
		return nil, k.absent("list")
	}
	predicate, err := k.predicate(o)
	if err != nil {
		return nil, err
	}
	options := storage.ListOptions{ResourceVersion: o.ResourceVersion, ResourceVersionMatch: o.ResourceVersionMatch,
		Predicate: predicate, Recursive: true}
	if o.Continue == "" && o.ResourceVersion != "0" {
		if err := k.await(ctx, cache, &options); err != nil {
			return nil, err
		}
	}
	if t, ok := ctx.Value(turnKey{}).(*turn); ok {
		if err := t.take(ctx); err != nil {
			return nil, err
		}
	}
	list := k.kind.NewList()
	if err = cache.GetList(ctx, "/"+k.kind.Name, options, list); err != nil {
		k.expired(err)
		return nil, err
	}
	return list, nil
}

// await waits until the cache has what options ask for, which takes seconds but no memory, so that it needs no turn. It
// asks for one object. If the latest version was asked for, it replaces that by the one that the cache has then.
func (k lister) await(ctx context.Context, cache *cacher.Cacher, options *storage.ListOptions) error {
	one, list := *options, k.kind.NewList()
	one.Predicate.Limit = 1
	if err := cache.GetList(ctx, "/"+k.kind.Name, one, list); err != nil {
		k.expired(err)
		return err
	}
	if options.ResourceVersion != "" {
		return nil
	}
	m, err := apimeta.ListAccessor(list)
	if err != nil {
		return errors.Wrap(err, "reading the version of a list")
	}
	options.ResourceVersion, options.ResourceVersionMatch = m.GetResourceVersion(), metav1.ResourceVersionMatchNotOlderThan
	return nil
}

// watch returns a stream of the events that options ask for. It does not run yet.
func (k *Kind) watch(ctx context.Context, o *metainternalversion.ListOptions, f *frames) (*stream, error) {
	source, cache := k.serving()
	if cache == nil {
		return nil, k.absent("watch")
	}
	predicate, err := k.predicate(o)
	if err != nil {
		return nil, err
	}
	predicate.AllowWatchBookmarks = o.AllowWatchBookmarks
	start, err := source.Versioner().ParseResourceVersion(o.ResourceVersion)
	if err != nil {
		return nil, err
	}
	listing := o.SendInitialEvents != nil && *o.SendInitialEvents
	s := &stream{bookmarker: bookmarker{kind: k.kind, source: source, frames: f}, observer: k.observer,
		out: newSendQueue(), last: start, listing: listing,
		bookmarks: o.AllowWatchBookmarks && start > 0, catchUp: k.joinOrBegin, listed: func() {}}
	if start == 0 && !listing {
		s.catchUp = never // such a watch begins with all objects, and the last of them is not marked
	} else if !listing && k.join(s) {
		return s, nil
	}
	s.from, err = cache.Watch(ctx, "/"+k.kind.Name, storage.ListOptions{ResourceVersion: o.ResourceVersion,
		ResourceVersionMatch: o.ResourceVersionMatch, Predicate: predicate, Recursive: true,
		SendInitialEvents: o.SendInitialEvents})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// everything returns the options that list or watch a whole kind from a version.
func everything(version string) storage.ListOptions {
	all := storage.SelectionPredicate{Label: labels.Everything(), Field: fields.Everything(), GetAttrs: attributes}
	return storage.ListOptions{ResourceVersion: version, Predicate: all, Recursive: true}
}

// never is how a stream catches up that cannot.
func never(*stream) bool { return false }

// joinOrBegin makes a stream a member of its hub if it has caught up with it. If there is no hub, one begins where the
// stream is.
func (k *Kind) joinOrBegin(s *stream) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	cache, h := k.cache, k.hubs[s.frames]
	if k.source != s.source {
		return false // the cache that the stream watches is gone
	}
	if h == nil || h.over() {
		if s.last > s.source.Reached().Version {
			return false // others could not join before the relay has come so far
		}
		h = newHub(s, func(ctx context.Context, version uint64) (watch.Interface, error) {
			return cache.Watch(ctx, "/"+k.kind.Name, everything(strconv.FormatUint(version, 10)))
		})
		k.hubs[s.frames] = h
	}
	return h.join(s)
}

// join makes a stream a member of its hub, if there is one and the stream has caught up with it.
func (k *Kind) join(s *stream) bool {
	k.mu.Lock()
	h := k.hubs[s.frames]
	current := k.source == s.source
	k.mu.Unlock()
	return current && h != nil && h.join(s)
}

// predicate returns what a request selects. There are no watches of a part, because
// they could get no bookmarks.
func (k *Kind) predicate(o *metainternalversion.ListOptions) (storage.SelectionPredicate, error) {
	if o.LabelSelector != nil && !o.LabelSelector.Empty() || o.FieldSelector != nil && !o.FieldSelector.Empty() {
		return storage.SelectionPredicate{}, apierrors.NewBadRequest(
			"a relay serves all " + k.kind.Name + " or none: it takes no selectors")
	}
	return storage.SelectionPredicate{Label: labels.Everything(), Field: fields.Everything(), GetAttrs: attributes,
		Limit: o.Limit, Continue: o.Continue}, nil
}

// absent is the answer of an API server that lacks a kind.
func (k *Kind) absent(verb string) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, verb, k.kind.Resource().GroupResource(),
		"", "", 0, true)
}

// expired counts an error if it is that a version is too old.
func (k *Kind) expired(err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		k.observer.Expired()
	}
}
