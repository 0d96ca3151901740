package reachability

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/nightly"
	"github.com/weave-npc/weave-npc/test/random"
)

// edgeServices are the first ports of ranges of random clusters, the ports after the last ones, and some within.
func edgeServices() []flow.Service {
	services := []flow.Service{{Protocol: 1}, {Protocol: 6, Port: 101}}
	for _, protocol := range []uint8{6, 17, 132} {
		for _, port := range []uint16{1, 2, 50, 79, 80, 81, 82, 442, 443, 444, 445, 8080, 8081, 8082, 65535} {
			services = append(services, flow.Service{Protocol: protocol, Port: port})
		}
	}
	return services
}

// changed returns a cluster with some random changes.
func changed(t *testing.T, r *rand.Rand, c *cluster.Cluster) *cluster.Cluster {
	other := random.Cluster(t, r)
	if r.IntN(4) == 0 {
		return other
	}
	c = c.Clone()
	for range 1 + r.IntN(4) {
		switch r.IntN(6) {
		case 0:
			for _, p := range other.View().Pods {
				c.SetPod(*p)
				break
			}
		case 1:
			for _, p := range c.View().Pods {
				c.DeletePod(p.Namespace, p.Name, "")
				break
			}
		case 2:
			c.SetPolicy(fixture.Policy(t, random.Pick(r, "a", "b", "c")+"/"+fmt.Sprint("q", r.IntN(8)), random.Spec(r)))
		case 3:
			for _, p := range c.View().Policies {
				c.DeletePolicy(p.Namespace, p.Name, "")
				break
			}
		case 4:
			c.SetNamespace(fixture.Namespace(random.Pick(r, "a", "b", "c") + " team=" + random.Pick(r, "x", "y")))
		default:
			c.SetClusterPolicy(random.ClusterPolicy(r))
		}
	}
	return c
}

// expected returns what opens and closes between two subjects for a service, by what explain answers.
func expected(views [2]*cluster.View, a, b Subject, s flow.Service) (opens, closes bool) {
	var ends [2][2][]flow.End
	for w, v := range views {
		for i, subject := range []Subject{a, b} {
			if subject.Pod == "" {
				ends[w][i] = []flow.End{{Addr: subject.Addr}}
			} else if subject.In[w] {
				ends[w][i] = v.OwnedEnds(subject.Pod)
			}
		}
	}
	for _, is4 := range []bool{true, false} {
		var has, allowed [2]bool
		for w, v := range views {
			for _, f := range flow.Between(ends[w][0], ends[w][1], s) {
				ofFamily := func(a netip.Addr) bool { return !a.IsValid() || a.Is4() == is4 }
				if ofFamily(f.From.Addr) && ofFamily(f.To.Addr) {
					has[w] = true
					allowed[w] = allowed[w] || explain.Explain(v, f).Allowed
				}
			}
		}
		for w, changes := range []*bool{&opens, &closes} {
			absent := !a.In[w] || !b.In[w]
			if allowed[1-w] && !allowed[w] && (has[w] || absent) {
				*changes = true
			}
		}
	}
	return opens, closes
}

// onOwnNode reports whether a pod is on one of some Nodes.
func onOwnNode(views [2]*cluster.View, pod, nodes Subject) bool {
	for w, v := range views {
		for _, a := range nodes.NodeAddrs {
			if pod.Pod != "" && pod.In[w] && v.NodeHas(v.Pods[pod.Pod].Node, a) {
				return true
			}
		}
	}
	return false
}

func has(all []flow.Ports, s flow.Service) bool {
	for _, p := range all {
		if p.Protocol == s.Protocol && p.First <= s.Port && s.Port <= p.Last {
			return true
		}
	}
	return false
}

// TestDifferencesAreWhatExplainAnswers compares all pairs of random clusters, with pods that claim the same addresses,
// and at each edge of a range.
func TestDifferencesAreWhatExplainAnswers(t *testing.T) {
	found, states := 0, nightly.Times(10, 30)
	for seed := range uint64(states) {
		r := rand.New(rand.NewPCG(seed, 3))
		first := random.Cluster(t, r)
		second := changed(t, r, first)
		views := [2]*cluster.View{first.View(), second.View()}
		d := Compare(views[0], views[1])
		pairs := map[[2]int]PortChange{}
		for i := range d.Lines {
			d.Lines[i].Changes(func(column, change int) {
				for _, from := range d.Lines[i].Sources {
					for _, to := range d.Columns[column] {
						pairs[[2]int{from, to}] = d.Changes[change]
					}
				}
			})
		}
		services := edgeServices()
		for i, a := range d.Subjects {
			for j, b := range d.Subjects {
				if i == j || onOwnNode(views, a, b) || onOwnNode(views, b, a) {
					continue
				}
				for _, s := range services {
					opens, closes := expected(views, a, b, s)
					if opens || closes {
						found++
					}
					got := pairs[[2]int{i, j}]
					if has(got.Opens, s) != opens || has(got.Closes, s) != closes {
						t.Fatalf("seed %d: %v -> %v, %s: opens %t, closes %t, got %v", seed, a, b, s, opens, closes, got)
					}
				}
			}
		}
	}
	if found < states*300 {
		t.Errorf("only %d differences", found)
	}
}
