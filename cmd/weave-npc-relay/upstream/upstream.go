// Package upstream reads one kind of objects from an API server, as the watch cache reads from etcd.
//
//	store := upstream.New(kind, client, observer)
//	cache, err := cacher.NewCacherFromConfig(cacher.Config{Storage: store, ...})
//	store.Reached() // how far its watch has come, and whether it stands
//
//	GetList, Watch    lists, and a watch that is renewed (watch), of stripped objects
//	progress          how far the watch has come, for bookmarks
//	shared            asks for the version of the API server once for all who wait
//
// Package upstream retries after errors itself. The watch cache of k8s.io/apiserver ends all its watchers at any error,
// so it gets only one: that a version is too old. Objects are stripped to what agents need, and updates that change
// nothing of that become progress.
package upstream

import (
	"context"
	"encoding/json"
	"hash/maphash"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/kinds"
)

// asking is how often the API server is asked for the version of a kind. What a watch has reached is behind the API
// server by that, by one renewal, and by the time of the answer, however little happens to the kind.
const asking = 5 * time.Second

// Observer is notified of what happens; its methods may be called by several goroutines.
type Observer interface {
	// Reconnected is called when a watch is made again after it broke.
	Reconnected()
	// Failed is called with each error.
	Failed(doing string, err error)
}

// Source is what a kind is read from. Its methods may be called by several goroutines.
type Source interface {
	storage.Interface
	// Reached returns how far the watch of the kind has come.
	Reached() Reached
	// Close ends all calls and watches.
	Close()
}

// store reads one kind. Its methods may be called by several goroutines.
type store struct {
	readOnly
	kind     *kinds.Kind
	client   rest.Interface
	observer Observer
	progress progress
	current  *shared
	seed     maphash.Seed
	ctx      context.Context
	stop     context.CancelFunc

	mu   sync.Mutex                      // guards the fields below
	held map[types.NamespacedName]uint64 // object -> digest of what was last passed on of it
}

// New returns a source that reads a kind with a client. Close ends it.
func New(kind *kinds.Kind, client rest.Interface, observer Observer) Source {
	s := &store{kind: kind, client: client, observer: observer, progress: progress{now: time.Now}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.current = &shared{ask: s.askVersion}
	s.seed = maphash.MakeSeed()
	go s.advance()
	return s
}

// Close ends all calls and watches.
func (s *store) Close() { s.stop() }

// Reached returns how far the watch of the kind has come.
func (s *store) Reached() Reached { return s.progress.reached() }

// IsWatchListSemanticsUnSupported makes the cache list instead of asking for a list in a watch.
func (s *store) IsWatchListSemanticsUnSupported() bool { return true }

// GetList lists a page of all objects; it returns only when it could, when the list is expired, or when the store is
// closed.
func (s *store) GetList(_ context.Context, _ string, o storage.ListOptions, into runtime.Object) error {
	options := metav1.ListOptions{Limit: o.Predicate.Limit, Continue: o.Predicate.Continue,
		ResourceVersion: o.ResourceVersion, ResourceVersionMatch: o.ResourceVersionMatch}
	for attempt := 0; ; attempt++ {
		err := s.list(options, into)
		switch {
		case err == nil:
			return nil
		case expired(err):
			return err
		case s.ctx.Err() != nil:
			return errors.Wrap(s.ctx.Err(), "the relay ends")
		}
		s.progress.broken()
		s.observer.Failed("list", err)
		s.wait(attempt)
	}
}

// request returns a request of the kind.
func (s *store) request(o metav1.ListOptions) *rest.Request {
	return s.client.Get().Resource(s.kind.Name).
		SpecificallyVersionedParams(&o, scheme.ParameterCodec, schema.GroupVersion{Version: "v1"})
}

func (s *store) list(o metav1.ListOptions, into runtime.Object) error {
	page := s.kind.NewList()
	if err := s.request(o).Do(s.ctx).Into(page); err != nil {
		return err
	}
	list, err := meta.ListAccessor(page)
	if err != nil {
		return errors.Wrapf(err, "reading a list of %s", s.kind.Name)
	}
	version, err := s.Versioner().ParseResourceVersion(list.GetResourceVersion())
	if err != nil {
		return errors.Wrapf(err, "reading a list of %s", s.kind.Name)
	}
	if err := s.stripAll(page, o.Continue == ""); err != nil {
		return err
	}
	if list.GetContinue() == "" {
		s.progress.listed(version)
	}
	return copyInto(page, into)
}

// stripAll strips the objects of a page, and holds them; first is set for the first page of a list.
func (s *store) stripAll(page runtime.Object, first bool) error {
	objects, err := meta.ExtractList(page)
	if err != nil {
		return errors.Wrapf(err, "reading a list of %s", s.kind.Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if first {
		s.held = make(map[types.NamespacedName]uint64, len(objects))
	}
	for i, o := range objects {
		stripped := s.kind.Strip(o)
		if stripped == nil {
			return errors.Errorf("a list of %s has a %T", s.kind.Name, o)
		}
		objects[i] = stripped
		digest, err := s.digest(stripped)
		if err != nil {
			return err
		}
		s.held[key(stripped)] = digest
	}
	return errors.Wrapf(meta.SetList(page, objects), "reading a list of %s", s.kind.Name)
}

// copyInto copies a list into one of the same type.
func copyInto(from, into runtime.Object) error {
	objects, err := meta.ExtractList(from)
	if err != nil {
		return errors.Wrap(err, "copying a list")
	}
	if err := meta.SetList(into, objects); err != nil {
		return errors.Wrap(err, "copying a list")
	}
	f, err := meta.ListAccessor(from)
	if err != nil {
		return errors.Wrap(err, "copying a list")
	}
	t, err := meta.ListAccessor(into)
	if err != nil {
		return errors.Wrap(err, "copying a list")
	}
	t.SetResourceVersion(f.GetResourceVersion())
	t.SetContinue(f.GetContinue())
	t.SetRemainingItemCount(f.GetRemainingItemCount())
	return nil
}

// unchanged reports whether what agents need of an object is what was last passed on, and otherwise holds it.
func (s *store) unchanged(stripped runtime.Object) (bool, error) {
	digest, err := s.digest(stripped)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key(stripped)
	last, ok := s.held[k]
	s.held[k] = digest
	return ok && last == digest, nil
}

// forget handles that an object is gone.
func (s *store) forget(stripped runtime.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, key(stripped))
}

// digest returns a digest of an object without its version. Its seed is random, so that no
// client can create two objects that share one. It changes the object's version for a moment, so no other goroutine may
// have the object yet.
func (s *store) digest(stripped runtime.Object) (uint64, error) {
	m := objectMeta(stripped)
	version := m.GetResourceVersion()
	m.SetResourceVersion("")
	defer m.SetResourceVersion(version)
	var text []byte
	var err error
	if p, ok := stripped.(interface{ Marshal() ([]byte, error) }); ok {
		text, err = p.Marshal()
	} else {
		text, err = json.Marshal(stripped)
	}
	return maphash.Bytes(s.seed, text), errors.Wrapf(err, "encoding one of %s", s.kind.Name)
}

// objectMeta returns the metadata of an object of a kind; all kinds have some.
func objectMeta(o runtime.Object) metav1.Object { return o.(metav1.ObjectMetaAccessor).GetObjectMeta() }

func key(o runtime.Object) types.NamespacedName {
	m := objectMeta(o)
	return types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}
}

// GetCurrentResourceVersion asks the API server for the version of the kind as of now. Calls at the same time share an
// answer.
func (s *store) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	return s.current.get(ctx)
}

func (s *store) askVersion() (uint64, error) {
	ctx, cancel := context.WithTimeout(s.ctx, 10*time.Second)
	defer cancel()
	page := s.kind.NewList()
	if err := s.request(metav1.ListOptions{Limit: 1}).Do(ctx).Into(page); err != nil {
		return 0, apierrors.NewServiceUnavailable(
			"asking the API server for the version of " + s.kind.Name + ": " + err.Error())
	}
	list, err := meta.ListAccessor(page)
	if err != nil {
		return 0, errors.Wrapf(err, "reading a list of %s", s.kind.Name)
	}
	version, err := strconv.ParseUint(list.GetResourceVersion(), 10, 64)
	return version, errors.Wrapf(err, "reading the version of %s", s.kind.Name)
}

// advance asks for the version of the kind again and again. An API server learns that nothing happened to a kind only
// when it is asked, if its etcd does not notify it; and the versions of a kind to which nothing happens would
// become too old for a relay that has just listed it.
func (s *store) advance() {
	ticker := time.NewTicker(asking)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if s.Reached().Fresh {
				_, _ = s.current.get(s.ctx) // the next time
			}
		case <-s.ctx.Done():
			return
		}
	}
}

// wait waits before another attempt, longer after several.
func (s *store) wait(attempt int) {
	pause := min(100*time.Millisecond<<min(attempt, 5), 2*time.Second)
	timer := time.NewTimer(pause/2 + rand.N(pause/2+1)) //nolint:gosec // spreads attempts
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
	}
}

func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }
