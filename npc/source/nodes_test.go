package source

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	sourcetest "github.com/weave-npc/weave-npc/test/source"
)

func apiNode(name, zone string, addrs ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1", Labels: map[string]string{"zone": zone}}}
	for _, a := range addrs {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

// toNodes is the spec of a policy that names nodes as peers, and another peer; toPods that of one that does not.
var (
	toNodes = map[string]any{"tier": "Admin", "egress": []any{map[string]any{"action": "Deny", "to": []any{
		map[string]any{"networks": []any{"192.0.2.0/24"}}, map[string]any{"nodes": map[string]any{}}}}}}
	toPods = map[string]any{"tier": "Admin", "egress": []any{map[string]any{"action": "Deny", "to": []any{map[string]any{"namespaces": map[string]any{}}}}}}
)

// nodeServer is an API server with Nodes and ClusterNetworkPolicies, which may forbid to read Nodes.
type nodeServer struct {
	*testing.T
	*line
	policies  *policyServer
	forbidden atomic.Bool
}

func newNodeServer(t *testing.T, nodes ...runtime.Object) *nodeServer {
	s := &nodeServer{T: t, line: newLine(nodes...), policies: newPolicyServer(served)}
	s.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		if s.forbidden.Load() {
			return true, nil, apierrors.NewForbidden(corev1.Resource("nodes"), "", errors.New("no rights"))
		}
		return false, nil, nil
	})
	return s
}

func (s *nodeServer) follow() (Source, *recorder, *sourcetest.Journal) {
	s.Helper()
	source := FromAPI(s.line, nil, "")
	source.api.policies = s.policies
	log, logger := sourcetest.NewJournal()
	return source, start(s.T, source, logger), log
}

func (s *nodeServer) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
	time.Sleep(time.Second)
	synctest.Wait()
}

// set creates or updates a policy; no spec deletes it.
func (s *nodeServer) set(name string, spec map[string]any) {
	s.Helper()
	policies := s.policies.objects.Resource(policyResource)
	if spec == nil {
		s.must(policies.Delete(s.Context(), name, metav1.DeleteOptions{}))
		return
	}
	_, err := policies.Create(s.Context(), storedPolicy(name, spec), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = policies.Update(s.Context(), storedPolicy(name, spec), metav1.UpdateOptions{})
	}
	s.must(err)
}

// calls returns how often Nodes were listed or watched.
func (s *nodeServer) calls() (n int) {
	for _, a := range s.Actions() {
		if a.GetResource().Resource == Nodes {
			n++
		}
	}
	return n
}

// TestS84_NodesAreFollowedWhilePoliciesNameThem, and no longer. They are there before the first policy that names them,
// and go after the last.
func TestS84_NodesAreFollowedWhilePoliciesNameThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newNodeServer(t, apiNode("a", "x", "192.0.2.1"))
		s.set("plain", toPods)
		source, r, log := s.follow()
		r.mark()
		expect := func(what string, want ...string) {
			t.Helper()
			made := slices.DeleteFunc(r.made(), func(call string) bool { return call == "nodes connected true" })
			if diff := cmp.Diff(want, made, cmpopts.EquateEmpty()); diff != "" || source.Unsynced() > 0 {
				t.Errorf("%s: unsynced %q, calls (-want +got):\n%s\n%s", what, source.WhyUnsynced(), diff, log)
			}
			r.mark()
		}
		time.Sleep(time.Minute)
		if s.calls() > 0 {
			t.Errorf("Nodes are read without need: %v", s.Actions())
		}
		s.set("first", toNodes)
		expect("the first policy", "set node a", "set cluster policy first")
		s.set("second", toNodes)
		expect("the second", "set cluster policy second")
		_, err := s.CoreV1().Nodes().Create(t.Context(), apiNode("b", "x"), metav1.CreateOptions{})
		s.must(err)
		expect("another node", "set node b")
		s.set("first", nil)
		expect("one policy less", "delete cluster policy first")
		s.set("second", toPods)
		expect("the last does not name nodes any more", "set cluster policy second", "delete node a", "delete node b")
		calls := s.calls()
		s.must(s.CoreV1().Nodes().Delete(t.Context(), "b", metav1.DeleteOptions{}))
		time.Sleep(time.Hour)
		expect("a node that no policy names")
		if s.calls() > calls+1 { // the deletion is one itself
			t.Errorf("Nodes are read although no policy names them: %v", s.Actions())
		}
		s.set("second", toNodes)
		expect("again", "set node a", "set cluster policy second")
		s.set("second", nil)
		expect("deleted", "delete cluster policy second", "delete node a")
	})
}

// TestS84_NodesAreThereFromTheStart if a policy names them: the sink is synced when it has them.
func TestS84_NodesAreThereFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newNodeServer(t, apiNode("a", "x", "192.0.2.1"))
		s.set("first", toNodes)
		_, r, _ := s.follow()
		calls := r.made()
		node, policy, synced := slices.Index(calls, "set node a"), slices.Index(calls, "set cluster policy first"), slices.Index(calls, "synced")
		if node < 0 || policy < node || synced < policy {
			t.Errorf("calls %v", calls)
		}
	})
}

// TestS84_OnlyFactsOfNodesCount shows that only labels, and addresses of any type, are delivered: other changes of the
// status are not.
func TestS84_OnlyFactsOfNodesCount(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*corev1.Node)
		counts bool
	}{
		{"a condition", func(n *corev1.Node) { n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}} }, false},
		{"an annotation", func(n *corev1.Node) { n.Annotations = map[string]string{"a": "b"} }, false},
		{"a host name", func(n *corev1.Node) {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: "a.example.com"})
		}, false},
		{"an address as a host name", func(n *corev1.Node) {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: "192.0.2.9"})
		}, true},
		{"fewer addresses", func(n *corev1.Node) { n.Status.Addresses = nil }, true},
		{"a label", func(n *corev1.Node) { n.Labels = map[string]string{"zone": "y"} }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newNodeServer(t, apiNode("a", "x", "192.0.2.1"))
				s.set("first", toNodes)
				_, r, _ := s.follow()
				r.mark()
				n := apiNode("a", "x", "192.0.2.1")
				c.change(n)
				_, err := s.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
				s.must(err)
				if got := slices.Equal(r.made(), []string{"set node a"}); got != c.counts || !got && len(r.made()) > 0 {
					t.Errorf("calls %v", r.made())
				}
			})
		})
	}
}

// TestS84_NodesThatCannotBeListed are reported once, and make the source not synced. All other kinds are delivered;
// objects that were delivered before stay.
func TestS84_NodesThatCannotBeListed(t *testing.T) {
	const unsynced = "nodes cannot be listed, which ClusterNetworkPolicies name as peers: "
	for _, c := range []struct {
		name                string
		forbiddenAtTheStart bool
		change              func(*nodeServer)
		objects, unsynced   string
		warnings            int
		connected           []string
	}{
		{"from the start", true, func(*nodeServer) {}, "cluster policy first", unsynced, 1, []string{"false"}},
		{"granted later", true, func(s *nodeServer) { s.forbidden.Store(false) }, "cluster policy first, node a", "", 1, []string{"false", "true"}},
		{"needed no more", true, func(s *nodeServer) { s.set("first", toPods) }, "cluster policy first", "", 1, []string{"false", "true"}},
		{"needed again", true, func(s *nodeServer) { s.set("first", toPods); s.set("first", toNodes) }, "cluster policy first", unsynced, 2,
			[]string{"false", "true", "false"}},
		{"later", false, func(s *nodeServer) {
			s.forbidden.Store(true)
			s.end(true)
			time.Sleep(time.Minute)
			s.end(false)
		}, "cluster policy first, node a", "", 1, []string{"true", "false"}},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newNodeServer(t, apiNode("a", "x", "192.0.2.1"))
				s.forbidden.Store(c.forbiddenAtTheStart)
				s.set("first", toNodes)
				source, r, log := s.follow()
				time.Sleep(time.Minute)
				c.change(s)
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				why := source.WhyUnsynced()
				if got := r.names(); got != c.objects || (why == "") != (c.unsynced == "") || !strings.HasPrefix(why, c.unsynced) {
					t.Errorf("sink has %q, unsynced %q", got, why)
				}
				if got := r.connections(Nodes); !slices.Equal(got, c.connected) {
					t.Errorf("connected %v", got)
				}
				if n := log.Count("broken, will be retried indefinitely\" kind=nodes"); n != c.warnings {
					t.Errorf("said %d times:\n%s", n, log)
				}
			})
		})
	}
}

// TestNodesOfManifests are delivered with their addresses, whether a policy names them or not.
func TestNodesOfManifests(t *testing.T) {
	const text = "apiVersion: v1\nkind: Node\nmetadata: {name: a, labels: {zone: x}}\nstatus: {addresses: [{type: Hostname, address: a}, " +
		"{type: InternalIP, address: 192.0.2.1}]}\n"
	dir, _, r, _ := startDirectory(t, map[string]string{"a.yaml": text})
	expectObjects(t, r, "node a")
	node := func() string {
		r.mu.Lock()
		defer r.mu.Unlock()
		n := r.nodes["a"]
		return fmt.Sprintf("%s %t %v", n.Labels["zone"], n.UID != "", n.Addrs)
	}
	if got := node(); got != "x true [192.0.2.1]" {
		t.Error(got)
	}
	r.mark()
	sourcetest.WriteFile(t, dir+"/a.yaml", text+"spec: {unschedulable: true}\n")
	sourcetest.WriteFile(t, dir+"/b.yaml", strings.ReplaceAll(text, "name: a", "name: b"))
	expectObjects(t, r, "node a, node b")
	if got := r.made(); !slices.Equal(got, []string{"set node b"}) {
		t.Errorf("calls %v", got)
	}
	sourcetest.WriteFile(t, dir+"/a.yaml", strings.Replace(text, "192.0.2.1", "2001:db8::1", 1))
	sourcetest.Eventually(t, "changed", func() bool { return node() == "x true [2001:db8::1]" })
	sourcetest.Remove(t, dir+"/a.yaml")
	expectObjects(t, r, "node b")
}
