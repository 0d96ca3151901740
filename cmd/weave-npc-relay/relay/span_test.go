package relay_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// spanAgent follows the span of a node.
type spanAgent struct {
	mu        sync.Mutex
	pods      map[string]*corev1.Pod
	log       []string // what came, in order
	bookmarks int
	begun     bool // the initial events are over
	version   string
	markers   map[string]uint64
	ended     chan struct{} // is closed when the stream ends
}

func spanOptions(selector, version string) metav1.ListOptions {
	yes := true
	return metav1.ListOptions{FieldSelector: selector, ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		SendInitialEvents: &yes, AllowWatchBookmarks: true}
}

// followSpan follows until the test ends.
func followSpan(t *testing.T, client kubernetes.Interface, node string) *spanAgent {
	t.Helper()
	stream, err := client.CoreV1().Pods("").Watch(t.Context(), spanOptions("span="+node, ""))
	if err != nil {
		t.Fatal(err)
	}
	a := &spanAgent{pods: map[string]*corev1.Pod{}, markers: map[string]uint64{}, ended: make(chan struct{})}
	go func() {
		defer close(a.ended)
		for e := range stream.ResultChan() {
			a.take(t, e)
		}
	}()
	return a
}

func (a *spanAgent) take(t *testing.T, e watch.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, ok := e.Object.(*corev1.Pod)
	if !ok {
		if t.Context().Err() == nil {
			t.Errorf("%s %v", e.Type, e.Object)
		}
		return
	}
	_, known := a.pods[p.Name]
	switch e.Type {
	case watch.Bookmark:
		a.begun = a.begun || p.Annotations[metav1.InitialEventsAnnotationKey] == "true"
		a.bookmarks++
		a.version = p.ResourceVersion
		for key, text := range p.Annotations {
			if kind, is := strings.CutPrefix(key, "span.weave-npc/"); is {
				version, err := strconv.ParseUint(text, 10, 64)
				if err != nil || version < a.markers[kind] {
					t.Errorf("the marker of %s is %s after %d", kind, text, a.markers[kind])
				}
				a.markers[kind] = version
			}
		}
		return
	case watch.Added, watch.Modified:
		if known != (e.Type == watch.Modified) {
			t.Errorf("%s %s, which is known: %t", e.Type, p.Name, known)
		}
		a.pods[p.Name] = p
	case watch.Deleted:
		if !known {
			t.Errorf("%s is deleted twice", p.Name)
		}
		delete(a.pods, p.Name)
	}
	a.log = append(a.log, strings.TrimSpace(fmt.Sprint(e.Type, " ", p.Name, " ", p.Annotations["span.weave-npc/left"])))
}

func (a *spanAgent) names() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.pods))
}

func (a *spanAgent) beats() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bookmarks
}

// sees waits until an agent has exactly these pods.
func (w *world) sees(a *spanAgent, want ...string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("the span has %v", want), func() bool { return slices.Equal(a.names(), want) })
}

// marked waits until an agent has been told that its span has what a version of a policy names. A pod that this names has to be there by then.
func (w *world) marked(a *spanAgent, kind, version, named string) {
	w.t.Helper()
	want, err := strconv.ParseUint(version, 10, 64)
	w.must(err)
	w.eventually("the marker of the policy comes", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		reached := a.markers[kind] >= want
		if reached && a.pods[named] == nil {
			w.t.Error("the marker came before the pod that the policy names")
		}
		return reached
	})
}

func (w *world) makePod(t *testing.T, name, node, app string) {
	t.Helper()
	p := pod(name)
	p.Spec.NodeName, p.Labels = node, map[string]string{"app": app}
	_, err := w.client.CoreV1().Pods("shop").Create(t.Context(), p, metav1.CreateOptions{})
	w.must(err)
}

// allow makes a policy that lets pods in from others, and returns its version.
func (w *world) allow(t *testing.T, name, app, from string) string {
	t.Helper()
	select1 := func(app string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	}
	p, err := w.client.NetworkingV1().NetworkPolicies("shop").Create(t.Context(), &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: networkingv1.NetworkPolicySpec{PodSelector: *select1(app), Ingress: []networkingv1.NetworkPolicyIngressRule{
			{From: []networkingv1.NetworkPolicyPeer{{PodSelector: select1(from)}}}}}}, metav1.CreateOptions{})
	w.must(err)
	return p.ResourceVersion
}

// TestASpanIsServed follows the span of a node at a real API server's relay: what enters comes before the marker of the policy that names it.
func TestASpanIsServed(t *testing.T) {
	w := newWorld(t)
	line, config := newLink(t, w.config)
	r := w.start(config, "")
	client := clientFor(t, r.agent(w.token("weave-npc", audience)))
	w.makePod(t, "web", "node1", "web")
	w.makePod(t, "client", "node2", "client")
	w.makePod(t, "stranger", "node2", "other")
	a := followSpan(t, client, "node1")
	w.sees(a, "web")
	version := w.allow(t, "from-client", "web", "client")
	w.marked(a, "networkpolicies", version, "client")
	_, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: fmt.Sprintf("span=node1,after.networkpolicies=%s", version)})
	w.must(err)
	_, err = w.client.CoreV1().Pods("shop").Patch(t.Context(), "stranger", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"app":"client"}}}`), metav1.PatchOptions{})
	w.must(err)
	w.sees(a, "client", "stranger", "web")
	w.must(w.client.NetworkingV1().NetworkPolicies("shop").Delete(t.Context(), "from-client", metav1.DeleteOptions{}))
	w.sees(a, "web")
	a.mu.Lock()
	if log := strings.Join(a.log, ", "); !strings.Contains(log, "DELETED client true") || !a.begun || len(a.markers) < 2 {
		t.Errorf("%s; begun %t, markers %v", log, a.begun, a.markers)
	}
	a.mu.Unlock()

	line.set(true, false)
	time.Sleep(6 * time.Second)
	silent := a.beats()
	time.Sleep(2500 * time.Millisecond)
	if now := a.beats(); now != silent {
		t.Errorf("%d bookmarks while the API server is away", now-silent)
	}
	line.set(false, false)
	w.eventually("bookmarks come again", func() bool { return a.beats() > silent+2 })
	zero := int64(0)
	w.must(w.client.CoreV1().Pods("shop").Delete(t.Context(), "web", metav1.DeleteOptions{GracePeriodSeconds: &zero}))
	w.sees(a)
	if metrics := r.get(t, "/metrics"); !strings.Contains(metrics, "weavenpcrelay_span_agents 1\n") || !strings.Contains(metrics, "weavenpcrelay_span_pods 2\n") {
		t.Error("the metrics do not count one agent and two pods")
	}
}

// TestASpanOfClusterNetworkPolicies has the pods that these name, of any namespace, also if the API server has the kind only later, and until it has
// it no more. The streams that there are end then, and begin anew.
func TestASpanOfClusterNetworkPolicies(t *testing.T) {
	w := newWorld(t)
	r := w.start(w.config, "")
	client := clientFor(t, r.agent(w.token("weave-npc", audience)))
	w.makePod(t, "web", "node1", "web")
	w.makePod(t, "client", "node2", "client")
	w.makePod(t, "stranger", "node2", "other")
	again := func(before *spanAgent) *spanAgent {
		t.Helper()
		select {
		case <-before.ended:
		case <-time.After(20 * time.Second):
			t.Fatal("the stream goes on without a kind, or with one that is gone")
		}
		a := followSpan(t, client, "node1")
		w.sees(a, "web")
		return a
	}
	first := followSpan(t, client, "node1")
	w.sees(first, "web")
	admin, withdraw := w.defineClusterPolicies()
	a := again(first)
	peer := func(app string) map[string]any {
		return map[string]any{"pods": map[string]any{"namespaceSelector": map[string]any{},
			"podSelector": map[string]any{"matchLabels": map[string]any{"app": app}}}}
	}
	for i, tier := range []string{"Admin", "Baseline"} {
		version := w.createClusterPolicy(admin, strings.ToLower(tier), map[string]any{"tier": tier, "priority": int64(i), "subject": peer("web"),
			"ingress": []any{map[string]any{"action": "Deny", "from": []any{peer("client")}}}})
		w.marked(a, "clusternetworkpolicies", version, "client")
		w.sees(a, "client", "web")
		if tier == "Admin" {
			w.must(admin.Resource(clusterPolicies()).Delete(t.Context(), "admin", metav1.DeleteOptions{}))
			w.sees(a, "web")
		}
	}
	withdraw()
	again(a)
}

// TestRequestsForSpansThatAreRefused are those that no agent makes, and those of agents that have been told more than the relay knows.
func TestRequestsForSpansThatAreRefused(t *testing.T) {
	w := newWorld(t)
	r := w.start(w.config, "")
	client := clientFor(t, r.agent(w.token("weave-npc", audience)))
	for _, c := range []struct {
		name, selector, version string
		listless                bool
		want                    int32
	}{
		{"without_initial_events", "span=node1", "1", true, http.StatusBadRequest},
		{"with_another_field", "span=node1,spec.nodeName=node1", "", false, http.StatusBadRequest},
		{"of_no_node", "span=", "", false, http.StatusBadRequest},
		{"but_a_node", "span!=node1", "", false, http.StatusBadRequest},
		{"after_no_version", "span=node1,after.namespaces=x", "", false, http.StatusBadRequest},
		{"after_the_future_of_pods", "span=node1", "99999999", false, http.StatusGatewayTimeout},
		{"after_the_future_of_policies", "span=node1,after.networkpolicies=99999999", "", false, http.StatusGatewayTimeout},
		{"after_a_kind_that_is_absent", "span=node1,after.things=1", "", false, http.StatusGatewayTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := spanOptions(c.selector, c.version)
			if c.listless {
				o = metav1.ListOptions{FieldSelector: c.selector, ResourceVersion: c.version}
			}
			start := time.Now()
			_, err := client.CoreV1().Pods("").Watch(t.Context(), o)
			status := apierrors.APIStatus(nil)
			if !apiStatus(err, &status) || status.Status().Code != c.want {
				t.Errorf("%v, want %d", err, c.want)
			}
			if took := time.Since(start); took > 15*time.Second {
				t.Errorf("refused after %s", took)
			}
		})
	}
}

func apiStatus(err error, into *apierrors.APIStatus) bool {
	status, ok := err.(apierrors.APIStatus) //nolint:errorlint // client-go does not wrap it
	*into = status
	return ok
}

// TestSpansUnderChurn compares what agents of spans have been told with a list of the span, and with what it should be, while pods and policies change at
// random; some agents read JSON.
func TestSpansUnderChurn(t *testing.T) {
	w := newWorld(t)
	r := w.start(w.config, "")
	config := r.agent(w.token("weave-npc", audience))
	asJSON := rest.CopyConfig(config)
	asJSON.ContentType = "application/json"
	random := rand.New(rand.NewPCG(1, 5))
	apps, nodes := []string{"a", "b", "c"}, []string{"node1", "node2", "node3"}
	agents := map[string][]*spanAgent{}
	zero := int64(0)
	for round := range 4 {
		for i := range 60 {
			name := fmt.Sprintf("pod-%d", random.IntN(25))
			err := w.client.CoreV1().Pods("shop").Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &zero})
			if err == nil || !apierrors.IsNotFound(err) {
				w.must(err)
			} else {
				w.makePod(t, name, nodes[random.IntN(3)], apps[random.IntN(3)])
			}
			if i%12 != 0 {
				continue
			}
			policy := fmt.Sprintf("policy-%d", random.IntN(4))
			if err := w.client.NetworkingV1().NetworkPolicies("shop").Delete(t.Context(), policy, metav1.DeleteOptions{}); apierrors.IsNotFound(err) {
				w.allow(t, policy, apps[random.IntN(3)], apps[random.IntN(3)])
			}
		}
		for _, node := range nodes {
			c := config
			if round%2 == 1 {
				c = asJSON
			}
			agents[node] = append(agents[node], followSpan(t, clientFor(t, c), node))
		}
	}
	pods, err := w.client.CoreV1().Pods("shop").List(t.Context(), metav1.ListOptions{})
	w.must(err)
	policies, err := w.client.NetworkingV1().NetworkPolicies("shop").List(t.Context(), metav1.ListOptions{})
	w.must(err)
	for _, node := range nodes {
		var want []string
		for _, p := range pods.Items {
			in := p.Spec.NodeName == node
			for _, policy := range policies.Items {
				names := policy.Spec.Ingress[0].From[0].PodSelector.MatchLabels["app"] == p.Labels["app"]
				selects := slices.ContainsFunc(pods.Items, func(q corev1.Pod) bool {
					return q.Spec.NodeName == node && q.Labels["app"] == policy.Spec.PodSelector.MatchLabels["app"]
				})
				in = in || names && selects
			}
			if in {
				want = append(want, p.Name)
			}
		}
		slices.Sort(want)
		for i, a := range agents[node] {
			w.eventually(fmt.Sprintf("agent %d of %s knows %v", i, node, want), func() bool { return slices.Equal(a.names(), want) })
		}
		list, err := clientFor(t, config).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: "span=" + node})
		w.must(err)
		var listed []string
		for i := range list.Items {
			p := &list.Items[i]
			listed = append(listed, p.Name)
			if told := agents[node][0].pods[p.Name]; told == nil || told.ResourceVersion != p.ResourceVersion || told.UID != p.UID {
				t.Errorf("%s: %s is listed in another version than was told", node, p.Name)
			}
		}
		if slices.Sort(listed); !slices.Equal(listed, want) || list.ResourceVersion == "" {
			t.Errorf("%s: listed %v at %q, want %v", node, listed, list.ResourceVersion, want)
		}
	}
}
