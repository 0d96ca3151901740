package relay_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/test/lab/apiserver"
)

// spanOfView returns the names of the pods that an agent of a node needs, by what one knows that knows all: those of the node, and those that
// policies of these name by their one peer. objects are the policies that there have been, by name.
func spanOfView(all *agent, objects *sync.Map, node string) map[string]bool {
	v, need := all.View(), map[string]bool{}
	for name, p := range v.Pods {
		if p.Node == node {
			need[name] = true
		}
	}
	for _, known := range v.Policies {
		object, _ := objects.Load(known.Name)
		policy := object.(*networkingv1.NetworkPolicy)
		app := policy.Spec.PodSelector.MatchLabels["app"]
		for _, p := range v.Pods {
			if p.Node != node || p.Labels["app"] != app {
				continue
			}
			for name, q := range v.Pods {
				need[name] = need[name] || q.Labels["app"] == policy.Spec.Ingress[0].From[0].PodSelector.MatchLabels["app"]
			}
		}
	}
	for name, is := range need {
		if !is {
			delete(need, name)
		}
	}
	return need
}

// spanChurn makes, relabels and deletes pods of two nodes until the context ends.
func (w *world) spanChurn(ctx context.Context, seed uint64) {
	random, pods, zero := rand.New(rand.NewPCG(seed, 7)), w.client.CoreV1().Pods("shop"), int64(0)
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("pod-%d", random.IntN(20))
		app := fmt.Sprintf("app-%d", random.IntN(6))
		switch random.IntN(4) { // what fails is made or gone already
		case 0:
			_ = pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &zero})
		case 1:
			_, _ = pods.Patch(ctx, name, "application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{"app":%q}}}`, app), metav1.PatchOptions{})
		default:
			p := pod(name)
			p.Spec.NodeName, p.Labels = []string{"node1", "node2", "node2"}[random.IntN(3)], map[string]string{"app": app}
			_, _ = pods.Create(ctx, p, metav1.CreateOptions{})
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestAgentsOfSpansFollowThroughRelaysThatDie has an agent with a span follow churn through two relays, which die one after the other. It has
// exactly its span then, all pods without a relay, its span again with one, and at no time a policy before the pods that this names.
func TestAgentsOfSpansFollowThroughRelaysThatDie(t *testing.T) {
	w := newWorld(t)
	const steady = 6
	w.makePod(t, "mine", "node1", "mine")
	for i := range 3 * steady { // pods that never change
		w.makePod(t, fmt.Sprintf("steady-%d", i), "node2", fmt.Sprintf("steady-%d-x", i%steady))
	}
	w.allow(t, "always", "app-1", "app-2")
	w.allow(t, "mine", "mine", "app-3")
	first, second := w.start(w.config, ""), w.start(w.config, "")
	objects := &sync.Map{}
	direct := w.runAgentOf(t, agentConfig{direct: w.client, before: func(_ *agent, p *networkingv1.NetworkPolicy) { objects.Store(p.Name, p) }})
	looked := 0
	complete := func(a *agent, p *networkingv1.NetworkPolicy) {
		app := p.Spec.Ingress[0].From[0].PodSelector.MatchLabels["app"]
		if !strings.HasPrefix(app, "steady-") {
			return
		}
		looked++
		has := 0
		for _, q := range a.View().Pods {
			if q.Labels["app"] == app {
				has++
			}
		}
		if has != 3 {
			t.Errorf("policy %s comes before the pods that it names: %d of them are known, want 3", p.Name, has)
		}
	}
	spanned := w.runAgentOf(t, agentConfig{direct: w.client, spread: time.Second, span: "node1", before: complete}, first, second)
	w.eventually("both agents have listed everything", func() bool { return direct.synced.Load() && spanned.synced.Load() })

	made := 0
	churn := func(seed uint64, meanwhile func()) {
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() { w.spanChurn(ctx, seed) })
		for i := range 12 {
			if i == 4 {
				meanwhile()
			}
			made++
			name := fmt.Sprintf("order-%d", made)
			w.allow(t, name, "mine", fmt.Sprintf("steady-%d-x", made%steady))
			w.eventually(name+" is known", func() bool { return spanned.state()["policy shop/"+name] != "" })
			w.must(w.client.NetworkingV1().NetworkPolicies("shop").Delete(t.Context(), name, metav1.DeleteOptions{}))
		}
		cancel()
		ended.Wait()
	}
	expect := func(when string, span bool) {
		t.Helper()
		diff := ""
		defer func() {
			if t.Failed() {
				t.Logf("%s (-needed +known):\n%s", when, diff)
			}
		}()
		w.eventually(when+": the agent knows what it needs, and no more", func() bool {
			want, need := direct.state(), spanOfView(direct, objects, "node1")
			for name := range want {
				if pod, is := strings.CutPrefix(name, "pod "); span && is && !need[pod] {
					delete(want, name)
				}
			}
			diff = cmp.Diff(want, spanned.state())
			return diff == ""
		})
	}
	expect("at the start", true)
	churn(1, func() {})
	expect("with two relays", true)
	lists := spanned.stats.API.Lists.Load()
	churn(2, first.stop)
	expect("with one relay", true)
	if now := spanned.stats.API.Lists.Load(); now != lists {
		t.Errorf("%d lists of the API server while a relay stood", now-lists)
	}
	churn(3, second.stop)
	expect("without a relay", false)
	if now := spanned.stats.API.Lists.Load(); now != lists+1 {
		t.Errorf("%d lists of the API server without a relay, want that of all pods", now-lists)
	}
	var third *running
	churn(4, func() {
		third = w.start(w.config, first.addr)
		authority, err := os.ReadFile(filepath.Join(third.dir, apiserver.AuthorityFile))
		w.must(err)
		w.must(os.WriteFile(spanned.ca, authority, 0o600))
	})
	expect("with a relay again", true)
	if looked == 0 || third == nil {
		t.Error("the order was not looked at")
	}
	if spanned.left.Load() == 0 {
		t.Error("no pod has left the span, and many have to")
	}
}
