package serve

import (
	"bytes"
	"net/http"
	"strconv"
	"sync"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/kinds"
)

// leftAnnotation marks the deletion of a pod that exists, and is not needed any more.
const leftAnnotation = "span.weave-npc/left"

// entry is a version of a pod as agents get it, encoded once for all of them.
type entry struct {
	pod     *packing
	version uint64
	// added is the event by which agents get the pod first, in protobuf, and object its part that is the pod.
	added, object []byte
}

// packing makes entries of pods, and the same in other encodings than protobuf.
type packing struct {
	codecs   *kinds.Codecs
	protobuf *frames
}

// newPacking returns what packs pods as agents ask for them.
func newPacking(e *encodings) (*packing, error) {
	asked := &http.Request{Header: http.Header{"Accept": {runtime.ContentTypeProtobuf}}}
	f, err := e.of(asked)
	if err != nil {
		return nil, errors.Wrap(err, "finding how to encode pods")
	}
	return &packing{e.codecs, f}, nil
}

// entry packs a pod.
func (k *packing) entry(p *corev1.Pod, version uint64) (*entry, error) {
	e := &entry{pod: k, version: version}
	var object bytes.Buffer
	if err := k.protobuf.object.Encode(p, &object); err != nil {
		return nil, errors.Wrap(err, "encoding a pod")
	}
	var err error
	if e.added, err = k.protobuf.wrap(watch.Added, object.Bytes()); err != nil {
		return nil, err
	}
	if e.object = object.Bytes(); bytes.HasSuffix(e.added, e.object) {
		e.object = e.added[len(e.added)-len(e.object):] // not twice in memory
	}
	return e, nil
}

// decode returns the pod.
func (e *entry) decode() (*corev1.Pod, error) {
	o, _, err := e.pod.codecs.Factory.UniversalDeserializer().Decode(e.object, nil, nil)
	if err != nil {
		return nil, errors.Wrap(err, "decoding a pod")
	}
	p, ok := o.(*corev1.Pod)
	if !ok {
		return nil, errors.Errorf("a pod became a %T", o)
	}
	return p, nil
}

// as returns the bytes of an event of the pod, which must not be changed.
func (e *entry) as(typ watch.EventType, f *frames) ([]byte, error) {
	switch {
	case f != e.pod.protobuf:
		p, err := e.decode()
		if err != nil {
			return nil, err
		}
		return f.encode(watch.Event{Type: typ, Object: p})
	case typ == watch.Added:
		return e.added, nil
	}
	return f.wrap(typ, e.object)
}

// left returns what tells that the pod is not needed any more.
func (e *entry) left() (*entry, error) {
	p, err := e.decode()
	if err != nil {
		return nil, err
	}
	bare := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
		Annotations: map[string]string{leftAnnotation: "true"}}}
	return e.pod.entry(bare, e.version)
}

// bookmark packs what says that everything up to a version has been told.
func (k *packing) bookmark(version uint64, annotations map[string]string) (*message, error) {
	e, err := k.entry(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.FormatUint(version, 10), Annotations: annotations}}, version)
	return &message{typ: watch.Bookmark, entry: e}, err
}

// message is an event that several agents get.
type message struct {
	typ   watch.EventType
	entry *entry

	mu   sync.Mutex
	made map[*frames][]byte
}

// bytes returns the event in an encoding.
func (m *message) bytes(f *frames) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if made, ok := m.made[f]; ok {
		return made, nil
	}
	made, err := m.entry.as(m.typ, f)
	if m.made == nil {
		m.made = map[*frames][]byte{}
	}
	m.made[f] = made
	return made, err
}
