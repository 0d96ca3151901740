package enforce

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/test/lab"
	"github.com/weave-npc/weave-npc/test/refmodel"
)

// TestRandomStates compares what arrives with the reference model's verdicts, in one random state of the cluster after
// the other. A seed in $WEAVE_NPC_TEST_SEED repeats a run, $WEAVE_NPC_TEST_STEPS makes it longer, and
// $WEAVE_NPC_TEST_TIERS=no leaves out cluster network policies.
func TestRandomStates(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, base())
		g, seed, steps := newGenerator(t, w, 12)
		g.drawTiers()
		for i := range steps {
			g.begin()
			down := g.IntN(6) == 0
			if down {
				g.note("while weave-npc is down:")
				for _, d := range w.daemons {
					d.kill(t)
				}
			}
			g.changes(t)
			if down {
				w.source.write(t, g.objects)
				for _, d := range w.daemons {
					d.start(t)
				}
			}
			text, err := g.objects.manifest()
			if err != nil {
				t.Fatal(err)
			}
			w.apply(t, g.objects)
			if !t.Run(fmt.Sprintf("step_%d", i), func(t *testing.T) {
				t.Log(strings.Join(g.did, "\n"))
				g.cells += w.compare(t, g.objects)
			}) {
				t.Fatalf("seed %d, step %d:\n%s", seed, i, text)
			}
		}
		t.Logf("%d states, %d packets", steps, g.cells)
		w.startOver(t)
		w.apply(t, w.objects(do(base(), finished)))
		w.apply(t, w.objects(do(base(), without("shop", "ops"))))
		w.awaitBare(t)
	})
}

// startOver removes all that weave-npc owns and starts it again: the nodes must get what they had, whatever happened
// before.
func (w *harness) startOver(t *testing.T) {
	t.Helper()
	time.Sleep(3 * time.Second) // until what does no harm has been removed
	for _, d := range w.daemons {
		before := sorted(snapshot(t, d.node))
		d.kill(t)
		if _, stderr, status := execute(t, d.node, nil, "cleanup"); status != 0 {
			t.Fatalf("cleanup ends with %d\n%s", status, stderr)
		}
		d.start(t)
		d.awaitReady(t)
		if diff := cmp.Diff(before, sorted(snapshot(t, d.node))); diff != "" {
			t.Errorf("%s started over, and has something else (-before +now):\n%s", d.node, diff)
		}
	}
}

// sorted returns a text's lines: the rules that allow have no order among them.
func sorted(text string) []string {
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return lines
}

// finished ends all pods, so that none vanishes while it may still run.
func finished(w *harness, o *objects) {
	for name := range o.pods {
		pod(name, phase(corev1.PodSucceeded))(w, o)
	}
}

// newGenerator returns a generator, its seed, and the number of steps to make: the given one, or that of
// $WEAVE_NPC_TEST_STEPS.
func newGenerator(t *testing.T, w *harness, steps uint64) (*generator, uint64, uint64) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	for variable, value := range map[string]*uint64{"WEAVE_NPC_TEST_SEED": &seed, "WEAVE_NPC_TEST_STEPS": &steps} {
		if text := os.Getenv(variable); text != "" {
			var err error
			if *value, err = strconv.ParseUint(text, 10, 64); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("seed %d", seed)
	return &generator{Rand: rand.New(rand.NewPCG(seed, 0)), harness: w, objects: w.objects(base())}, seed, steps
}

// edit adds, changes or removes a policy.
func (g *generator) edit() {
	if g.tiers != nil && g.IntN(2) == 0 {
		g.editTier()
		return
	}
	policies := slices.Sorted(maps.Keys(g.objects.policies))
	if len(policies) > 2 && g.IntN(4) == 0 {
		p := policies[g.IntN(len(policies))]
		g.do("without "+p, without(p))
		return
	}
	name, spec := g.pick("shop", "ops")+"/p"+strconv.Itoa(g.IntN(3)), g.policy()
	g.do("policy "+name+"\n"+spec, policy(name, spec))
}

// compare expects the reference model's verdicts, and returns the number of packets that they are about.
func (w *harness) compare(t *testing.T, o *objects) (cells int) {
	t.Helper()
	questions, cells := w.evaluatedQuestions(t, o)
	w.expectAll(t, questions)
	w.explainAll(t, o, questions)
	return cells
}

// evaluatedQuestions returns the matrices of the reference model's verdicts, and the number of packets in them.
func (w *harness) evaluatedQuestions(t *testing.T, o *objects) (all []question, cells int) {
	t.Helper()
	cluster := o.evaluated(t, w)
	for _, q := range []struct {
		proto string
		port  uint16
	}{{"tcp", 80}, {"tcp", 81}, {"udp", 53}, {"icmp", 0}, {"sctp", 80}} {
		families(func(family int) {
			question := w.question(t, q.proto, q.port, family, "")
			for i, from := range question.From {
				for j, to := range question.To {
					if a, b := question.want.From[i], question.want.To[j]; !w.undecided(a, b) || w.isOwnNode(a, b) {
						cells++
						question.want.Reached[i][j] = cluster.Allowed(refmodel.Everywhere,
							packetOf(from.Addr(family), to.Addr(family), q.proto, q.port))
					}
				}
			}
			all = append(all, question)
		})
	}
	return all, cells
}

// generator changes objects at random.
type generator struct {
	*rand.Rand
	harness *harness
	objects *objects
	next    int
	did     []string
	// renewed are the pods that were replaced since the last state. If a pod starts and ends before it is read, its
	// predecessor counts as deleted: it may still run and stays closed.
	renewed map[string]bool
	cells   int
	// tiers draws cluster network policies; nil if there are none.
	tiers *rapid.Generator[*v1alpha2.ClusterNetworkPolicy]
}

// begin forgets the changes that made the last state.
func (g *generator) begin() { g.did, g.renewed = nil, map[string]bool{} }

func (g *generator) note(format string, args ...any) {
	g.did = append(g.did, fmt.Sprintf(format, args...))
}

func (g *generator) do(about string, c change) {
	g.note("%s", about)
	c(g.harness, g.objects)
}

// pick returns one of the words.
func (g *generator) pick(words ...string) string { return words[g.IntN(len(words))] }

func (g *generator) uid() string {
	g.next++
	return fmt.Sprintf("%08d", g.next)
}

// changes makes one to three changes.
func (g *generator) changes(t *testing.T) {
	t.Helper()
	for range 1 + g.IntN(3) {
		g.change(t)
	}
}

// change makes one change, more often to policies than to pods.
func (g *generator) change(t *testing.T) {
	t.Helper()
	pods := slices.DeleteFunc(slices.Sorted(maps.Keys(g.objects.pods)), func(name string) bool {
		return ownName(name) == agent || strings.HasPrefix(name, crowdPrefix)
	})
	name := pods[g.IntN(len(pods))]
	switch g.IntN(11) {
	case 0, 1, 2, 3, 4, 5:
		g.edit()
	case 6, 7:
		g.relabel(name)
	case 8:
		g.replace(name)
	case 9:
		g.swap(name, pods[g.IntN(len(pods))])
	case 10:
		g.agent()
	}
}

// relabel changes the labels of a pod or of a namespace.
func (g *generator) relabel(name string) {
	if g.IntN(2) == 0 {
		l := g.labels()
		g.do("labels of "+name+": "+l, pod(name, labelled(l)))
		return
	}
	n, l := g.pick("shop", "ops"), g.pick("team=a", "team=b", "team=b,zone=z", "zone=z", "")
	g.do("labels of namespace "+n+": "+l, namespace(n, l))
}

// agent is the name of pods on the network of their node.
const agent = "agent"

// agent makes, changes or removes a pod on the network of its node.
func (g *generator) agent() {
	name := g.pick("shop", "ops") + "/" + agent
	if g.objects.pods[name] != nil && g.IntN(3) == 0 {
		g.do("without "+name, without(name))
		return
	}
	l := g.labels()
	g.do("on the host network: "+name+" with "+l, pod(name, at(g.pick("web", "copy")), labelled(l), hostNetwork))
}

// replace ends a pod, or makes another one of the same name, with other ports.
func (g *generator) replace(name string) {
	if g.objects.pods[name].Status.Phase == corev1.PodRunning && !g.renewed[name] && g.IntN(3) == 0 {
		g.do("the end of "+name, pod(name, phase(corev1.PodSucceeded)))
		return
	}
	g.renewed[name] = true
	number := []int32{53, 80, 81}[g.IntN(3)]
	protocol := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP, ""}[g.IntN(4)]
	g.do(fmt.Sprintf("another %s with web=%d %s", name, number, protocol),
		pod(name, uid(g.uid()), phase(corev1.PodRunning), noPorts, port("web", number, protocol)))
}

// swap replaces two pods by new ones with each other's addresses.
func (g *generator) swap(a, b string) {
	if a == b {
		return
	}
	g.note("%s and %s have each other's addresses", a, b)
	g.renewed[a], g.renewed[b] = true, true
	pa, pb := g.objects.pods[a], g.objects.pods[b]
	pa.UID, pb.UID = asUID(g.uid()), asUID(g.uid())
	pa.Spec.NodeName, pb.Spec.NodeName = pb.Spec.NodeName, pa.Spec.NodeName
	pa.Status, pb.Status = pb.Status, pa.Status
	pa.Status.Phase, pb.Status.Phase = corev1.PodRunning, corev1.PodRunning
}

func (g *generator) labels() string {
	var l []string
	if g.IntN(5) > 0 {
		l = append(l, "app="+g.pick("web", "db", "mon"))
	}
	if g.IntN(2) == 0 {
		l = append(l, "tier="+g.pick("x", "y"))
	}
	return strings.Join(l, ",")
}

func (g *generator) podSelector() string {
	return g.pick(`{}`, `{matchLabels: {app: web}}`, `{matchLabels: {app: db}}`, `{matchLabels: {app: web, tier: x}}`,
		`{matchExpressions: [{key: tier, operator: Exists}]}`,
		`{matchExpressions: [{key: app, operator: NotIn, values: [web, db]}]}`,
		`{matchExpressions: [{key: app, operator: In, values: [mon, db]}, {key: tier, operator: DoesNotExist}]}`)
}

func (g *generator) namespaceSelector() string {
	return g.pick(`{}`, `{matchLabels: {team: a}}`, `{matchLabels: {zone: z}}`,
		`{matchLabels: {kubernetes.io/metadata.name: ops}}`,
		`{matchExpressions: [{key: zone, operator: DoesNotExist}]}`,
		`{matchExpressions: [{key: team, operator: NotIn, values: [a]}]}`)
}

func (g *generator) peer() string {
	switch g.IntN(4) {
	case 0:
		return `{podSelector: ` + g.podSelector() + `}`
	case 1:
		return `{namespaceSelector: ` + g.namespaceSelector() + `}`
	case 2:
		return `{namespaceSelector: ` + g.namespaceSelector() + `, podSelector: ` + g.podSelector() + `}`
	}
	host := g.pick("web", "db", "mon", "api", "copy", "out", "n2")
	return `{ipBlock: ` + g.pick(`{cidr: 10.32.1.0/24}`, `{cidr: "fd10:32:0:2::/64"}`,
		`{cidr: $`+host+`4/32}`, `{cidr: "$`+host+`6/128"}`,
		`{cidr: 0.0.0.0/0, except: [10.32.0.0/16]}`, `{cidr: "::/0", except: ["$`+host+`6/128", "fd31::/16"]}`,
		`{cidr: 10.32.0.0/16, except: [10.32.2.0/24, $`+g.pick("web", "db", "api")+`4/32]}`, `{cidr: "::/0"}`) + `}`
}

func (g *generator) list(most int, one func() string) string {
	var items []string
	for range g.IntN(most + 1) {
		items = append(items, one())
	}
	return "[" + strings.Join(items, ", ") + "]"
}

func (g *generator) ports() string {
	return g.list(2, func() string {
		return g.pick(`{port: 80}`, `{port: 81}`, `{port: 53, protocol: UDP}`, `{protocol: UDP}`, `{}`, `{port: 80, protocol: SCTP}`, `{protocol: SCTP}`, `{port: web}`,
			`{port: web, protocol: UDP}`, `{port: web, protocol: SCTP}`, `{port: 79, endPort: 80}`, `{port: 81, endPort: 90}`, `{port: 1, endPort: 65535}`)
	})
}

func (g *generator) policy() string { return g.policyFor(g.podSelector()) }

// policyFor returns the spec of a policy with a pod selector.
func (g *generator) policyFor(selector string) string {
	spec := "podSelector: " + selector
	if types := g.pick("", "[Ingress]", "[Egress]", "[Ingress, Egress]"); types != "" {
		spec += "\npolicyTypes: " + types
	}
	for _, section := range [][2]string{{"ingress", "from"}, {"egress", "to"}} {
		if g.IntN(3) > 0 {
			spec += "\n" + section[0] + ": " + g.list(2, func() string {
				return "{" + section[1] + ": " + g.list(3, g.peer) + ", ports: " + g.ports() + "}"
			})
		}
	}
	return spec
}
