package serve

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

const (
	// spanField is the field by which agents ask for the span of a node, and afterField, with the name of a kind, what they have been told of it.
	spanField, afterField = "span", "after."
)

// Handler returns what answers agents that ask for the span of a node, and passes on all other requests for pods.
func (s *Spans) Handler(pods http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Query().Get("fieldSelector"), spanField+"=") {
			pods.ServeHTTP(w, r)
			return
		}
		k := s.kinds.Pods
		guarded := &writer{ResponseWriter: w, control: http.NewResponseController(w), observer: k.observer, patience: patience}
		defer guarded.end()
		if err := s.answer(guarded, r); err != nil {
			responsewriters.ErrorNegotiated(err, k.codecs.Serializer(k.kind), k.kind.Version, guarded, r)
		}
	})
}

// answer lists or watches a span. It returns an error if it has written nothing.
func (s *Spans) answer(w *writer, r *http.Request) error {
	o, err := options(r)
	if err != nil {
		return err
	}
	asked, err := spanOf(o)
	if err != nil {
		return err
	}
	if o.Watch && (o.SendInitialEvents == nil || !*o.SendInitialEvents) {
		return apierrors.NewBadRequest("a span is watched with sendInitialEvents: what was in it before is not known")
	}
	f, err := s.encodings.of(r)
	if err != nil {
		return err
	}
	ctx, cancel := lasting(r.Context(), o)
	defer cancel()
	asked.ctx, asked.arrived, asked.reply = ctx, time.Now(), make(chan error, 1)
	s.ask(asked)
	defer s.leave(asked)
	select {
	case err := <-asked.reply:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return apierrors.NewTimeoutError("the relay does not answer", 0)
	}
	if !o.Watch {
		return s.list(w, r, asked)
	}
	s.kinds.Pods.observer.Watching(1)
	defer s.kinds.Pods.observer.Watching(-1)
	w.begin(f.mediaType)
	asked.stream.write(ctx, w, f)
	return nil
}

// list answers with the pods with which a stream would begin.
func (s *Spans) list(w *writer, r *http.Request, asked *spanRequest) error {
	list := &corev1.PodList{}
	list.ResourceVersion = strconv.FormatUint(asked.reached, 10)
	for _, o := range asked.stream.first {
		p, err := o.(*entry).decode()
		if err != nil {
			return err
		}
		list.Items = append(list.Items, *p)
	}
	k := s.kinds.Pods
	responsewriters.WriteObjectNegotiated(k.codecs.Serializer(k.kind), negotiation.DefaultEndpointRestrictions, k.kind.Version, w, r, http.StatusOK, list, false)
	return nil
}

// spanOf reads from the selectors of a request whose span is wanted, and what the agent has been told.
func spanOf(o *metainternalversion.ListOptions) (*spanRequest, error) {
	if o.LabelSelector != nil && !o.LabelSelector.Empty() {
		return nil, apierrors.NewBadRequest("a span is asked for without a label selector")
	}
	r := &spanRequest{after: map[string]uint64{}}
	for _, want := range o.FieldSelector.Requirements() {
		kind, after := strings.CutPrefix(want.Field, afterField)
		switch {
		case want.Operator != selection.Equals && want.Operator != selection.DoubleEquals:
			return nil, apierrors.NewBadRequest(fmt.Sprintf("a span is not asked for with %s%s", want.Field, want.Operator))
		case want.Field == spanField && want.Value != "":
			r.node = want.Value
		case after:
			version, err := strconv.ParseUint(want.Value, 10, 64)
			if err != nil {
				return nil, apierrors.NewBadRequest(fmt.Sprintf("%s=%s is no version", want.Field, want.Value))
			}
			r.after[kind] = version
		default:
			return nil, apierrors.NewBadRequest(fmt.Sprintf("a span is not asked for with %s=%s", want.Field, want.Value))
		}
	}
	if r.node == "" {
		return nil, apierrors.NewBadRequest("a span is asked for with " + spanField + "=NODE")
	}
	version := o.ResourceVersion
	if version == "" {
		return r, nil
	}
	var err error
	if r.version, err = strconv.ParseUint(version, 10, 64); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%q is no version", version))
	}
	return r, nil
}
