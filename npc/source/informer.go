package source

import (
	"context"
	"log/slog"
	"sync"

	"github.com/go-logr/logr"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// informer watches one kind and delivers every change.
type informer struct {
	cache.SharedIndexInformer
	handled    cache.DoneChecker // is done when the first list has been delivered
	connection *connection
	log        *slog.Logger
}

func newInformer(d delivery, lw listWatcher, client any, sink Sink, log *slog.Logger) (*informer, error) {
	var oneAtATime sync.Mutex // guards sink: calls about one kind come one at a time
	connection := &connection{kind: d.kind, log: log, grace: outageGrace, report: func(ok bool) {
		oneAtATime.Lock()
		defer oneAtATime.Unlock()
		sink.SetConnected(d.kind, ok)
	}}
	i := &informer{
		SharedIndexInformer: cache.NewSharedIndexInformerWithOptions(
			cache.ToListWatcherWithWatchListSemantics(connection.observe(lw), client),
			d.example, cache.SharedIndexInformerOptions{ObjectDescription: d.kind}),
		connection: connection,
		log:        log,
	}
	if err := i.SetTransform(d.transform); err != nil {
		return nil, errors.Wrapf(err, "setting up the informer of %s", d.kind)
	}
	// The connection reports failures once per outage.
	err := i.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		log.Debug("watch ended", "kind", d.kind, "err", err)
	})
	if err != nil {
		return nil, errors.Wrapf(err, "setting up the informer of %s", d.kind)
	}
	registration, err := i.AddEventHandler(d.handlers(&oneAtATime))
	if err != nil {
		return nil, errors.Wrapf(err, "setting up the informer of %s", d.kind)
	}
	i.handled = registration.HasSyncedChecker()
	return i, nil
}

// run lists and watches until ctx ends and the last event has been handled.
func (i *informer) run(ctx context.Context) {
	defer i.connection.close()
	i.RunWithContext(klog.NewContext(ctx, logr.FromSlogHandler(quiet{i.log.Handler()})))
}

func (d delivery) handlers(oneAtATime *sync.Mutex) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			oneAtATime.Lock()
			defer oneAtATime.Unlock()
			d.set(nil, obj)
		},
		UpdateFunc: func(old, obj any) {
			oneAtATime.Lock()
			defer oneAtATime.Unlock()
			d.set(old, obj)
		},
		DeleteFunc: func(obj any) {
			oneAtATime.Lock()
			defer oneAtATime.Unlock()
			d.remove(identity(obj))
		},
	}
}

// identity returns the names and the UID of a deleted object. The UID is empty if only the names are known.
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

// quiet is a log handler that logs everything below an error at the debug level: client-go logs every retry.
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
