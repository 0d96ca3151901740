package diff

import (
	"fmt"
	"testing"

	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// size is the numbers of pods, workloads and policies of a cluster: one policy for each workload with a port of its
// own, and others that let one team in.
type size struct{ pods, workloads, policies int }

func (s size) String() string {
	return fmt.Sprintf("pods=%d/workloads=%d/policies=%d", s.pods, s.workloads, s.policies)
}

func (s size) namespaces() int { return max(1, s.workloads/10) }

// harness returns the cluster. Each namespace has ten workloads.
func (s size) harness(t testing.TB) *cluster.Cluster {
	c := cluster.New()
	for i := range s.namespaces() {
		c.SetNamespace(fixture.Namespace(fmt.Sprintf("ns%d team=%d", i, i%10)))
	}
	for i := range s.pods {
		w := i % s.workloads
		c.SetPod(fixture.Pod(fmt.Sprintf("ns%[1]d/w%[2]d-%[3]d app=w%[2]d Deployment/w%[2]d 10.%[4]d.%[5]d.%[6]d",
			w/10%s.namespaces(), w, i, i>>16, i>>8&255, i&255)))
	}
	for i := range s.policies {
		w := i % s.workloads
		key := fmt.Sprintf("ns%d/p%d", w/10%s.namespaces(), i)
		if i >= s.workloads {
			c.SetPolicy(fixture.Policy(t, key, fmt.Sprintf(`{podSelector: {matchLabels: {app: w%d}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: '%d'}}}],
				ports: [{port: 9090}]}]}`, w, i%7)))
			continue
		}
		c.SetPolicy(fixture.Policy(t, key, fmt.Sprintf(`{podSelector: {matchLabels: {app: w%d}}, ingress: [{from: [{podSelector: {}}, {namespaceSelector: {}, podSelector:
			{matchLabels: {app: w%d}}}], ports: [{port: %d}]}]}`, w, (w+17)%s.workloads, 1000+w)))
	}
	return c
}

// closed returns a copy with a policy that isolates all pods in both directions.
func (s size) closed(t testing.TB, c *cluster.Cluster) *cluster.Cluster {
	c = c.Clone()
	for i := range s.namespaces() {
		c.SetPolicy(fixture.Policy(t, fmt.Sprintf("ns%d/deny", i), `{podSelector: {}, policyTypes: [Ingress, Egress]}`))
	}
	return c
}

// open returns a copy without policies.
func (s size) open(c *cluster.Cluster) *cluster.Cluster {
	c = c.Clone()
	for _, p := range c.View().Policies {
		c.DeletePolicy(p.Namespace, p.Name, "")
	}
	return c
}

// BenchmarkCompare compares cluster states where everything changes: a default deny for all, and a policy with a port
// of its own for each workload where there was none.
func BenchmarkCompare(b *testing.B) {
	for _, s := range []size{{10_000, 500, 1_000}, {100_000, 500, 1_000}, {100_000, 5_000, 5_000}} {
		w := s.harness(b)
		for _, name := range []string{"denied", "first"} {
			before := w
			after := w
			if name == "denied" {
				after = s.closed(b, w)
			} else {
				before = s.open(w)
			}
			b.Run(s.String()+"/"+name, func(b *testing.B) {
				for b.Loop() {
					r := Compare(before, after, Options{})
					b.ReportMetric(float64(r.Closes.Len()), "groups")
					for _, side := range []*Side{r.Opens, r.Closes} {
						side.Groups(200)
					}
				}
			})
		}
	}
}
