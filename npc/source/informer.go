package source

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/weave-npc/weave-npc/npc"
)

// feed is the way of one kind from its informer to the sink.
type feed struct {
	kind    string
	example runtime.Object
	keep    cache.TransformFunc // keeps only facts
	set     func(old, obj any)  // old is nil for an object that is new
	remove  func(namespace, name string, uid types.UID)
}

// feeds returns the ways of all three kinds to sink.
func feeds(sink Sink, log *slog.Logger) []feed {
	return []feed{{
		kind:    Namespaces,
		example: &corev1.Namespace{},
		keep:    keepNamespace,
		set:     handOver("namespace", log, func(n *npc.Namespace) { sink.SetNamespace(*n) }),
		remove:  func(_, name string, uid types.UID) { sink.DeleteNamespace(name, uid) },
	}, {
		kind:    Pods,
		example: &corev1.Pod{},
		keep:    keepPod,
		set:     handOver("pod", log, func(p *npc.Pod) { sink.SetPod(*p) }),
		remove:  sink.DeletePod,
	}, {
		kind:    NetworkPolicies,
		example: &networkingv1.NetworkPolicy{},
		keep:    keepPolicy,
		set:     handOver("policy", log, sink.SetPolicy),
		remove:  sink.DeletePolicy,
	}}
}

// handOver gives what is stored of an object to the sink, which keeps the facts from then on.
func handOver[T any](kind string, log *slog.Logger, set func(*T)) func(old, obj any) {
	return func(old, obj any) {
		s := obj.(*stored[T])
		if o, _ := old.(*stored[T]); o == nil || !slices.Equal(o.ignored, s.ignored) {
			logIgnored(log, kind, cache.NewObjectName(s.namespace, s.name).String(), s.ignored)
		}
		if s.facts == nil {
			return // it was handed over before
		}
		set(s.facts)
		s.facts = nil // nobody else reads them
	}
}

func logIgnored(log *slog.Logger, kind, name string, ignored []string) {
	for _, what := range ignored {
		log.Warn("part of an object is ignored", kind, name, "what", what)
	}
}

// informer keeps the store of one kind up to date and hands every change to the sink.
type informer struct {
	cache.SharedIndexInformer
	handled    cache.DoneChecker // the first list has passed the handlers
	connection *connection
	log        *slog.Logger
}

func newInformer(f feed, lw listWatcher, client any, sink Sink, log *slog.Logger) (*informer, error) {
	var oneAtATime sync.Mutex
	connection := &connection{kind: f.kind, log: log, moment: moment, report: func(ok bool) {
		oneAtATime.Lock()
		defer oneAtATime.Unlock()
		sink.SetConnected(f.kind, ok)
	}}
	i := &informer{
		SharedIndexInformer: cache.NewSharedIndexInformerWithOptions(
			cache.ToListWatcherWithWatchListSemantics(connection.observe(lw), client),
			f.example, cache.SharedIndexInformerOptions{ObjectDescription: f.kind}),
		connection: connection,
		log:        log,
	}
	if err := i.SetTransform(f.keep); err != nil {
		return nil, errors.Wrapf(err, "setting up the informer of %s", f.kind)
	}
	// The connection reports failures once per outage.
	err := i.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		log.Debug("watch ended", "kind", f.kind, "err", err)
	})
	if err != nil {
		return nil, errors.Wrapf(err, "setting up the informer of %s", f.kind)
	}
	registration, err := i.AddEventHandler(f.handlers(&oneAtATime))
	if err != nil {
		return nil, errors.Wrapf(err, "setting up the informer of %s", f.kind)
	}
	i.handled = registration.HasSyncedChecker()
	return i, nil
}

// run lists and watches until ctx ends and the last event has been handled.
func (i *informer) run(ctx context.Context) {
	defer i.connection.close()
	i.RunWithContext(klog.NewContext(ctx, logr.FromSlogHandler(quiet{i.log.Handler()})))
}

func (f feed) handlers(oneAtATime *sync.Mutex) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			oneAtATime.Lock()
			defer oneAtATime.Unlock()
			f.set(nil, obj)
		},
		UpdateFunc: func(old, obj any) {
			oneAtATime.Lock()
			defer oneAtATime.Unlock()
			f.set(old, obj)
		},
		DeleteFunc: func(obj any) {
			oneAtATime.Lock()
			defer oneAtATime.Unlock()
			f.remove(identity(obj))
		},
	}
}

// identity returns what a deleted object was, as far as that is known.
func identity(obj any) (namespace, name string, uid types.UID) {
	key := ""
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		key, obj = gone.Key, gone.Obj
	}
	if m, err := meta.Accessor(obj); err == nil {
		return m.GetNamespace(), m.GetName(), m.GetUID()
	}
	namespace, name, _ = cache.SplitMetaNamespaceKey(key)
	return namespace, name, ""
}

// quiet is a handler that takes everything below an error as debugging: client-go logs every retry.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return q.Handler.Enabled(ctx, quietLevel(level))
}

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	r.Level = quietLevel(r.Level)
	return q.Handler.Handle(ctx, r)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }

func quietLevel(level slog.Level) slog.Level {
	if level >= slog.LevelError {
		return level
	}
	return min(level, slog.LevelDebug)
}
