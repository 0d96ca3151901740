package check_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/check"
	"github.com/weave-npc/weave-npc/npc/analysis/check/expectation"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/test/synthetic"
)

// sized returns a synthetic cluster whose pods of one namespace and app are of one workload.
func sized(of synthetic.Cluster) *cluster.Cluster {
	c := cluster.New()
	for i := range of.Namespaces {
		c.SetNamespace(synthetic.Namespace(i))
	}
	for i := range of.Pods {
		p := of.Pod(i)
		p.Workload = &npc.Workload{Kind: "Deployment", Name: p.Labels["app"]}
		c.SetPod(p)
	}
	for i := range of.Policies {
		c.SetPolicy(of.Policy(i))
	}
	return c
}

// hundred returns 100 expectations about a synthetic cluster, a third of them about pods that could be there.
func hundred(t testing.TB, namespaces int) []expectation.Expectation {
	text := "apiVersion: " + expectation.APIVersion + "\nkind: " + expectation.Kind + "\nexpectations:\n"
	for i := range 100 {
		a, b := synthetic.NamespaceName(i%namespaces), synthetic.NamespaceName((7*i+3)%namespaces)
		switch i % 9 {
		case 0:
			text += fmt.Sprintf("- %s/* never reaches %s/* on 22\n", a, b)
		case 3:
			text += fmt.Sprintf("- none outside namespaces(team in (team-1,team-2)) and pods(app=app-1) reaches %s/app-3 on 2222\n", a)
		case 6:
			text += []string{fmt.Sprintf("- everyone never reaches %s/* on udp/53\n", a),
				fmt.Sprintf("- pods in namespaces(tier=prod) always reaches %s/app-2 on 9090\n", b),
				"- pods(app=app-9) never reaches namespaces(team=team-3) on sctp\n"}[i/9%3]
		default:
			text += fmt.Sprintf("- %s/app-%d reaches %s/app-%d%s\n", a, i%20, b, (i+1)%20, []string{"", " on 80", " on http", " on tcp"}[i%4])
		}
	}
	files, problems := expectation.Parse("hundred.yaml", []byte(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return files[0].Expectations
}

// BenchmarkHundred checks 100 expectations in clusters of 500 and of 5,000 workloads.
func BenchmarkHundred(b *testing.B) {
	for _, of := range []synthetic.Cluster{{Pods: 10_000, Namespaces: 25, Policies: 1_000}, {Pods: 100_000, Namespaces: 250, Policies: 5_000}} {
		b.Run(of.String(), func(b *testing.B) {
			expectations := hundred(b, of.Namespaces)
			v := sized(of).View()
			var outcomes [3]int
			for b.Loop() {
				outcomes = [3]int{}
				p := check.New(v, check.Assumptions{}, expectations)
				for _, e := range expectations {
					start := time.Now()
					r := p.Check(e)
					outcomes[r.Outcome]++
					if d := time.Since(start); d > time.Second || testing.Verbose() && d > 50*time.Millisecond {
						b.Logf("%v %v %d %d: %s %s", d, r.Outcome, r.PossibleFrom, r.PossibleTo, e.Name, r.Why)
					}
				}
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.Sys)/1e6, "MB")
			b.Logf("holds, broken, unproved: %v", outcomes)
		})
	}
}
