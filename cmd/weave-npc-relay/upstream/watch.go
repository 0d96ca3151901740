package upstream

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// renewal is how long each upstream watch is asked to last, in seconds. An API server sends a bookmark about two
// seconds before the end of a watch, by a clock of its own that ticks each second, and else once a minute, which is too
// seldom for progress. With three seconds each watch gets one.
const renewal = 3

// watcher is a watch that is renewed until its version is too old.
type watcher struct {
	store  *store
	events chan watch.Event
	done   chan struct{}
	once   sync.Once
}

// Watch watches all objects from a version on.
func (s *store) Watch(_ context.Context, _ string, o storage.ListOptions) (watch.Interface, error) {
	version, err := s.Versioner().ParseResourceVersion(o.ResourceVersion)
	if err != nil {
		return nil, errors.Wrapf(err, "watching %s", s.kind.Name)
	}
	w := &watcher{store: s, events: make(chan watch.Event), done: make(chan struct{})}
	go w.run(version)
	return w, nil
}

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface.
func (w *watcher) Stop() { w.once.Do(func() { close(w.done) }) }

func (w *watcher) run(version uint64) {
	defer close(w.events)
	s := w.store
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	go func() {
		select {
		case <-w.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	failures := 0
	for ctx.Err() == nil {
		reached, err := w.follow(ctx, version, failures > 0)
		version = max(version, reached)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failures = 0
		case expired(err):
			s.progress.broken()
			status := apierrors.NewResourceExpired(err.Error()).Status()
			w.send(watch.Event{Type: watch.Error, Object: &status})
			return
		default:
			s.progress.broken()
			s.observer.Failed("watch", err)
			s.wait(failures)
			failures++
		}
	}
}

// follow watches from a version on until the watch ends, as it was asked to or with an error, and returns the version
// that it has reached.
func (w *watcher) follow(ctx context.Context, version uint64, again bool) (uint64, error) {
	s := w.store
	start, seconds := time.Now(), int64(renewal)
	o := metav1.ListOptions{Watch: true, AllowWatchBookmarks: true,
		ResourceVersion: strconv.FormatUint(version, 10), TimeoutSeconds: &seconds}
	stream, err := s.request(o).Watch(ctx)
	if err != nil {
		return version, err
	}
	defer stream.Stop()
	if again {
		s.observer.Reconnected()
	}
	s.progress.connected()
	for e := range stream.ResultChan() {
		if e.Type == watch.Error {
			return version, apierrors.FromObject(e.Object)
		}
		next, err := w.pass(e, version)
		if err != nil {
			return version, err
		}
		version = next
		if e.Type == watch.Bookmark {
			return version, nil // there will be no other
		}
	}
	if lasted := time.Since(start); lasted < renewal*time.Second/2 {
		return version, errors.Errorf("the stream ended after %s", lasted.Round(time.Millisecond))
	}
	s.progress.connected()
	return version, nil
}

// pass passes an event on, and returns its version.
func (w *watcher) pass(e watch.Event, after uint64) (uint64, error) {
	s := w.store
	version, err := s.Versioner().ObjectResourceVersion(e.Object)
	if err != nil {
		return 0, errors.Wrapf(err, "reading an event of %s", s.kind.Name)
	}
	if e.Type == watch.Bookmark {
		if version > after {
			w.bookmark(version)
		}
		return max(version, after), nil
	}
	if version <= after {
		return 0, errors.Errorf("an event of %s has the version %d, after %d", s.kind.Name, version, after)
	}
	e.Object = s.kind.Strip(e.Object)
	if e.Object == nil {
		return 0, errors.Errorf("an event of %s has another kind of object", s.kind.Name)
	}
	if e.Type == watch.Deleted {
		s.forget(e.Object)
	} else {
		same, err := s.unchanged(e.Object)
		if err != nil {
			return 0, err
		}
		if same {
			w.bookmark(version)
			return version, nil
		}
	}
	s.progress.event(version)
	w.send(e)
	return version, nil
}

// bookmark passes on that everything up to a version has been passed on.
func (w *watcher) bookmark(version uint64) {
	e, err := w.store.kind.Bookmark(strconv.FormatUint(version, 10))
	if err != nil {
		return // no kind is without metadata
	}
	w.store.progress.bookmark(version)
	w.send(e)
}

func (w *watcher) send(e watch.Event) {
	select {
	case w.events <- e:
	case <-w.done:
	case <-w.store.ctx.Done():
	}
}

// readOnly is the part of a storage.Interface that the cache never calls, or that has no meaning here.
type readOnly struct{}

func (readOnly) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

func (readOnly) Create(context.Context, string, runtime.Object, runtime.Object, uint64) error {
	return errReadOnly()
}

func (readOnly) Delete(context.Context, string, runtime.Object, *storage.Preconditions, storage.ValidateObjectFunc,
	runtime.Object, storage.DeleteOptions) error {
	return errReadOnly()
}

func (readOnly) Get(context.Context, string, storage.GetOptions, runtime.Object) error {
	return errReadOnly()
}

func (readOnly) GuaranteedUpdate(context.Context, string, runtime.Object, bool, *storage.Preconditions,
	storage.UpdateFunc, runtime.Object) error {
	return errReadOnly()
}

func (readOnly) Stats(context.Context) (storage.Stats, error) { return storage.Stats{}, nil }

func (readOnly) ReadinessCheck() error { return nil }

func (readOnly) RequestWatchProgress(context.Context) error { return nil }

func (readOnly) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }

func (readOnly) CompactRevision() int64 { return 0 }

func errReadOnly() error { return errors.New("a relay only lists and watches") }
