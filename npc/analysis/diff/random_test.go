package diff

import (
	"flag"
	"iter"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/nightly"
	"github.com/weave-npc/weave-npc/test/refmodel"
)

var (
	pairs = flag.Int("pairs", nightly.Times(50, 150), "number of random pairs of cluster states")
	seed  = flag.Uint64("seed", 1, "first seed of random pairs of cluster states")
)

// thing is what the reference model is asked about: a pod, or an address outside.
type thing struct {
	pod  string
	addr netip.Addr
}

// addrs returns the addresses of a thing in a cluster state; ok is false if it does not exist there.
func (w *harness) addrs(x thing) (addrs []netip.Addr, ok bool) {
	if x.pod == "" {
		return []netip.Addr{x.addr}, true
	}
	p, ok := w.pods[x.pod]
	return p.Addrs, ok
}

// evaluated returns the reference model's verdicts on two things in both cluster states.
func evaluated(states [2]*harness, models [2]refmodel.State, a, b thing, s flow.Service) (opens, closes bool) {
	for _, is4 := range []bool{true, false} {
		var there, flows, allowed [2]bool
		for w := range states {
			from, hasFrom := states[w].addrs(a)
			to, hasTo := states[w].addrs(b)
			there[w] = hasFrom && hasTo
			for _, x := range from {
				for _, y := range to {
					if x.Is4() == is4 && y.Is4() == is4 {
						flows[w] = true
						allowed[w] = models[w].Allowed(refmodel.Everywhere, fixture.ModelPacket(x, y, s))
					}
				}
			}
		}
		opens = opens || allowed[1] && !allowed[0] && (flows[0] || !there[0])
		closes = closes || allowed[0] && !allowed[1] && (flows[1] || !there[1])
	}
	return opens, closes
}

// allows returns the reference model's verdict on two things, in any family.
func (w *harness) allows(model refmodel.State, a, b thing, s flow.Service) bool {
	from, _ := w.addrs(a)
	to, _ := w.addrs(b)
	return slices.ContainsFunc(from, func(x netip.Addr) bool {
		return slices.ContainsFunc(to, func(y netip.Addr) bool {
			return x.Is4() == y.Is4() && model.Allowed(refmodel.Everywhere, fixture.ModelPacket(x, y, s))
		})
	})
}

// found holds the ports that open or close between two subjects.
type found map[[2]int]Ports

func collect(t *testing.T, s *Side) found {
	all := found{}
	pods, outside := 0, 0
	for _, g := range s.groups {
		for _, line := range g.sources.numbers {
			for _, from := range g.sources.members[line] {
				for _, column := range g.destinations.numbers {
					for _, to := range g.destinations.members[column] {
						if from == to {
							continue
						}
						if all[[2]int{from, to}] != nil {
							t.Fatalf("%v -> %v is in two groups", s.Subjects[from], s.Subjects[to])
						}
						all[[2]int{from, to}] = g.ports
						if s.of[from] < 0 || s.of[to] < 0 {
							outside++
						} else {
							pods++
						}
					}
				}
			}
		}
	}
	if pods != s.Pods || outside != s.Outside {
		t.Fatalf("%d pairs of pods and %d with ranges are counted; there are %d and %d", s.Pods, s.Outside, pods, outside)
	}
	return all
}

// subject returns the subject that a thing is, or is among; -1 if there is none.
func (s *Side) subject(x thing) int {
	for i, o := range s.Subjects {
		if x.pod != "" && o.Pod == x.pod || x.pod == "" && slices.Contains(o.NodeAddrs, x.addr) {
			return i
		}
		for _, r := range o.Ranges {
			if x.pod == "" && r.First.Is4() == x.addr.Is4() && r.First.Compare(x.addr) <= 0 && x.addr.Compare(r.Last) <= 0 {
				return i
			}
		}
	}
	return -1
}

// things returns the pods of both cluster states and some addresses outside, at the edges of ranges and within.
func things(states [2]*harness) (out []thing) {
	seen := map[string]bool{}
	taken := map[netip.Addr]bool{}
	for _, w := range states {
		for _, key := range sorted(w.pods) {
			if !seen[key] {
				seen[key] = true
				out = append(out, thing{pod: key})
			}
			for _, a := range w.pods[key].Addrs {
				taken[a] = true
			}
		}
		for _, n := range w.nodes {
			for _, a := range n.Addrs {
				if !taken[a] {
					out = append(out, thing{addr: a})
				}
				taken[a] = true
			}
		}
	}
	for _, text := range []string{"0.0.0.0", "10.32.0.8", "10.32.0.15", "10.32.0.16", "10.32.0.31", "10.32.0.127", "10.32.1.0", "10.33.0.0", "172.31.0.0", "172.32.0.0",
		"192.0.2.7", "192.0.2.8", "::", "fd32::1:fff", "fd32::2:0", "10.31.255.255"} {
		if a := netip.MustParseAddr(text); !taken[a] {
			out = append(out, thing{addr: a})
		}
	}
	return out
}

// onOwnNode reports whether an address is of the node that a pod is on.
func onOwnNode(states [2]*harness, pod, node thing) bool {
	for _, w := range states {
		for _, n := range w.nodes {
			if p, ok := w.pods[pod.pod]; ok && p.Node == n.Name && slices.Contains(n.Addrs, node.addr) {
				return true
			}
		}
	}
	return false
}

// comparedThings yields the ordered pairs of things that are compared.
func comparedThings(states [2]*harness) iter.Seq2[thing, thing] {
	return func(yield func(a, b thing) bool) {
		all := things(states)
		for _, a := range all {
			for _, b := range all {
				outside := a.pod == "" && b.pod == ""
				if a != b && !outside && !onOwnNode(states, a, b) && !onOwnNode(states, b, a) && !yield(a, b) {
					return
				}
			}
		}
	}
}

// services returns those at the edges of ranges.
func services() []flow.Service {
	all := []flow.Service{{Protocol: npc.ICMP}, {Protocol: npc.UDP, Port: 1}, {Protocol: npc.UDP, Port: 53}, {Protocol: npc.UDP, Port: 54},
		{Protocol: npc.UDP, Port: 443}, {Protocol: npc.SCTP, Port: 59999}, {Protocol: npc.SCTP, Port: 60000}, {Protocol: npc.SCTP, Port: 65535}}
	for _, p := range []uint16{1, 79, 80, 81, 100, 101, 443, 444, 8080, 8081, 65535} {
		all = append(all, flow.Service{Protocol: npc.TCP, Port: p})
	}
	return all
}

// TestDifferencesMatchReferenceModel shows that no difference between random pairs of cluster states is missed, and
// none invented. The flag -pairs is the number of pairs.
func TestDifferencesMatchReferenceModel(t *testing.T) {
	differences, differing := 0, 0
	for n := range *pairs {
		r := rand.New(rand.NewPCG(*seed+uint64(n), 7))
		first := randomHarness(r)
		states := [2]*harness{first, first.changed(r)}
		models := [2]refmodel.State{states[0].model(t), states[1].model(t)}
		result := Compare(states[0].cluster(t), states[1].cluster(t), Options{})
		opened, closed := collect(t, result.Opens), collect(t, result.Closes)
		if !result.Same() {
			differing++
		}
		for a, b := range comparedThings(states) {
			at := [2]int{result.Opens.subject(a), result.Opens.subject(b)}
			for _, s := range services() {
				opens, closes := evaluated(states, models, a, b, s)
				if opens || closes {
					differences++
				}
				if opened[at].Has(s) != opens || closed[at].Has(s) != closes {
					t.Fatalf("seed %d: %v -> %v, %s: the reference model opens %t and closes %t; found to open: %v, to close: %v", *seed+uint64(n), a, b, s, opens, closes,
						opened[at], closed[at])
				}
			}
		}
	}
	t.Logf("%d pairs of cluster states; %d differ, in %d pairs of subjects and ports", *pairs, differing, differences)
	if differing < *pairs/2 {
		t.Errorf("only %d of %d pairs of cluster states differ", differing, *pairs)
	}
}

// TestAllowedMatchesReferenceModel shows that no connection of a random cluster state is missed, and none invented.
func TestAllowedMatchesReferenceModel(t *testing.T) {
	allowed := 0
	for n := range *pairs {
		w := randomHarness(rand.New(rand.NewPCG(*seed+uint64(n), 8)))
		states, model := [2]*harness{w, w}, w.model(t)
		result := Allowed(w.cluster(t), Options{})
		opened := collect(t, result.Opens)
		if result.Closes.Len() > 0 {
			t.Fatalf("seed %d: %v is allowed while all pods are isolated", *seed+uint64(n), result.Closes.Groups(1))
		}
		for a, b := range comparedThings(states) {
			at := [2]int{result.Opens.subject(a), result.Opens.subject(b)}
			for _, s := range services() {
				want := w.allows(model, a, b, s)
				if want {
					allowed++
				}
				if opened[at].Has(s) != want {
					t.Fatalf("seed %d: %v -> %v, %s: the reference model allows it: %t; listed: %v", *seed+uint64(n), a, b, s, want, opened[at])
				}
			}
		}
	}
	if allowed == 0 {
		t.Error("nothing is allowed")
	}
}
