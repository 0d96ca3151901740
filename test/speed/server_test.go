package speed

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"
)

// server serves the part of the Kubernetes API, in protobuf, that watches of three kinds with streamed lists need.
type server struct {
	initial map[string][]byte // kind -> events of all objects, and the bookmark that ends them
	url     string

	mu      sync.Mutex
	version int
	watches map[string]map[chan []byte]struct{} // kind -> who watches it
}

func serve(b *testing.B, objects map[string][]runtime.Object) *server {
	b.Helper()
	s := &server{initial: map[string][]byte{}, version: 1, watches: map[string]map[chan []byte]struct{}{}}
	ends := metav1.ObjectMeta{ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
	for kind, end := range map[string]runtime.Object{"namespaces": &corev1.Namespace{ObjectMeta: ends}, "pods": &corev1.Pod{ObjectMeta: ends},
		"networkpolicies": &networkingv1.NetworkPolicy{ObjectMeta: ends}} {
		var all bytes.Buffer
		for _, o := range objects[kind] {
			encode(b, &all, watch.Added, o)
		}
		encode(b, &all, watch.Bookmark, end)
		s.initial[kind] = all.Bytes()
		s.watches[kind] = map[chan []byte]struct{}{}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s.url = "http://" + listener.Addr().String()
	h := &http.Server{Handler: s}
	go h.Serve(listener)
	b.Cleanup(func() { h.Close() })
	return s
}

// encode writes an event as a watch sends it.
func encode(b *testing.B, to *bytes.Buffer, kind watch.EventType, o runtime.Object) {
	b.Helper()
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	version := corev1.SchemeGroupVersion
	if _, ok := o.(*networkingv1.NetworkPolicy); ok {
		version = networkingv1.SchemeGroupVersion
	}
	frames := streaming.NewEncoder(info.StreamSerializer.NewFrameWriter(to), info.StreamSerializer.Serializer)
	err := restwatch.NewEncoder(frames, scheme.Codecs.EncoderForVersion(info.Serializer, version)).Encode(&watch.Event{Type: kind, Object: o})
	if err != nil {
		b.Fatal(err)
	}
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind := path.Base(r.URL.Path)
	if s.initial[kind] == nil || r.URL.Query().Get("watch") == "" {
		s.serveNode(w, r)
		return
	}
	events := make(chan []byte, 1<<16)
	s.mu.Lock()
	s.watches[kind][events] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.watches[kind], events)
		s.mu.Unlock()
	}()
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		w.Write(s.initial[kind])
	}
	for {
		w.(http.Flusher).Flush()
		select {
		case event := <-events:
			w.Write(event)
		case <-r.Context().Done():
			return
		}
	}
}

// serveNode returns a Node object for every name that is requested.
func (s *server) serveNode(w http.ResponseWriter, r *http.Request) {
	if path.Base(path.Dir(r.URL.Path)) != "nodes" {
		http.Error(w, "not served here", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"kind": "Node", "apiVersion": "v1", "metadata": {"name": %q}, "spec": {"podCIDRs": ["10.32.1.0/24"]}}`, path.Base(r.URL.Path))
}

// podEvents returns changes of pods, to be sent later.
func (s *server) podEvents(b *testing.B, pods ...*corev1.Pod) (events [][]byte) {
	b.Helper()
	for _, p := range pods {
		s.version++
		p.ResourceVersion = fmt.Sprint(s.version)
		var event bytes.Buffer
		encode(b, &event, watch.Modified, p)
		events = append(events, event.Bytes())
	}
	return events
}

// send sends an event to all who watch pods.
func (s *server) send(event []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches["pods"] {
		w <- event
	}
}

// kubeconfig writes the file that leads to the server.
func (s *server) kubeconfig(b *testing.B) string {
	b.Helper()
	file := filepath.Join(b.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"clusters": [{"name": "c", "cluster": {"server": %q}}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],
"current-context": "c"}`, s.url)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	return file
}
