package relay_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	restwatch "k8s.io/client-go/rest/watch"
)

// stock is what an API server has that answers without an etcd. Pods alone change.
type stock struct {
	pods       int
	pod        func(i int) *corev1.Pod
	namespaces []corev1.Namespace
	policies   []networkingv1.NetworkPolicy
	nodes      []corev1.Node

	streamed []byte // the events with which a stream of all pods begins; nil to make them each time

	mu      sync.Mutex
	events  []*corev1.Pod // the pods that have changed, as they are then
	changed chan struct{} // is closed when there is another
}

// many is an API server with many pods, to which nothing happens.
func many(t *testing.T, pods int) *rest.Config {
	t.Helper()
	config, _ := (&stock{pods: pods, pod: largePod}).serve(t)
	return config
}

// first is the version of all lists.
func (s *stock) first() int { return s.pods + 1 }

// change changes a pod.
func (s *stock) change(p *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, p)
	p.ResourceVersion = strconv.Itoa(s.first() + len(s.events))
	if s.changed != nil {
		close(s.changed)
	}
	s.changed = nil
}

// after returns the changes after a number of them, and what is closed when there are more.
func (s *stock) after(n int) ([]*corev1.Pod, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.events[min(n, len(s.events)):], s.changed
}

// counted is a listener that counts what is sent.
type counted struct {
	net.Listener
	sent *atomic.Int64
}

func (c counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	return countedConn{conn, c.sent}, err
}

type countedConn struct {
	net.Conn
	sent *atomic.Int64
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.Add(int64(n))
	return n, err
}

// serve serves the stock until the test ends, and counts the bytes that it sends.
func (s *stock) serve(t *testing.T) (*rest.Config, *atomic.Int64) {
	t.Helper()
	server, sent := httptest.NewUnstartedServer(s), &atomic.Int64{}
	server.Listener = counted{server.Listener, sent}
	server.Start()
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: k8sruntime.ContentTypeProtobuf}}, sent
}

// ServeHTTP implements http.Handler.
func (s *stock) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,`+
			`"audiences":["`+audience+`"],"user":{"username":"system:serviceaccount:kube-system:weave-npc"}}}`)
		return
	}
	from, _ := strconv.Atoi(q.Get("continue"))
	limit, _ := strconv.Atoi(q.Get("limit"))
	if limit == 0 {
		limit = s.pods
	}
	meta := metav1.ListMeta{ResourceVersion: strconv.Itoa(s.first())}
	version, followed := corev1.SchemeGroupVersion, false
	var list k8sruntime.Object
	var objects []k8sruntime.Object
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/pods"):
		followed = true
		if q.Get("watch") != "" {
			break // one after the other
		}
		l := &corev1.PodList{}
		for i := from; i < min(from+limit, s.pods); i++ {
			l.Items = append(l.Items, *s.pod(i))
		}
		if from+limit < s.pods {
			meta.Continue = strconv.Itoa(from + limit)
		}
		l.ListMeta, list = meta, l
	case strings.HasSuffix(path, "/namespaces"):
		list, objects = &corev1.NamespaceList{ListMeta: meta, Items: s.namespaces}, pointers(s.namespaces)
	case strings.HasSuffix(path, "/nodes"):
		list, objects = &corev1.NodeList{ListMeta: meta, Items: s.nodes}, pointers(s.nodes)
	case strings.HasSuffix(path, "/networkpolicies"):
		version = networkingv1.SchemeGroupVersion
		list, objects = &networkingv1.NetworkPolicyList{ListMeta: meta, Items: s.policies}, pointers(s.policies)
	case strings.Contains(path, "/nodes/") && len(s.nodes) > 0:
		list = &s.nodes[0]
	default:
		http.NotFound(w, r)
		return
	}
	if q.Get("watch") != "" {
		s.watch(w, r, version, objects, followed)
		return
	}
	w.Header().Set("Content-Type", k8sruntime.ContentTypeProtobuf)
	_ = scheme.Codecs.EncoderForVersion(protobuf().Serializer, version).Encode(list, w)
}

// pointers returns the objects of a list.
func pointers[T any, P interface {
	*T
	k8sruntime.Object
}](items []T) []k8sruntime.Object {
	objects := make([]k8sruntime.Object, len(items))
	for i := range items {
		objects[i] = P(&items[i])
	}
	return objects
}

// watch streams the existing objects, if that is requested, and then the changes if they are followed.
func (s *stock) watch(w http.ResponseWriter, r *http.Request, version schema.GroupVersion, objects []k8sruntime.Object, followed bool) {
	q := r.URL.Query()
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(seconds)*time.Second)
	defer cancel()
	encoder := events(w, version)
	send := func(typ watch.EventType, o k8sruntime.Object) { // an encoder changes the object for a moment, and other watches have the same one
		_ = encoder.Encode(&watch.Event{Type: typ, Object: o.DeepCopyObject()})
	}
	at, _ := strconv.Atoi(q.Get("resourceVersion"))
	seen := max(0, at-s.first())
	if q.Get("sendInitialEvents") == "true" {
		for _, o := range objects {
			send(watch.Added, o)
		}
		switch {
		case followed && s.streamed != nil:
			_, _ = w.Write(s.streamed)
		case followed:
			s.stream(w)
		}
		end := metav1.ObjectMeta{ResourceVersion: strconv.Itoa(s.first()), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
		switch {
		case version == networkingv1.SchemeGroupVersion:
			send(watch.Bookmark, &networkingv1.NetworkPolicy{ObjectMeta: end})
		case followed:
			send(watch.Bookmark, &corev1.Pod{ObjectMeta: end})
		default:
			send(watch.Bookmark, &corev1.Namespace{ObjectMeta: end})
		}
	}
	for {
		events, more := s.after(seen)
		if !followed {
			events, more = nil, nil
		}
		for _, p := range events {
			send(watch.Modified, p)
		}
		seen += len(events)
		w.(http.Flusher).Flush()
		select {
		case <-ctx.Done():
			return
		case <-more:
		}
	}
}

// stream writes all pods.
func (s *stock) stream(w io.Writer) {
	for encoder, i := events(w, corev1.SchemeGroupVersion), 0; i < s.pods; i++ {
		_ = encoder.Encode(&watch.Event{Type: watch.Added, Object: s.pod(i)})
	}
}

// events returns what writes events of objects of a version.
func events(w io.Writer, version schema.GroupVersion) *restwatch.Encoder {
	stream := protobuf().StreamSerializer
	frames := streaming.NewEncoder(stream.NewFrameWriter(w), scheme.Codecs.EncoderForVersion(stream.Serializer, corev1.SchemeGroupVersion))
	return restwatch.NewEncoder(frames, scheme.Codecs.EncoderForVersion(protobuf().Serializer, version))
}

// protobuf returns how protobuf is written.
func protobuf() k8sruntime.SerializerInfo {
	info, _ := k8sruntime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), k8sruntime.ContentTypeProtobuf)
	return info
}
