package relay_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/npc/source/convert"
	"github.com/weave-npc/weave-npc/test/fixture"
)

func pod(name string) *corev1.Pod {
	return fixture.PodObject(fixture.Pod(fmt.Sprintf("shop/%[1]s node1 app=%[1]s http:80", name)))
}

func clientFor(t testing.TB, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// follower is what client-go's reflectors know of a cluster.
type follower struct{ pods, namespaces, policies, nodes cache.Store }

func follow(t *testing.T, config *rest.Config) *follower {
	t.Helper()
	factory := informers.NewSharedInformerFactory(clientFor(t, config), 0)
	f := &follower{pods: factory.Core().V1().Pods().Informer().GetStore(), namespaces: factory.Core().V1().Namespaces().Informer().GetStore(),
		policies: factory.Networking().V1().NetworkPolicies().Informer().GetStore(), nodes: factory.Core().V1().Nodes().Informer().GetStore()}
	factory.Start(t.Context().Done())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			t.Fatalf("%v are not synced", kind)
		}
	}
	return f
}

// state returns what agents make of what a follower knows.
func (f *follower) state() map[string]any {
	all := map[string]any{}
	for _, o := range f.pods.List() {
		p, _ := convert.OfPod(o.(*corev1.Pod))
		all["pod "+p.Namespace+"/"+p.Name] = p
	}
	for _, o := range f.namespaces.List() {
		n, _ := convert.OfNamespace(o.(*corev1.Namespace))
		all["namespace "+n.Name] = n
	}
	for _, o := range f.nodes.List() {
		n := convert.OfNode(o.(*corev1.Node))
		all["node "+n.Name] = n
	}
	for _, o := range f.policies.List() {
		p := o.(*networkingv1.NetworkPolicy)
		all["policy "+p.Namespace+"/"+p.Name] = p.Spec
	}
	return all
}

// churn changes random objects.
func (w *harness) churn(t *testing.T, random *rand.Rand, changes int) {
	t.Helper()
	pods, ctx := w.client.CoreV1().Pods("shop"), t.Context()
	for i := range changes {
		name := fmt.Sprintf("pod-%d", random.IntN(20))
		var err error
		switch random.IntN(6) {
		case 0, 1:
			_, err = pods.Create(ctx, pod(name), metav1.CreateOptions{})
		case 2:
			zero := int64(0)
			err = pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &zero})
		case 3: // changes nothing that agents need
			_, err = pods.Patch(ctx, name, "application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{"x":"%d"}}}`, i), metav1.PatchOptions{})
		case 4:
			_, err = pods.Patch(ctx, name, "application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{"x":"%d"}}}`, i), metav1.PatchOptions{})
		case 5:
			status := fmt.Appendf(nil, `{"status":{"phase":"Running","podIPs":[{"ip":"10.0.%d.%d"}],"podIP":"10.0.%d.%d"}}`, i/250, i%250, i/250, i%250)
			_, err = pods.Patch(ctx, name, "application/merge-patch+json", status, metav1.PatchOptions{}, "status")
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-", Namespace: "shop"},
		Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Ingress"}}}
	_, err := w.client.NetworkingV1().NetworkPolicies("shop").Create(ctx, policy, metav1.CreateOptions{})
	w.must(err)
}

// TestReflectorsKnowTheSameThroughARelay compares what client-go's reflectors know directly and through a relay, after
// random changes, also while the line to the API server is cut again and again.
func TestReflectorsKnowTheSameThroughARelay(t *testing.T) {
	w := newHarness(t)
	line, config := newLink(t, w.config)
	r := w.start(config, "")
	_, err := w.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: "InternalIP", Address: "192.0.2.1"}}}}, metav1.CreateOptions{})
	w.must(err)
	agent := r.agent(w.token("weave-npc", audience))
	asJSON := rest.CopyConfig(agent)
	asJSON.ContentType = "application/json"
	followers := map[string]*follower{"directly": follow(t, w.config), "protobuf": follow(t, agent), "JSON": follow(t, asJSON)}
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 6 {
		if round >= 3 {
			line.set(true, false)
		}
		w.churn(t, random, 60)
		line.set(false, false)
		for name, f := range followers {
			var diff string
			for deadline := time.Now().Add(90 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
				diff = cmp.Diff(followers["directly"].state(), f.state(), cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty())
				if diff == "" {
					break
				}
			}
			if diff != "" {
				t.Fatalf("round %d, %s (-directly +through the relay):\n%s", round, name, diff)
			}
		}
	}
	if metrics := r.get(t, "/metrics"); !strings.Contains(metrics, `weavenpcrelay_expired_total{kind="pods"} 0`) {
		t.Error("an agent had to list again")
	}
}

// sequence collects the events of a watch from a version on, until it has had one of a version; it returns what they
// were, and the last version.
func sequence(t *testing.T, config *rest.Config, from, until string) ([]string, string) {
	t.Helper()
	w, err := clientFor(t, config).CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: from, AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var events []string
	last, deadline := from, time.After(90*time.Second)
	for number(t, last) < number(t, until) {
		select {
		case e, ok := <-w.ResultChan():
			if !ok || e.Type == watch.Error {
				t.Fatalf("from %s: ended at %s: %v", from, last, e.Object)
			}
			m := e.Object.(metav1.ObjectMetaAccessor).GetObjectMeta()
			if number(t, m.GetResourceVersion()) < number(t, last) {
				t.Fatalf("%s of %s after %s", e.Type, m.GetResourceVersion(), last)
			}
			last = m.GetResourceVersion()
			if e.Type != watch.Bookmark {
				events = append(events, fmt.Sprint(e.Type, " ", m.GetName(), " ", last))
			}
		case <-deadline:
			t.Fatalf("from %s: no %s, but %s", from, until, last)
		}
	}
	return events, last
}

func number(t *testing.T, version string) int {
	t.Helper()
	n, err := strconv.Atoi(version)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestAWatchMoves between the API server and two relays, at the version that it has, without a list: each event comes
// once, in its order.
func TestAWatchMoves(t *testing.T) {
	w := newHarness(t)
	first, second := w.start(w.config, ""), w.start(w.config, "")
	token := w.token("weave-npc", audience)
	list, err := w.client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	w.must(err)
	var versions []string
	for i := range 30 {
		p, err := w.client.CoreV1().Pods("shop").Create(t.Context(), pod(fmt.Sprintf("p%d", i)), metav1.CreateOptions{})
		w.must(err)
		versions = append(versions, p.ResourceVersion)
	}
	want, _ := sequence(t, w.config, list.ResourceVersion, versions[29])
	at := list.ResourceVersion
	var got []string
	for i, config := range []*rest.Config{first.agent(token), w.config, second.agent(token), first.agent(token), second.agent(token), w.config} {
		var events []string
		events, at = sequence(t, config, at, versions[4+5*i])
		got = append(got, events...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	through, err := clientFor(t, first.agent(token)).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{ResourceVersion: at, ResourceVersionMatch: "NotOlderThan"})
	w.must(err)
	if len(through.Items) != 30 || number(t, through.ResourceVersion) < number(t, at) || through.Items[0].ResourceVersion == "" {
		t.Errorf("listed %d pods at %s, after %s", len(through.Items), through.ResourceVersion, at)
	}
	paged, err := clientFor(t, first.agent(token)).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{Limit: 7})
	w.must(err)
	names := map[string]bool{}
	for {
		for i := range paged.Items {
			names[paged.Items[i].Name] = true
		}
		if paged.Continue == "" {
			break
		}
		paged, err = clientFor(t, first.agent(token)).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{Limit: 7, Continue: paged.Continue})
		w.must(err)
	}
	if len(names) != 30 {
		t.Errorf("the pages have %d pods", len(names))
	}
}

// TestAWatchAheadOfTheRelay is silent until the relay is past its version, and one from before the relay's list is
// expired.
func TestAWatchAheadOfTheRelay(t *testing.T) {
	w := newHarness(t)
	old, err := w.client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	w.must(err)
	_, err = w.client.CoreV1().Pods("shop").Create(t.Context(), pod("a"), metav1.CreateOptions{})
	w.must(err)
	line, config := newLink(t, w.config)
	r := w.start(config, "")
	client := clientFor(t, r.agent(w.token("weave-npc", audience)))
	_, err = client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"}) // so that the token is known
	w.must(err)
	line.set(false, true)
	b, err := w.client.CoreV1().Pods("shop").Create(t.Context(), pod("b"), metav1.CreateOptions{})
	w.must(err)
	ahead, err := client.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: b.ResourceVersion, AllowWatchBookmarks: true})
	w.must(err)
	defer ahead.Stop()
	select {
	case e := <-ahead.ResultChan():
		t.Errorf("got %v", e)
	case <-time.After(2500 * time.Millisecond):
	}
	line.set(false, false)
	c, err := w.client.CoreV1().Pods("shop").Create(t.Context(), pod("c"), metav1.CreateOptions{})
	w.must(err)
	for e := range ahead.ResultChan() {
		m := e.Object.(metav1.ObjectMetaAccessor).GetObjectMeta()
		if number(t, m.GetResourceVersion()) < number(t, b.ResourceVersion) || e.Type != watch.Bookmark && m.GetName() != "c" {
			t.Errorf("got %s of %s at %s, after %s", e.Type, m.GetName(), m.GetResourceVersion(), b.ResourceVersion)
		}
		if m.GetResourceVersion() == c.ResourceVersion {
			break
		}
	}
	late, err := client.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: old.ResourceVersion})
	w.must(err)
	defer late.Stop()
	if e := <-late.ResultChan(); e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
		t.Errorf("got %v", e)
	}
	if !strings.Contains(r.get(t, "/metrics"), `weavenpcrelay_expired_total{kind="pods"} 1`) {
		t.Error("it is not counted")
	}
}

// TestBookmarksStop within seconds when the line to the API server is cut or stands still, and come back with what was
// missed; the watch stays.
func TestBookmarksStop(t *testing.T) {
	w := newHarness(t)
	for _, c := range []struct {
		name        string
		cut, frozen bool
	}{{"cut", true, false}, {"frozen", false, true}} {
		t.Run(c.name, func(t *testing.T) {
			line, config := newLink(t, w.config)
			r := w.start(config, "")
			client := clientFor(t, r.agent(w.token("weave-npc", audience)))
			list, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
			w.must(err)
			stream, err := client.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true})
			w.must(err)
			defer stream.Stop()
			beats := func(within time.Duration) (seen []string) {
				for end := time.After(within); ; {
					select {
					case e, ok := <-stream.ResultChan():
						if !ok {
							t.Fatal("the watch ended")
						}
						seen = append(seen, string(e.Type)+" "+e.Object.(metav1.ObjectMetaAccessor).GetObjectMeta().GetName())
					case <-end:
						return seen
					}
				}
			}
			// The times are those of a busy machine: a bookmark comes each second otherwise, and the last one within
			// five.
			until := func(when string, done func(seen []string) bool) {
				t.Helper()
				var all []string
				for range 10 {
					seen := beats(3 * time.Second)
					if all = append(all, seen...); done(seen) || done(all) {
						return
					}
				}
				t.Fatalf("%s: %v", when, all)
			}
			until("while all is well", func(seen []string) bool { return len(seen) >= 3 })
			line.set(c.cut, c.frozen)
			until("while the line is "+c.name, func(seen []string) bool { return len(seen) == 0 })
			if why := r.get(t, "/readyz"); !strings.Contains(why, "pods: the API server's watch is broken") {
				t.Errorf("ready: %s", why)
			}
			_, err = w.client.CoreV1().Pods("shop").Create(t.Context(), pod("missed-"+c.name), metav1.CreateOptions{})
			w.must(err)
			line.set(false, false)
			until("when it works again", func(seen []string) bool { return slices.Contains(seen, "ADDED missed-"+c.name) && len(seen) >= 4 })
		})
	}
}

// TestOnlyAgentsRead by tokens of the relay's audience and of their account, also while the API server is away, and
// never more than lists and watches.
func TestOnlyAgentsRead(t *testing.T) {
	w := newHarness(t)
	line, config := newLink(t, w.config)
	r := w.start(config, "")
	client := r.http(t)
	good := w.token("weave-npc", audience)
	ask := func(method, path, token string) int {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, "https://"+r.addr+path, nil)
		w.must(err)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := client.Do(request)
		w.must(err)
		defer answer.Body.Close()
		return answer.StatusCode
	}
	for _, c := range []struct {
		name, method, path, token string
		want                      int
	}{
		{"an_agent", "GET", "/api/v1/pods?resourceVersion=0", good, 200},
		{"no_token", "GET", "/api/v1/pods", "", 401},
		{"another_audience", "GET", "/api/v1/pods", w.token("weave-npc", "https://lab"), 401},
		{"another_account", "GET", "/api/v1/pods", w.token("other", audience), 403},
		{"a_token_of_the_API_server", "GET", "/api/v1/pods", w.config.BearerToken, 401},
		{"a_changed_token", "GET", "/api/v1/pods", good[:len(good)-3] + "abc", 401},
		{"a_write", "POST", "/api/v1/pods", good, 405},
		{"another_kind", "GET", "/api/v1/secrets", good, 404},
		{"an_object", "GET", "/api/v1/namespaces/shop/pods/a", good, 404},
		{"a_selector", "GET", "/api/v1/pods?labelSelector=a", good, 400},
		{"a_kind_that_is_not_there", "GET", "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies", good, 404},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := ask(c.method, c.path, c.token); got != c.want {
				t.Errorf("status %d, want %d", got, c.want)
			}
		})
	}
	fresh := w.token("weave-npc", audience)
	line.set(true, false)
	if got := ask("GET", "/api/v1/pods?resourceVersion=0", good); got != 200 {
		t.Errorf("while the API server is away: status %d", got)
	}
	if got := ask("GET", "/api/v1/pods?resourceVersion=0", fresh); got != 503 {
		t.Errorf("an unknown token, while the API server is away: status %d", got)
	}
}

// TestTheCertificateIsReplaced without a restart, and old TLS is refused.
func TestTheCertificateIsReplaced(t *testing.T) {
	w := newHarness(t)
	r := w.start(w.config, "")
	first := r.http(t)
	serial := func(c *http.Client) string {
		request, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+r.addr+"/", nil)
		w.must(err)
		answer, err := c.Do(request)
		if err != nil {
			return err.Error()
		}
		defer answer.Body.Close()
		return "ok"
	}
	if got := serial(first); got != "ok" {
		t.Fatal(got)
	}
	time.Sleep(10 * time.Millisecond) // so that the files' times differ
	w.must(os.WriteFile(r.dir+"/server.crt", []byte("half of a certificate"), 0o600))
	time.Sleep(1100 * time.Millisecond)
	if got := serial(r.http(t)); got != "ok" {
		t.Errorf("with a file that cannot be read: %s", got)
	}
	writeCertificate(t, r.dir) // of another authority
	w.eventually("the new certificate is used", func() bool { return serial(r.http(t)) == "ok" })
	fresh := r.http(t)
	fresh.Transport.(*http.Transport).TLSClientConfig.MinVersion = tls.VersionTLS12
	fresh.Transport.(*http.Transport).TLSClientConfig.MaxVersion = tls.VersionTLS12
	if got := serial(fresh); got == "ok" {
		t.Error("TLS 1.2 is accepted")
	}
}

// clusterPolicies is the kind of ClusterNetworkPolicies.
func clusterPolicies() schema.GroupVersionResource {
	return schema.GroupVersion(v1alpha2.GroupVersion).WithResource("clusternetworkpolicies")
}

// defineClusterPolicies has the API server serve ClusterNetworkPolicies until the function is called that it returns.
func (w *harness) defineClusterPolicies() (dynamic.Interface, func()) {
	w.t.Helper()
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	text, err := os.ReadFile("../../../npc/source/testdata/crd.yaml")
	w.must(err)
	var definition map[string]any
	w.must(yaml.Unmarshal(text, &definition))
	admin, err := dynamic.NewForConfig(w.config)
	w.must(err)
	_, err = admin.Resource(definitions).Create(w.t.Context(), &unstructured.Unstructured{Object: definition}, metav1.CreateOptions{})
	w.must(err)
	w.eventually("the kind is there", func() bool {
		_, err := admin.Resource(clusterPolicies()).List(w.t.Context(), metav1.ListOptions{})
		return err == nil
	})
	return admin, func() {
		w.t.Helper()
		w.must(admin.Resource(definitions).Delete(w.t.Context(), clusterPolicies().Resource+"."+v1alpha2.GroupName, metav1.DeleteOptions{}))
	}
}

// createClusterPolicy makes a ClusterNetworkPolicy.
func (w *harness) createClusterPolicy(admin dynamic.Interface, name string, spec map[string]any) {
	w.t.Helper()
	_, err := admin.Resource(clusterPolicies()).Create(w.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": schema.GroupVersion(v1alpha2.GroupVersion).String(), "kind": "ClusterNetworkPolicy", "metadata": map[string]any{"name": name},
		"spec": spec}}, metav1.CreateOptions{})
	w.must(err)
}

// TestAKindThatTheAPIServerMayLack is served while the API server has it, with fields that the relay does not know. The
// relay stays ready when it comes: no agent has a version of it.
func TestAKindThatTheAPIServerMayLack(t *testing.T) {
	w := newHarness(t)
	w.readyAfter = 5 * time.Second
	r := w.start(w.config, "")
	admin, withdraw := w.defineClusterPolicies()
	create := func(name string) {
		w.createClusterPolicy(admin, name, map[string]any{"tier": "Admin", "priority": int64(3), "subject": map[string]any{"namespaces": map[string]any{}}})
	}
	create("a")
	config := r.agent(w.token("weave-npc", audience))
	config.ContentType = "application/json"
	agent, err := dynamic.NewForConfig(config)
	w.must(err)
	var list *unstructured.UnstructuredList
	w.eventually("it is served", func() bool {
		list, err = agent.Resource(clusterPolicies()).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 1
	})
	if why := r.get(t, "/readyz"); strings.Contains(why, "versions") {
		t.Errorf("ready: %s", why)
	}
	if tier, _, _ := unstructured.NestedString(list.Items[0].Object, "spec", "tier"); tier != "Admin" {
		t.Errorf("listed %v", list.Items[0].Object)
	}
	stream, err := agent.Resource(clusterPolicies()).Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), AllowWatchBookmarks: true})
	w.must(err)
	defer stream.Stop()
	create("b")
	for e := range stream.ResultChan() {
		if e.Type == watch.Added && e.Object.(*unstructured.Unstructured).GetName() == "b" {
			break
		}
	}
	withdraw()
	w.eventually("it is gone", func() bool {
		_, err = agent.Resource(clusterPolicies()).List(t.Context(), metav1.ListOptions{})
		return apierrors.IsNotFound(err)
	})
	w.eventually("the relay is ready without it", func() bool { return r.get(t, "/readyz") == "ok\n" })
}
