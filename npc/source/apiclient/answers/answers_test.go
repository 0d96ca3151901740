package answers_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/weave-npc/weave-npc/npc/source/apiclient/answers"
	"github.com/weave-npc/weave-npc/npc/source/convert"
)

// encoded returns an object in Kubernetes' protobuf format.
func encoded(t *testing.T, o runtime.Object, version schema.GroupVersion) []byte {
	t.Helper()
	p := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	text, err := runtime.Encode(scheme.Codecs.EncoderForVersion(p, version), o)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// server answers every request with the same text.
type server struct {
	mu         sync.Mutex // guards the fields below
	form, text string
	status     int
}

func (s *server) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header()["Content-Type"] = []string{s.form}
	w.WriteHeader(s.status)
	_, _ = io.WriteString(w, s.text)
}

func (s *server) set(form, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.form, s.text, s.status = form, text, http.StatusOK
}

func start(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) (*server, kubernetes.Interface) {
	t.Helper()
	s := &server{}
	listener := httptest.NewServer(s)
	t.Cleanup(listener.Close)
	config := &rest.Config{Host: listener.URL, QPS: -1}
	config.Wrap(wrap)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return s, client
}

const inJSON, inProtobuf = runtime.ContentTypeJSON, runtime.ContentTypeProtobuf

// TestS74_AnAnswerThatIsNoListIsAnError, not an empty cluster.
func TestS74_AnAnswerThatIsNoListIsAnError(t *testing.T) {
	s, client := start(t, answers.Checked)
	pods := func(ctx context.Context) (int, error) {
		list, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		return len(list.Items), err
	}
	ofPods := func(l *corev1.PodList) string { return string(encoded(t, l, corev1.SchemeGroupVersion)) }
	named := []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "web"}}}
	for _, c := range []struct {
		name, form, text string
		items            int
		err              string
	}{
		{"list", inJSON, `{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"web"}}]}`, 1, ""},
		{"empty", inJSON, `{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":[]}`, 0, ""},
		{"null", inJSON, "null", 0, "is null"},
		{"no_object", inJSON, "[]", 0, "is no object"},
		{"nothing_in_it", inJSON, "{}", 0, `is of kind ""`},
		{"other_kind", inJSON, `{"kind":"ConfigMapList","metadata":{"resourceVersion":"5"},"items":[]}`, 0, "ConfigMapList"},
		{"any_kind", inJSON, `{"kind":"List","metadata":{"resourceVersion":"5"},"items":[]}`, 0, `is of kind "List"`},
		{"one_pod", inJSON, `{"kind":"Pod","metadata":{"resourceVersion":"5","name":"web"}}`, 0, `is of kind "Pod"`},
		{"discovery", inJSON, `{"kind":"APIResourceList","resources":[]}`, 0, "APIResourceList"},
		{"success", inJSON, `{"kind":"Status","status":"Success"}`, 0, `is of kind "Status"`},
		{"no_items", inJSON, `{"kind":"PodList","metadata":{"resourceVersion":"5"}}`, 0, "without items"},
		{"items_null", inJSON, `{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":null}`, 0, "without items"},
		{"items_in_capitals", inJSON, `{"kind":"PodList","metadata":{"resourceVersion":"5"},"Items":[]}`, 0, "without items"},
		{"no_version", inJSON, `{"kind":"PodList","metadata":{},"items":[]}`, 0, "without a resourceVersion"},
		{"item_null", inJSON, `{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":[null]}`, 0, "with an item"},
		{"item_of_other_kind", inJSON, `{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":[{"kind":"Node","metadata":{"name":"a"}}]}`, 0, "of kind \"Node\""},
		{"broken_off", inJSON, `{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":[`, 0, "is no object"},
		{"no_content_type", "", "null", 0, "is of content type"},
		{"yaml", "application/yaml", "null", 0, "is of content type"},
		{"page", "text/html", "<html>", 0, "text/html"},
		{"protobuf", inProtobuf, ofPods(&corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}, Items: named}), 1, ""},
		{"protobuf_empty", inProtobuf, ofPods(&corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}}), 0, ""},
		{"protobuf_no_version", inProtobuf, ofPods(&corev1.PodList{Items: named}), 0, "without a resourceVersion"},
		{"protobuf_other_kind", inProtobuf, string(encoded(t, &networkingv1.NetworkPolicyList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}},
			networkingv1.SchemeGroupVersion)), 0, "NetworkPolicyList"},
		{"protobuf_nothing", inProtobuf, "", 0, "is not in the protobuf format"},
		{"protobuf_nothing_in_it", inProtobuf, "k8s\x00", 0, "has no object"},
		{"protobuf_no_bytes", inProtobuf, "k8s\x00\x10\x05", 0, "is broken off or not"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.set(c.form, c.text)
			n, err := pods(t.Context())
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%d pods, error: %v", n, err)
				}
				return
			}
			if err != nil || n != c.items {
				t.Errorf("%d pods, %v", n, err)
			}
		})
	}
	s.set(inJSON, "null")
	if _, err := client.CoreV1().Nodes().Get(t.Context(), "here", metav1.GetOptions{}); err == nil {
		t.Error("null is a Node")
	}
	s.set(inJSON, "null")
	s.mu.Lock()
	s.status = http.StatusNonAuthoritativeInfo
	s.mu.Unlock()
	if _, err := pods(t.Context()); err == nil {
		t.Error("null from a cache is a list")
	}
	s.set(inJSON, `{"kind":"Node","metadata":{"name":"here"}}`)
	if _, err := client.CoreV1().Nodes().Get(t.Context(), "here", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := client.CoreV1().Pods("shop").Get(t.Context(), "here", metav1.GetOptions{}); err == nil {
		t.Error("a Node is a pod")
	}
	s.set(inJSON, `{"major":"1"}`)
	if _, err := client.Discovery().ServerVersion(); err != nil {
		t.Error(err)
	}
}

// TestS76_ListsAreReducedWhileTheyAreReceived to what facts depend on, and a list that is broken off anywhere is none.
func TestS76_ListsAreReducedWhileTheyAreReceived(t *testing.T) {
	s, client := start(t, answers.Reduced)
	fat := metav1.ObjectMeta{Name: "web", UID: "u", Annotations: map[string]string{"a": strings.Repeat("x", 100)}, Labels: map[string]string{}}
	for i := range 200 {
		fat.Labels[strings.Repeat("k", i+1)] = strings.Repeat("v", 60)
	}
	few := metav1.ObjectMeta{Name: "db", Labels: map[string]string{"app": "db"}}
	n := int64(3)
	text := encoded(t, &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "5", Continue: "more", RemainingItemCount: &n},
		Items: []corev1.Pod{{ObjectMeta: fat, Spec: corev1.PodSpec{NodeName: "here", Volumes: []corev1.Volume{{Name: "v"}}}}, {ObjectMeta: few}}},
		corev1.SchemeGroupVersion)
	s.set(inProtobuf, string(text))
	list, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 || list.Continue != "more" || *list.RemainingItemCount != 3 || list.ResourceVersion != "5" {
		t.Fatalf("%+v, %v", list, err)
	}
	got := list.Items[0]
	if got.UID != "u" || got.Spec.NodeName != "here" || got.Annotations != nil || got.Spec.Volumes != nil {
		t.Errorf("%+v", got)
	}
	if facts, _ := convert.OfPod(&got); !facts.Unlabelled || got.Size() > 16<<10 {
		t.Errorf("labels that are too large take %d bytes, and must take enough to show that", got.Size())
	}
	if list.Items[1].Labels["app"] != "db" {
		t.Errorf("%+v", list.Items[1])
	}
	for i := 0; i < len(text)-4; i += 13 { // two empty fields are the end
		s.set(inProtobuf, string(text[:i]))
		if list, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); err == nil {
			t.Fatalf("%d of %d bytes are a list of %d pods", i, len(text), len(list.Items))
		}
	}
}
