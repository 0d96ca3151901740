package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
)

// TestClusterPoliciesAreReportedOnce each, a few at a time, and counted.
func TestClusterPoliciesAreReportedOnce(t *testing.T) {
	now := time.Unix(1000, 0)
	m := New(npc.Config{NodeName: "node1"})
	m.state.now = func() time.Time { return now }
	set := func(name string, uid types.UID) {
		p := &v1alpha2.ClusterNetworkPolicy{}
		p.Name, p.UID = name, uid
		m.SetClusterPolicy(p)
	}
	taken := func(want ...string) {
		t.Helper()
		var got []string
		for _, p := range m.Lookup().Unreported() {
			if !p.Unenforced || p.Namespace != "" || p.Reason == "" {
				t.Errorf("%+v", p)
			}
			got = append(got, p.Name+"/"+string(p.UID))
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("reported %v, want %v", got, want)
		}
	}
	counted := func(want float64) {
		t.Helper()
		r := prometheus.NewRegistry()
		r.MustRegister(Collector(m))
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "weavenpc_unenforced_cluster_policies" {
				if got := f.GetMetric()[0].GetGauge().GetValue(); got != want {
					t.Errorf("%v policies are counted, want %v", got, want)
				}
				return
			}
		}
		t.Error("they are not counted")
	}
	set("b", "1")
	set("a", "1")
	taken("a/1", "b/1")
	set("a", "1") // edited
	taken()
	set("a", "2") // another one of that name
	m.DeleteClusterPolicy("a", "1")
	taken("a/2")
	counted(2)
	m.DeleteClusterPolicy("a", "2")
	m.DeleteClusterPolicy("b", "")
	counted(0)

	for i := range 30 {
		set(fmt.Sprintf("p%02d", i), "1")
	}
	if n := len(m.Lookup().Unreported()); n != maxUnenforced-3 {
		t.Errorf("%d reported at once", n)
	}
	m.DeleteClusterPolicy("p29", "1")
	now = now.Add(unenforcedEvery)
	if n := len(m.Lookup().Unreported()); n != 29-(maxUnenforced-3) {
		t.Errorf("%d reported a minute later", n)
	}
	now = now.Add(unenforcedEvery)
	taken()
	counted(29)
}

// TestBrokenWatchOfClusterPoliciesClosesNothing, as nothing of them is enforced.
func TestBrokenWatchOfClusterPoliciesClosesNothing(t *testing.T) {
	now := time.Unix(1000, 0)
	m := New(npc.Config{NodeName: "node1"})
	m.state.now = func() time.Time { return now }
	m.SetConnected("clusternetworkpolicies", false)
	if m.state.gate.Watches.Set("clusternetworkpolicies", true, now) {
		t.Error("it counts")
	}
}
