// Package serve answers lists and watches of agents out of the watch cache of k8s.io/apiserver.
//
//	kind := serve.NewKind(k, codecs, observer)
//	err := kind.Start(source)
//	handler := serve.Handler(kind, serve.NewTurns())
//
//	cache ─▶ stream, until it has caught up ─┐
//	cache ─▶ hub, for all that have ─────────┴▶ sendQueue, one for each agent ─▶ writer
//	         frames: each event is encoded once; pace: those that are close together are written together
//
// Turns bound the requests of each agent and the lists that are made at a time.
//
// Resource versions are those of the API server. Beyond what an API server does, each watch gets a bookmark each second
// (bookmarker), of exactly what it has been sent, as long as the source's own watch stands.
package serve

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	etcdfeature "k8s.io/apiserver/pkg/storage/feature"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/auth"
)

// Observer is notified of what happens to the watches of a kind; its methods may be called by several goroutines.
type Observer interface {
	// Watching is called with 1 for each watch that begins and -1 for each that ends.
	Watching(delta int)
	// Delivered is called with the number of events that are handed on together, to one agent or several.
	Delivered(events int)
	// Heartbeat is called with each bookmark.
	Heartbeat()
	// Written is called with each write of a watch.
	Written()
	// Expired is called when an agent gets the answer that its version is too old.
	Expired()
	// Slow is called when a watch is ended because its agent does not read.
	Slow()
}

const (
	// shortest is how long a watch lasts at least that does not say how long.
	shortest = 30 * time.Minute
	// timeout is how long a write may take before the connection is closed.
	timeout = 10 * time.Second
	// largest is how large a buffer is kept for the next burst.
	largest = 64 << 10
)

// progressing reports that the storage notifies of progress, as streaming lists require. It does: see package upstream.
type progressing struct {
	etcdfeature.FeatureSupportChecker
}

// Supports implements etcdfeature.FeatureSupportChecker.
func (progressing) Supports(f storage.Feature) bool { return f == storage.RequestWatchProgress }

// AllowStreamingLists makes caches answer lists in watches. What they ask is a variable of k8s.io/apiserver, so that it
// has to be called before the first cache is made.
func AllowStreamingLists() {
	etcdfeature.DefaultFeatureSupportChecker = progressing{etcdfeature.DefaultFeatureSupportChecker}
}

// handler answers requests for a kind.
type handler struct {
	*Kind
	turns     *Turns
	scope     *handlers.RequestScope
	list      http.Handler
	encodings encodings
}

// Handler returns what answers lists and watches of a kind, which take turns with those of other kinds.
func Handler(k *Kind, turns *Turns) http.Handler {
	l := lister{k, rest.NewDefaultTableConvertor(k.kind.Resource().GroupResource())}
	scope := &handlers.RequestScope{
		Namer:      handlers.ContextBasedNaming{Namer: runtime.Namer(meta.NewAccessor()), ClusterScoped: true},
		Serializer: k.codecs.Serializer(k.kind), ParameterCodec: k.codecs.Parameters,
		Creater: k.codecs.Scheme, Convertor: k.codecs.Scheme, Defaulter: k.codecs.Scheme, Typer: k.codecs.Scheme,
		UnsafeConvertor: k.codecs.Scheme, TableConvertor: l,
		Resource: k.kind.Resource(), Kind: k.kind.GroupVersionKind(), MetaGroupVersion: metav1.SchemeGroupVersion,
		HubGroupVersion: k.kind.Version,
	}
	return &handler{Kind: k, turns: turns, scope: scope, list: handlers.ListResource(l, nil, scope, false, shortest),
		encodings: encodings{kind: k.kind, codecs: k.codecs, by: map[string]*frames{}}}
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		http.Error(w, "a relay only lists and watches", http.StatusMethodNotAllowed)
		return
	}
	guarded := &writer{ResponseWriter: w, control: http.NewResponseController(w), observer: h.observer,
		timeout: timeout}
	defer guarded.end()
	if err := h.answer(guarded, r); err != nil {
		responsewriters.ErrorNegotiated(err, h.scope.Serializer, h.kind.Version, guarded, r)
	}
}

// answer answers a list or a watch. It returns an error if it has written nothing.
func (h *handler) answer(w *writer, r *http.Request) error {
	share, end, err := h.turns.begin(auth.Agent(r.Context()))
	if err != nil {
		return err
	}
	defer end()
	if watching := r.URL.Query().Get("watch"); watching != "" && watching != "false" && watching != "0" {
		return h.serveWatch(w, r, share)
	}
	turn := &turn{turns: h.turns, share: share, taken: func() { w.until = time.Now().Add(listTimeout) }}
	defer turn.end()
	ctx := context.WithValue(r.Context(), turnKey{}, turn)
	info := &request.RequestInfo{IsResourceRequest: true, Path: r.URL.Path, Verb: "list",
		APIGroup: h.kind.Version.Group, APIVersion: h.kind.Version.Version, Resource: h.kind.Name}
	h.list.ServeHTTP(w, r.WithContext(request.WithRequestInfo(ctx, info)))
	return nil
}

// options reads what a watch is asked for, as an API server does.
func options(r *http.Request) (*metainternalversion.ListOptions, error) {
	var o metainternalversion.ListOptions
	if err := scheme.ParameterCodec.DecodeParameters(r.URL.Query(), metav1.SchemeGroupVersion, &o); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	metainternalversion.SetListOptionsDefaults(&o, true)
	if errs := validation.ValidateListOptions(&o, true); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	return &o, nil
}

// lasting returns a context that ends with a watch.
func lasting(ctx context.Context, o *metainternalversion.ListOptions) (context.Context, context.CancelFunc) {
	length := shortest + rand.N(shortest) //nolint:gosec // spreads the ends of watches
	if o.TimeoutSeconds != nil && *o.TimeoutSeconds > 0 {
		length = time.Duration(*o.TimeoutSeconds) * time.Second
	}
	return context.WithTimeout(ctx, length)
}

// beginsWithList reports whether a watch begins with all objects.
func beginsWithList(o *metainternalversion.ListOptions) bool {
	return o.SendInitialEvents != nil && *o.SendInitialEvents || o.ResourceVersion == "" || o.ResourceVersion == "0"
}

// serveWatch writes the events of a watch until it ends. It returns an error if it has written nothing.
func (h *handler) serveWatch(w *writer, r *http.Request, share *share) error {
	o, err := options(r)
	if err != nil {
		return err
	}
	frames, err := h.encodings.of(r)
	if err != nil {
		return err
	}
	ctx, cancel := lasting(r.Context(), o)
	defer cancel()
	turn := &turn{turns: h.turns, share: share}
	if beginsWithList(o) {
		if err := turn.take(ctx); err != nil {
			return err
		}
		defer turn.end()
		defer time.AfterFunc(listTimeout, turn.end).Stop()
	}
	s, err := h.watch(ctx, o, frames)
	if err != nil {
		return err
	}
	if s.listing { // else there is no sign of the last of them
		s.listed = turn.end
	}
	h.observer.Watching(1)
	defer h.observer.Watching(-1)
	defer s.begin(ctx, cancel)()
	w.begin(frames.mediaType)
	w.writeAll(s.out)
	return nil
}

// writer closes the connection of an agent that does not read: a stream that is merely cut short would leave the
// connection full.
type writer struct {
	http.ResponseWriter
	control  *http.ResponseController
	observer Observer
	timeout  time.Duration
	until    time.Time // the end of the time for all writes; zero if there is none
	limited  time.Time // when the time of writes was last limited
	stuck    bool
	once     sync.Once
}

// begin begins to answer with a stream.
func (w *writer) begin(mediaType string) {
	w.Header().Set("Content-Type", mediaType)
	w.WriteHeader(http.StatusOK)
	w.Flush()
}

// writeAll writes what a send queue gets until its end, or until the agent is gone.
func (w *writer) writeAll(out *sendQueue) {
	var buffer []byte
	for bursts := out.take(nil); len(bursts) > 0; bursts = out.take(bursts) {
		all := bursts[0]
		if len(bursts) > 1 {
			buffer = buffer[:0]
			for _, burst := range bursts {
				buffer = append(buffer, burst...)
			}
			all = buffer
		}
		if _, err := w.Write(all); err != nil {
			return
		}
		w.Flush()
		if cap(buffer) > largest {
			buffer = nil
		}
	}
}

// limit limits the time of the next write. To set a limit takes a while, so that one serves all writes of a tenth of
// its length.
func (w *writer) limit() error {
	now := time.Now()
	if now.Sub(w.limited) < w.timeout/10 {
		return nil
	}
	w.limited = now
	deadline := now.Add(w.timeout)
	if !w.until.IsZero() && w.until.Before(deadline) {
		deadline = w.until
	}
	return w.control.SetWriteDeadline(deadline)
}

// Write implements http.ResponseWriter.
func (w *writer) Write(p []byte) (int, error) {
	if err := w.limit(); err != nil {
		return 0, errors.Wrap(err, "limiting the time of a write")
	}
	n, err := w.ResponseWriter.Write(p)
	return n, w.check(err)
}

// Flush implements http.Flusher.
func (w *writer) Flush() {
	if err := w.limit(); err != nil {
		return
	}
	w.observer.Written()
	_ = w.check(w.control.Flush()) // the next write fails too
}

func (w *writer) check(err error) error {
	var timeout interface{ Timeout() bool }
	if err != nil && errors.As(err, &timeout) && timeout.Timeout() {
		w.stuck = true
		w.once.Do(w.observer.Slow)
	}
	return err
}

// end gives up the connection if the agent did not read: what is still to be written, the end of the stream, could not
// be.
func (w *writer) end() {
	if w.stuck {
		panic(http.ErrAbortHandler)
	}
	_ = w.control.SetWriteDeadline(time.Time{}) // for the connection's next request
}
