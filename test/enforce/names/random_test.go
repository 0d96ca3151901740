package names

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/enforce/random"
	"github.com/weave-npc/weave-npc/test/lab"
)

// sandbox is a random cluster network policy. It denies its subjects a block first, if there is one, then accepts names.
type sandbox struct {
	subjects string // a key of podsOf
	denied   netip.Prefix
	names    []string // in order
}

// podsOf are the pods that a subject has, and nodeOf is where they run.
var (
	podsOf = map[string][]string{e2e.WebAlone: {"web"}, e2e.DBAlone: {"db"}, e2e.ShopPods: {"web", "db", "api"}}
	nodeOf = map[string]string{"web": "n1", "db": "n1", "api": "n2"}
)

func (s sandbox) isOf(pod string) bool { return slices.Contains(podsOf[s.subjects], pod) }
func (s sandbox) key() string          { return strings.Join(s.names, " ") }

// has reports whether the policy has a name of those that a node learned for an address.
func (s sandbox) has(names []string) bool {
	return slices.ContainsFunc(s.names, func(of string) bool {
		return slices.ContainsFunc(names, policy.Peer{Name: of}.HasName)
	})
}

// change returns the policy with a priority.
func (s sandbox) change(priority int) e2e.Change {
	deny := ""
	if s.denied.IsValid() {
		deny = fmt.Sprintf("{action: Deny, to: [{networks: [%q]}]}, ", s.denied)
	}
	return e2e.ClusterPolicy(fmt.Sprintf("random-%d", priority), e2e.Admin(fmt.Sprint(priority), s.subjects,
		fmt.Sprintf(`egress: [%s{action: Accept, to: [{domainNames: ["%s"]}]}]`, deny, strings.Join(s.names, `", "`))))
}

// model is what random policies allow.
type model struct {
	policies []sandbox // in the order of their priorities
	// learned has what is in a list of a node for sure, and seen has what may be in any list of that node: node and list,
	// or node -> address -> names.
	learned, seen map[string]map[netip.Addr][]string
}

// learn records that a pod looked up a name.
func (m *model) learn(pod, name string, a netip.Addr) {
	record := func(in map[string]map[netip.Addr][]string, key string) {
		if in[key] == nil {
			in[key] = map[netip.Addr][]string{}
		}
		in[key][a] = append(in[key][a], name)
	}
	for _, s := range m.policies {
		if s.isOf(pod) && s.has([]string{name}) {
			record(m.learned, nodeOf[pod]+s.key())
			record(m.seen, nodeOf[pod])
		}
	}
}

// edit replaces the policies. A list that stays keeps what was learned for it; others may take some of it over.
func (m *model) edit(policies []sandbox) {
	m.policies = policies
	maps.DeleteFunc(m.learned, func(list string, _ map[netip.Addr][]string) bool {
		return !slices.ContainsFunc(policies, func(s sandbox) bool {
			return slices.ContainsFunc(podsOf[s.subjects], func(pod string) bool { return nodeOf[pod]+s.key() == list })
		})
	})
}

// allows reports whether a pod reaches an address outside, and whether that is certain.
func (m *model) allows(pod string, a netip.Addr) (allowed, certain bool) {
	for _, s := range m.policies {
		switch node := nodeOf[pod]; {
		case !s.isOf(pod):
		case s.denied.Contains(a):
			return false, true
		case len(m.learned[node+s.key()][a]) > 0:
			return true, true
		case s.has(m.seen[node][a]):
			return false, false
		}
	}
	return false, true
}

// draw draws a policy.
func draw(g *random.Generator) sandbox {
	s := sandbox{subjects: g.Pick(e2e.WebAlone, e2e.DBAlone, e2e.ShopPods)}
	for _, name := range []string{"*.example.com", "*.example.org", "n1.example.com", "n2.example.com", "n3.example.org"} {
		if g.IntN(3) == 0 {
			s.names = append(s.names, name)
		}
	}
	if len(s.names) == 0 {
		s.names = []string{"n4.example.org"}
	}
	if g.IntN(3) == 0 {
		family := 4 + 2*g.IntN(2)
		s.denied = netip.PrefixFrom(outside(family, 2), map[int]int{4: 31, 6: 127}[family])
	}
	return s
}

// rest has the resolvers reached by all, and nothing else.
func rest() e2e.Change {
	return e2e.ClusterPolicy("rest", e2e.Admin("9", e2e.ShopPods, `egress: [{action: Accept, to: [{namespaces: {matchLabels: `+
		`{kubernetes.io/metadata.name: kube-system}}}, {networks: [$n14/32, $n16/128]}]}, `+
		`{action: Deny, to: [{networks: [0.0.0.0/0, "::/0"]}]}]`))
}

// TestS108_S113_RandomPolicies looks up random names from random pods, and compares what they reach with a model.
// Policies change, and weave-npc is killed, now and then. $WEAVE_NPC_TEST_STEPS is how many sets of policies there are,
// and $WEAVE_NPC_TEST_SEED repeats them.
func TestS108_S113_RandomPolicies(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, rest(), "--domain-grace", "1h")
		g, seed, steps := random.New(t, w, 4)
		m := &model{learned: map[string]map[netip.Addr][]string{}, seen: map[string]map[netip.Addr][]string{}}
		cells := 0
		for step := range steps {
			policies, changes := []sandbox{}, []e2e.Change{base(), rest()}
			for priority := range 1 + g.IntN(3) {
				s := draw(g)
				if priority < len(m.policies) && g.IntN(2) == 0 {
					s = m.policies[priority]
				}
				policies, changes = append(policies, s), append(changes, s.change(priority))
			}
			m.edit(policies)
			w.Apply(t, w.Objects(e2e.Do(changes...)))
			cells += m.compare(t, w, g)
			if t.Failed() {
				t.Fatalf("seed %d, step %d: %+v\n%s", seed, step, policies, w.State())
			}
		}
		t.Logf("%d sets of policies, %d connections", steps, cells)
	})
}

// compare looks names up, and compares who reaches what. It returns how many connections it tried.
func (m *model) compare(t *testing.T, w *e2e.Cluster, g *random.Generator) (cells int) {
	check := func(pod string, a netip.Addr) {
		want, certain := m.allows(pod, a)
		if !certain {
			return
		}
		cells++
		if err := dial(w.Hosts[pod], a, want); (err == nil) != want {
			t.Errorf("%s reaches %s: %v, want %t; known: %v", pod, a, err, want, m.learned)
		}
	}
	for range 8 {
		if g.IntN(16) == 0 {
			for _, d := range w.Daemons {
				d.Kill(t)
				d.Start(t)
				d.AwaitReady(t)
			}
		}
		pod, family := g.Pick("web", "db", "api"), 4+2*g.IntN(2)
		name := fmt.Sprintf("n%d.example.%s", 1+g.IntN(4), g.Pick("com", "org"))
		a, err := lookUp(w.Hosts[pod], w.Hosts["mon"].Addr(family), g.Pick("udp", "tcp"), name+".", family)
		if err != nil {
			t.Fatalf("%s asks for %s: %v", pod, name, err)
		}
		m.learn(pod, name, a)
		check(pod, a)
		check(g.Pick("web", "db", "api"), outside(4+2*g.IntN(2), byte(1+g.IntN(4))))
	}
	return cells
}
