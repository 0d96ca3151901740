package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/weave-npc/weave-npc/npc"
	sourcetest "github.com/weave-npc/weave-npc/test/source"
)

// TestS74_AnAPIServerThatKnowsNoSuchNode, or does not answer, leaves it to the pods.
func TestS74_AnAPIServerThatKnowsNoSuchNode(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "here", errors.New("no rights"))
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"absent":    {nil, `no Node and no pod of the cluster is called "here"`},
		"forbidden": {forbidden, `the Node "here" cannot be read and no pod is on a node of that name`},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(apiPod("web", "1", "u"))
			if c.err != nil {
				client.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.err })
			}
			log, logger := sourcetest.NewJournal()
			s := FromAPI(client, nil, "here")
			r := start(t, s, logger)
			if why := s.WhyUnsynced(); r.isMissing() != npc.NodeMissing || !strings.Contains(why, c.want) || !strings.Contains(why, "--node-name") {
				t.Errorf("missing %d, %q", r.isMissing(), why)
			}
			if log.Count("this node is not known") != 1 {
				t.Errorf("log:\n%s", log)
			}
			pod := apiPod("mine", "2", "v")
			pod.Spec.NodeName = "here"
			if _, err := client.CoreV1().Pods("shop").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			sourcetest.Eventually(t, "a pod has the name", func() bool { return s.WhyUnsynced() == "" && r.isMissing() == npc.NothingMissing })
		})
	}
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here"}})
	s := FromAPI(client, nil, "here")
	r := start(t, s, slog.New(slog.DiscardHandler))
	if s.WhyUnsynced() != "" || r.isMissing() != npc.NothingMissing {
		t.Errorf("a node without pods is missing: %q", s.WhyUnsynced())
	}
}

// TestS74_AKindThatCannotBeListedIsNamed, with the reason.
func TestS74_AKindThatCannotBeListedIsNamed(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("list", NetworkPolicies, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: NetworkPolicies}, "", errors.New("no rights"))
	})
	s := FromAPI(client, nil, "")
	r := newRecorder(t)
	done := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- s.Run(ctx, r, slog.New(slog.DiscardHandler)) }()
	sourcetest.Eventually(t, "named", func() bool {
		why := s.WhyUnsynced()
		return strings.HasPrefix(why, "networkpolicies cannot be listed: ") && strings.Contains(why, "no rights") && s.Unsynced() == 1
	})
	if r.isSynced() {
		t.Error("what is not known counts as synced")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestUnsyncedNamesAFew, however many there are.
func TestUnsyncedNamesAFew(t *testing.T) {
	u := newUnsynced()
	for i := range 100 {
		u.set(fmt.Sprintf("%03d", i), fmt.Sprintf("why %03d", i))
	}
	if got := u.String(); !strings.HasPrefix(got, "why 000; why 001") || !strings.HasSuffix(got, "why 004; and 95 more") {
		t.Errorf("%q", got)
	}
	u.update("absent", "x")
	if u.count() != 100 {
		t.Error("an input that was read is unsynced again")
	}
}
