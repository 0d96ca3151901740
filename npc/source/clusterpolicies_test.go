package source

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc/source/apiclient"
	sourcetest "github.com/weave-npc/weave-npc/test/source"
)

var (
	policyResource = schema.GroupVersion(v1alpha2.GroupVersion).WithResource(ClusterNetworkPolicies)
	formerResource = schema.GroupVersionResource{Group: v1alpha2.GroupName, Version: "v1alpha1", Resource: "adminnetworkpolicies"}

	// The presence of the kind that the cases begin with and change to.
	absent       = apiclient.Presence{}
	served       = apiclient.Presence{Served: true}
	otherVersion = apiclient.Presence{OtherVersions: []string{"v1"}}
)

// policyServer is an API server for ClusterNetworkPolicies alone.
type policyServer struct {
	objects *dynamicfake.FakeDynamicClient

	mu         sync.Mutex
	presence   apiclient.Presence
	discovery  error // its answer, if not nil
	unsure     bool  // the absence is not confirmed
	forbidden  bool
	questions  int // to discovery
	former     bool
	formerErr  error
	openWatchs []watch.Interface
}

func newPolicyServer(p apiclient.Presence, names ...string) *policyServer {
	var objects []runtime.Object
	for _, name := range names {
		objects = append(objects, storedPolicy(name, map[string]any{"tier": "Admin", "priority": int64(7)}))
	}
	return &policyServer{presence: p, objects: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{policyResource: "ClusterNetworkPolicyList"}, objects...)}
}

func storedPolicy(name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha2.GroupVersion.String(), "kind": "ClusterNetworkPolicy",
		"metadata": map[string]any{"name": name, "uid": "uid-" + name, "resourceVersion": "1"}, "spec": spec}}
}

// change changes the server, and ends all watches.
func (s *policyServer) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	for _, w := range s.openWatchs {
		w.Stop()
	}
	s.openWatchs = nil
}

func (s *policyServer) Discover(context.Context) (apiclient.Presence, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.questions++
	return s.presence, s.discovery
}

func (s *policyServer) ConfirmAbsence(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unsure {
		return errors.New("502 Bad Gateway")
	}
	return nil
}

func (s *policyServer) Any(context.Context, schema.GroupVersionResource) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.former, s.formerErr
}

func (s *policyServer) refusal() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.forbidden:
		return apierrors.NewForbidden(policyResource.GroupResource(), "", errors.New("no rights"))
	case !s.presence.Served:
		return apierrors.NewNotFound(policyResource.GroupResource(), "")
	}
	return nil
}

func (s *policyServer) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if err := s.refusal(); err != nil {
		return nil, err
	}
	return s.objects.Resource(policyResource).List(ctx, o)
}

func (s *policyServer) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if err := s.refusal(); err != nil {
		return nil, err
	}
	w, err := s.objects.Resource(policyResource).Watch(ctx, o)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openWatchs = append(s.openWatchs, w)
	return w, err
}

// startPolicies follows a server until the test ends, and waits until the sink is synced.
func startPolicies(t *testing.T, server *policyServer) (Source, *recorder, *sourcetest.Journal) {
	t.Helper()
	s := FromAPI(fake.NewClientset(), nil, "")
	s.api.policies = server
	log, logger := sourcetest.NewJournal()
	return s, start(t, s, logger), log
}

// TestS94_TheKindComesAndGoes, and its objects with it. A kind that is not known to be gone is not gone.
func TestS94_TheKindComesAndGoes(t *testing.T) {
	type state struct{ objects, unsynced string }
	const listed, versions, unasked = "cannot be listed: clusternetworkpolicies", "only in versions that are not known: v1", "it is not known whether"
	failing := errors.New("503 Service Unavailable")
	for _, c := range []struct {
		name   string
		server *policyServer
		start  state
		change func(*policyServer)
		then   state
	}{
		{"absent", newPolicyServer(absent), state{}, func(*policyServer) {}, state{}},
		{"installed later", newPolicyServer(absent, "a"), state{}, func(s *policyServer) { s.presence = served }, state{"cluster policy a", ""}},
		{"removed", newPolicyServer(served, "a"), state{"cluster policy a", ""}, func(s *policyServer) { s.presence = absent }, state{}},
		{"removed, according to only one answer", newPolicyServer(served, "a"), state{"cluster policy a", ""},
			func(s *policyServer) { s.presence, s.unsure = absent, true }, state{"cluster policy a", ""}},
		{"in another version only", newPolicyServer(otherVersion), state{"", versions}, func(s *policyServer) { s.presence = absent }, state{}},
		{"changed to another version", newPolicyServer(served, "a"), state{"cluster policy a", ""},
			func(s *policyServer) { s.presence = otherVersion }, state{"cluster policy a", versions}},
		{"forbidden", &policyServer{presence: served, forbidden: true}, state{"", listed}, func(s *policyServer) { s.presence = absent }, state{}},
		{"granted", func() *policyServer { s := newPolicyServer(served, "a"); s.forbidden = true; return s }(), state{"", listed},
			func(s *policyServer) { s.forbidden = false }, state{"cluster policy a", ""}},
		{"forbidden later", newPolicyServer(served, "a"), state{"cluster policy a", ""}, func(s *policyServer) { s.forbidden = true },
			state{"cluster policy a", ""}},
		{"discovery fails from the start", func() *policyServer { s := newPolicyServer(served, "a"); s.discovery = failing; return s }(),
			state{"", unasked}, func(s *policyServer) { s.discovery = nil }, state{"cluster policy a", ""}},
		{"discovery fails later", newPolicyServer(served, "a"), state{"cluster policy a", ""}, func(s *policyServer) { s.discovery = failing },
			state{"cluster policy a", ""}},
		{"discovery fails while there is no such kind", newPolicyServer(absent), state{}, func(s *policyServer) { s.discovery = failing }, state{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r, log := startPolicies(t, c.server)
				check := func(want state) {
					t.Helper()
					time.Sleep(10 * time.Minute)
					synctest.Wait()
					why := s.WhyUnsynced()
					if got := r.names(); got != want.objects || (why == "") != (want.unsynced == "") || !strings.Contains(why, want.unsynced) {
						t.Errorf("sink has %q, unsynced %q, want %+v\n%s", got, why, want, log)
					}
				}
				check(c.start)
				c.server.change(func() { c.change(c.server) })
				check(c.then)
				for _, line := range strings.SplitAfter(log.String(), "\n") {
					if strings.Contains(line, "level=WARN") && log.Count(line) > 1 {
						t.Errorf("logged %d times: %s", log.Count(line), line)
					}
				}
			})
		})
	}
}

// TestS94_TheKindIsInstalledAgain with other objects, after it was gone, and after it had been there in another
// version.
func TestS94_TheKindIsInstalledAgain(t *testing.T) {
	for name, between := range map[string]apiclient.Presence{"gone": absent, "other version": otherVersion} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newPolicyServer(served, "a", "b")
				s, r, log := startPolicies(t, server)
				server.change(func() { server.presence = between })
				time.Sleep(10 * time.Minute)
				if err := server.objects.Resource(policyResource).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				server.change(func() { server.presence = served })
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := r.names(); got != "cluster policy b" || s.Unsynced() != 0 {
					t.Errorf("sink has %q, unsynced %q\n%s", got, s.WhyUnsynced(), log)
				}
				if got := r.connections(ClusterNetworkPolicies); got[len(got)-1] != "true" {
					t.Errorf("connected: %v", got)
				}
			})
		})
	}
}

// TestAKindThatIsGoneHasNoBrokenWatch, even if it went while its watch was broken.
func TestAKindThatIsGoneHasNoBrokenWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newPolicyServer(served, "a")
		_, r, log := startPolicies(t, server)
		synctest.Wait()
		server.change(func() { server.presence = absent })
		time.Sleep(5 * time.Second) // sooner than discovery is asked by itself
		synctest.Wait()
		if got := r.connections(ClusterNetworkPolicies); !slices.Equal(got, []string{"true"}) || r.names() != "" || log.Count("broken") > 0 {
			t.Errorf("removed: connected %v, sink has %q\n%s", got, r.names(), log)
		}

		server.change(func() { server.presence = served })
		time.Sleep(time.Minute)
		server.change(func() { server.forbidden = true })
		time.Sleep(time.Minute)
		server.change(func() { server.presence = absent })
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := r.connections(ClusterNetworkPolicies); !slices.Equal(got, []string{"true", "true", "false", "true"}) || r.names() != "" {
			t.Errorf("forbidden, then removed: connected %v, sink has %q\n%s", got, r.names(), log)
		}
	})
}

// TestDiscoveryIsAskedNowAndThen, more often while it fails, and not at the same time by all nodes.
func TestDiscoveryIsAskedNowAndThen(t *testing.T) {
	for name, c := range map[string]struct {
		err      error
		from, to int // questions
		logged   int
	}{
		"answers":           {nil, 70, 121, 0},
		"refuses":           {apierrors.NewForbidden(schema.GroupResource{}, "", nil), 72, 126, 1},
		"cannot_be_reached": {errors.New("no route to host"), 72, 126, 0}, // the watches log it
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newPolicyServer(absent)
				server.discovery = c.err
				_, _, log := startPolicies(t, server)
				time.Sleep(time.Hour)
				server.mu.Lock()
				defer server.mu.Unlock()
				if n := server.questions; n < c.from || n > c.to {
					t.Errorf("asked %d times in an hour", n)
				}
				if n := log.Count("it is not known whether"); n != c.logged {
					t.Errorf("logged %d times:\n%s", n, log)
				}
			})
		})
	}
}

// TestS94_FormerKindsAreReportedOnce, and nothing is said of those that may not be listed.
func TestS94_FormerKindsAreReportedOnce(t *testing.T) {
	for _, c := range []struct {
		name    string
		found   bool
		err     error
		reports int
	}{
		{"objects", true, nil, 1},
		{"no objects", false, nil, 0},
		{"forbidden", false, apierrors.NewForbidden(formerResource.GroupResource(), "", errors.New("no rights")), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newPolicyServer(apiclient.Presence{Former: []schema.GroupVersionResource{formerResource}})
				server.former, server.formerErr = c.found, c.err
				s, r, log := startPolicies(t, server)
				time.Sleep(10 * time.Minute)
				if n := log.Count("level="); n != c.reports || log.Count("not enforced\" kind=adminnetworkpolicies.policy.networking.k8s.io") != n {
					t.Errorf("logged:\n%s", log)
				}
				if s.Unsynced() != 0 || r.names() != "" {
					t.Errorf("unsynced %q, sink has %q", s.WhyUnsynced(), r.names())
				}
			})
		})
	}
}

// TestS94_ABadObjectHarmsOnlyItself. Peers of kinds that are not known have no field.
func TestS94_ABadObjectHarmsOnlyItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newPolicyServer(served, "good")
		for name, spec := range map[string]map[string]any{
			"bad": {"tier": int64(1), "priority": "first"},
			"new": {"tier": "Admin", "mood": "good", "egress": []any{map[string]any{"action": "Deny", "to": []any{map[string]any{"planets": "all"}}}}},
		} {
			if _, err := server.objects.Resource(policyResource).Create(t.Context(), storedPolicy(name, spec), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		s, r, log := startPolicies(t, server)
		if got := r.names(); got != "cluster policy bad, cluster policy good, cluster policy new" || s.Unsynced() != 0 {
			t.Fatalf("sink has %q, unsynced %q\n%s", got, s.WhyUnsynced(), log)
		}
		if p := r.clusterPolicy("good"); p.Spec.Tier != v1alpha2.AdminTier || p.Spec.Priority != 7 || p.UID != "uid-good" {
			t.Errorf("good: %+v", p)
		}
		if p := r.clusterPolicy("bad"); p.Spec.Tier != "" || p.UID != "uid-bad" || log.Count("part of an object is ignored") != 1 {
			t.Errorf("bad: %+v\n%s", p, log)
		}
		if p := r.clusterPolicy("new"); p.Spec.Tier != v1alpha2.AdminTier || len(p.Spec.Egress) != 1 || len(p.Spec.Egress[0].To) != 1 {
			t.Errorf("new: %+v", p)
		}
	})
}

// TestClusterPoliciesOfManifests are delivered as those of an API server.
func TestClusterPoliciesOfManifests(t *testing.T) {
	const text = "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: deny}\n" +
		"spec: {tier: Baseline, priority: 0, subject: {namespaces: {}}}\n"
	dir, _, r, log := startDirectory(t, map[string]string{"a.yaml": text,
		"b.yaml": "apiVersion: policy.networking.k8s.io/v1alpha1\nkind: AdminNetworkPolicy\nmetadata: {name: old}\n"})
	expectObjects(t, r, "cluster policy deny")
	if got := r.connections(ClusterNetworkPolicies); !slices.Equal(got, []string{"true"}) {
		t.Errorf("connected: %v", got)
	}
	if log.Count(`are ignored" kind="policy.networking.k8s.io/v1alpha1 AdminNetworkPolicy"`) != 1 {
		t.Errorf("of the former kind:\n%s", log)
	}
	sourcetest.WriteFile(t, dir+"/a.yaml", strings.Replace(text, "Baseline", "Admin", 1))
	sourcetest.Eventually(t, "changed", func() bool { return r.clusterPolicy("deny").Spec.Tier == v1alpha2.AdminTier })
	sourcetest.Remove(t, dir+"/a.yaml")
	expectObjects(t, r, "")
}

// TestNoClientNoClusterPolicies shows that a source without a client for them does without.
func TestNoClientNoClusterPolicies(t *testing.T) {
	s := FromAPI(fake.NewClientset(), nil, "")
	r := start(t, s, slog.New(slog.DiscardHandler))
	sourcetest.Eventually(t, "having read all", func() bool { return s.Unsynced() == 0 })
	if got := r.connections(ClusterNetworkPolicies); len(got) > 0 {
		t.Errorf("connected: %v", got)
	}
}
