package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	npccluster "github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	once "github.com/weave-npc/weave-npc/npc/source/snapshot"
	"github.com/weave-npc/weave-npc/test/lab"
)

var protocolNumbers = map[string]uint8{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP,
	"icmp": unix.IPPROTO_ICMP}

// ExplainAll compares what packets got with what explain answers.
func (w *Cluster) ExplainAll(t *testing.T, o *Objects, questions []Question) {
	t.Helper()
	e := o.explained(t)
	for _, q := range questions {
		for i, from := range q.From {
			for j, to := range q.To {
				if w.Undecided(q.Want.From[i], q.Want.To[j]) || w.isUnheardOf(o, from, q.Family) ||
					w.isUnheardOf(o, to, q.Family) {
					continue
				}
				v := explain.Explain(e, flow.Flow{From: flow.End{Addr: from.Addr(q.Family)},
					To:      flow.End{Addr: to.Addr(q.Family)},
					Service: flow.Service{Protocol: protocolNumbers[q.Proto], Port: q.Port}})
				if v.Allowed != q.Want.Reached[i][j] {
					t.Errorf("%s: %s > %s is explained wrongly:\n%s", q, q.Want.From[i], q.Want.To[j], v)
				}
			}
		}
	}
}

// isUnheardOf reports whether no object has the address of a pod. The fail-closed filter decides about it, and not
// policies.
func (w *Cluster) isUnheardOf(o *Objects, h *lab.Host, family int) bool {
	if w.NodeOf(h) == nil {
		return false
	}
	for _, p := range o.Pods {
		if slices.Contains(p.Status.PodIPs, corev1.PodIP{IP: h.Addr(family).String()}) {
			return false
		}
	}
	return true
}

// explained returns the objects as weave-npc explain reads them from manifests, and cluster network policies as it
// reads them from an API server, which may hold what no manifest may.
func (o *Objects) explained(t *testing.T) *npccluster.View {
	t.Helper()
	others := *o
	others.Tiers = nil
	text, err := others.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cluster.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	manifests, err := once.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	read, err := manifests.Objects()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	e := npccluster.New()
	read.Deliver(e)
	for name, spec := range o.Tiers {
		var p v1alpha2.ClusterNetworkPolicy
		p.Name = name
		if err := yaml.Unmarshal([]byte(spec), &p.Spec); err != nil {
			t.Fatalf("%s: %v", spec, err)
		}
		e.SetClusterPolicy(&p)
	}
	return e.View()
}
