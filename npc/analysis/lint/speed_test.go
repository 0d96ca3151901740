package lint_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/npc/analysis/lint"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/synthetic"
)

// crowd returns 10,000 pods of 500 workloads, five in each of 100 namespaces, and 1,000 policies.
func crowd(policy func(i int) *networkingv1.NetworkPolicy) (o snapshot.Objects) {
	for i := range 100 {
		o.Namespaces = append(o.Namespaces, fixture.NamespaceObject(synthetic.Namespace(i)))
	}
	for i := range 10_000 {
		p := fixture.Pod(fmt.Sprintf("%[1]s/pod-%[2]d 10.64.%[3]d.%[4]d app=app-%[5]d pod=pod-%[2]d http:80",
			synthetic.NamespaceName(i%100), i, i/250, i%250, i/100%5))
		o.Pods = append(o.Pods, fixture.PodObject(p))
	}
	for i := range 1000 {
		o.Policies = append(o.Policies, policy(i))
	}
	return o
}

// TestBigClusters lints a big cluster, and one whose policies are all of one namespace and compared with each other,
// within three seconds and 300 MB.
func TestBigClusters(t *testing.T) {
	c := synthetic.Cluster{Pods: 10_000, Namespaces: 100, Policies: 1000}
	for name, policy := range map[string]func(i int) *networkingv1.NetworkPolicy{
		"ten policies a namespace": c.Policy,
		"all in one namespace": func(i int) *networkingv1.NetworkPolicy {
			p := c.Policy(i)
			p.Namespace = synthetic.NamespaceName(0)
			return p
		},
		"all for all pods of one namespace": func(i int) *networkingv1.NetworkPolicy {
			p := c.Policy(i)
			p.Namespace, p.Spec.PodSelector = synthetic.NamespaceName(0), metav1.LabelSelector{}
			for k := range p.Spec.Ingress { // none covers another
				p.Spec.Ingress[k].Ports[0].Port.IntVal = int32(1000 + 3*i + k)
			}
			return p
		},
		"a label of each pod": func(i int) *networkingv1.NetworkPolicy {
			p := c.Policy(i)
			p.Spec.PodSelector.MatchLabels = map[string]string{"pod": fmt.Sprint("pod-", i)}
			return p
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := crowd(policy)
			w := cluster.New()
			o.Deliver(w)
			v := w.View()
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			start := time.Now()
			found := lint.Run(o, v, snapshot.Network{})
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			allocated := (after.TotalAlloc - before.TotalAlloc) >> 20
			t.Logf("%d findings in %v, %d MB allocated", len(found), took.Round(time.Millisecond), allocated)
			if heap := after.HeapAlloc >> 20; heap > 300 || allocated > 1000 {
				t.Errorf("the heap has %d MB, and %d MB were allocated", heap, allocated)
			}
		})
	}
}
