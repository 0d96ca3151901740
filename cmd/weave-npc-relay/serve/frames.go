package serve

import (
	"bytes"
	"net/http"
	"sync"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/kinds"
)

// kept is how many frames are kept for the watches that have not come to them yet.
const kept = 512

// frames encodes the events of a kind as watches in one encoding send them. All watches of the kind send the same
// bytes, which are made once.
type frames struct {
	mediaType     string
	object, event runtime.Encoder
	framer        runtime.Framer

	mu      sync.Mutex // guards the fields below
	byEvent map[eventKey]*frame
	oldest  [kept]eventKey // a ring
	next    int
}

// eventKey identifies an event of the cache, which hands the same object to all watches.
type eventKey struct {
	object runtime.Object
	typ    watch.EventType
}

type frame struct {
	once  sync.Once
	bytes []byte
	err   error
}

// encodings are the frames of a kind by media type.
type encodings struct {
	kind   *kinds.Kind
	codecs *kinds.Codecs

	mu sync.Mutex // guards the fields below
	by map[string]*frames
}

// of returns the frames in the encoding that a request accepts.
func (e *encodings) of(r *http.Request) (*frames, error) {
	serializer := e.codecs.Serializer(e.kind)
	info, err := negotiation.NegotiateOutputMediaTypeStream(r, serializer, negotiation.DefaultEndpointRestrictions)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if f, ok := e.by[info.MediaType]; ok {
		return f, nil
	}
	version := e.kind.Version
	f := &frames{mediaType: info.MediaType, object: serializer.EncoderForVersion(info.Serializer, version),
		event:  serializer.EncoderForVersion(info.StreamSerializer.Serializer, version),
		framer: info.StreamSerializer.Framer, byEvent: map[eventKey]*frame{}}
	if info.MediaType != runtime.ContentTypeJSON {
		f.mediaType += ";stream=watch"
	}
	e.by[info.MediaType] = f
	return f, nil
}

// of returns the bytes of an event, which must not be changed.
func (f *frames) of(e watch.Event) ([]byte, error) {
	if _, shared := e.Object.(runtime.CacheableObject); !shared {
		return f.encode(e)
	}
	made := f.frame(eventKey{e.Object, e.Type})
	made.once.Do(func() { made.bytes, made.err = f.encode(e) })
	return made.bytes, made.err
}

func (f *frames) frame(k eventKey) *frame {
	f.mu.Lock()
	defer f.mu.Unlock()
	made, ok := f.byEvent[k]
	if !ok {
		made = &frame{}
		delete(f.byEvent, f.oldest[f.next])
		f.byEvent[k], f.oldest[f.next] = made, k
		f.next = (f.next + 1) % kept
	}
	return made
}

func (f *frames) encode(e watch.Event) ([]byte, error) {
	var object bytes.Buffer
	if err := f.object.Encode(e.Object, &object); err != nil {
		return nil, errors.Wrap(err, "encoding an object")
	}
	var out bytes.Buffer
	event := &metav1.WatchEvent{Type: string(e.Type), Object: runtime.RawExtension{Raw: object.Bytes()}}
	err := f.event.Encode(event, f.framer.NewFrameWriter(&out))
	return out.Bytes(), errors.Wrap(err, "encoding an event")
}
