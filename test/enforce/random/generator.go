package random

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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
)

// New returns a generator, its seed, and the number of steps to make: the given one, or that of
// $WEAVE_NPC_TEST_STEPS.
func New(t *testing.T, w *e2e.Cluster, steps uint64) (*Generator, uint64, uint64) {
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
	return &Generator{Rand: rand.New(rand.NewPCG(seed, 0)), Cluster: w, Objects: w.Objects(e2e.Base())}, seed, steps
}

// Edit adds, changes or removes a policy.
func (g *Generator) Edit() {
	if g.tiers != nil && g.IntN(2) == 0 {
		g.editTier()
		return
	}
	policies := slices.Sorted(maps.Keys(g.Objects.Policies))
	if len(policies) > 2 && g.IntN(4) == 0 {
		p := policies[g.IntN(len(policies))]
		g.Do("without "+p, e2e.Without(p))
		return
	}
	name, spec := g.Pick("shop", "ops")+"/p"+strconv.Itoa(g.IntN(3)), g.policy()
	g.Do("policy "+name+"\n"+spec, e2e.Policy(name, spec))
}

// Generator changes objects at random.
type Generator struct {
	*rand.Rand
	Cluster *e2e.Cluster
	Objects *e2e.Objects
	next    int
	Did     []string
	// renewed are the pods that were replaced since the last state. If a pod starts and ends before it is read, its
	// predecessor counts as deleted: it may still run and stays closed.
	Renewed map[string]bool
	cells   int
	// tiers draws cluster network policies; nil if there are none.
	tiers *rapid.Generator[*v1alpha2.ClusterNetworkPolicy]
}

// Begin forgets the changes that made the last state.
func (g *Generator) Begin() { g.Did, g.Renewed = nil, map[string]bool{} }

// Note adds a line to what made the state.
func (g *Generator) Note(format string, args ...any) {
	g.Did = append(g.Did, fmt.Sprintf(format, args...))
}

// Do makes a change, and notes what it is about.
func (g *Generator) Do(about string, c e2e.Change) {
	g.Note("%s", about)
	c(g.Cluster, g.Objects)
}

// Pick returns one of the words.
func (g *Generator) Pick(words ...string) string { return words[g.IntN(len(words))] }

// UID returns a UID that no object had.
func (g *Generator) UID() string {
	g.next++
	return fmt.Sprintf("%08d", g.next)
}

// Changes makes one to three changes.
func (g *Generator) Changes(t *testing.T) {
	t.Helper()
	for range 1 + g.IntN(3) {
		g.Change(t)
	}
}

// Change makes one change, more often to policies than to pods.
func (g *Generator) Change(t *testing.T) {
	t.Helper()
	pods := slices.DeleteFunc(slices.Sorted(maps.Keys(g.Objects.Pods)), func(name string) bool {
		return e2e.OwnName(name) == agent || strings.HasPrefix(name, CrowdPrefix)
	})
	name := pods[g.IntN(len(pods))]
	switch g.IntN(11) {
	case 0, 1, 2, 3, 4, 5:
		g.Edit()
	case 6, 7:
		g.Relabel(name)
	case 8:
		g.replace(name)
	case 9:
		g.swap(name, pods[g.IntN(len(pods))])
	case 10:
		g.agent()
	}
}

// Relabel changes the labels of a pod or of a namespace.
func (g *Generator) Relabel(name string) {
	if g.IntN(2) == 0 {
		l := g.Labels()
		g.Do("labels of "+name+": "+l, e2e.Pod(name, e2e.Labelled(l)))
		return
	}
	n, l := g.Pick("shop", "ops"), g.Pick("team=a", "team=b", "team=b,zone=z", "zone=z", "")
	g.Do("labels of namespace "+n+": "+l, e2e.Namespace(n, l))
}

// agent is the name of pods on the network of their node.
const agent = "agent"

// agent makes, changes or removes a pod on the network of its node.
func (g *Generator) agent() {
	name := g.Pick("shop", "ops") + "/" + agent
	if g.Objects.Pods[name] != nil && g.IntN(3) == 0 {
		g.Do("without "+name, e2e.Without(name))
		return
	}
	l := g.Labels()
	g.Do("on the host network: "+name+" with "+l, e2e.Pod(name, e2e.At(g.Pick("web", "copy")), e2e.Labelled(l),
		e2e.HostNetwork))
}

// replace ends a pod, or makes another one of the same name, with other ports.
func (g *Generator) replace(name string) {
	if g.Objects.Pods[name].Status.Phase == corev1.PodRunning && !g.Renewed[name] && g.IntN(3) == 0 {
		g.Do("the end of "+name, e2e.Pod(name, e2e.Phase(corev1.PodSucceeded)))
		return
	}
	g.Renewed[name] = true
	number := []int32{53, 80, 81}[g.IntN(3)]
	protocol := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP, ""}[g.IntN(4)]
	g.Do(fmt.Sprintf("another %s with web=%d %s", name, number, protocol),
		e2e.Pod(name, e2e.UID(g.UID()), e2e.Phase(corev1.PodRunning), e2e.NoPorts, e2e.Port("web", number, protocol)))
}

// swap replaces two pods by new ones with each other's addresses.
func (g *Generator) swap(a, b string) {
	if a == b {
		return
	}
	g.Note("%s and %s have each other's addresses", a, b)
	g.Renewed[a], g.Renewed[b] = true, true
	pa, pb := g.Objects.Pods[a], g.Objects.Pods[b]
	pa.UID, pb.UID = types.UID(g.UID()), types.UID(g.UID())
	pa.Spec.NodeName, pb.Spec.NodeName = pb.Spec.NodeName, pa.Spec.NodeName
	pa.Status, pb.Status = pb.Status, pa.Status
	pa.Status.Phase, pb.Status.Phase = corev1.PodRunning, corev1.PodRunning
}

// Labels draws the labels of a pod.
func (g *Generator) Labels() string {
	var l []string
	if g.IntN(5) > 0 {
		l = append(l, "app="+g.Pick("web", "db", "mon"))
	}
	if g.IntN(2) == 0 {
		l = append(l, "tier="+g.Pick("x", "y"))
	}
	return strings.Join(l, ",")
}

func (g *Generator) podSelector() string {
	return g.Pick(`{}`, `{matchLabels: {app: web}}`, `{matchLabels: {app: db}}`, `{matchLabels: {app: web, tier: x}}`,
		`{matchExpressions: [{key: tier, operator: Exists}]}`,
		`{matchExpressions: [{key: app, operator: NotIn, values: [web, db]}]}`,
		`{matchExpressions: [{key: app, operator: In, values: [mon, db]}, {key: tier, operator: DoesNotExist}]}`)
}

func (g *Generator) namespaceSelector() string {
	return g.Pick(`{}`, `{matchLabels: {team: a}}`, `{matchLabels: {zone: z}}`,
		`{matchLabels: {kubernetes.io/metadata.name: ops}}`,
		`{matchExpressions: [{key: zone, operator: DoesNotExist}]}`,
		`{matchExpressions: [{key: team, operator: NotIn, values: [a]}]}`)
}

func (g *Generator) peer() string {
	switch g.IntN(4) {
	case 0:
		return `{podSelector: ` + g.podSelector() + `}`
	case 1:
		return `{namespaceSelector: ` + g.namespaceSelector() + `}`
	case 2:
		return `{namespaceSelector: ` + g.namespaceSelector() + `, podSelector: ` + g.podSelector() + `}`
	}
	host := g.Pick("web", "db", "mon", "api", "copy", "out", "n2")
	return `{ipBlock: ` + g.Pick(`{cidr: 10.32.1.0/24}`, `{cidr: "fd10:32:0:2::/64"}`,
		`{cidr: $`+host+`4/32}`, `{cidr: "$`+host+`6/128"}`,
		`{cidr: 0.0.0.0/0, except: [10.32.0.0/16]}`, `{cidr: "::/0", except: ["$`+host+`6/128", "fd31::/16"]}`,
		`{cidr: 10.32.0.0/16, except: [10.32.2.0/24, $`+g.Pick("web", "db", "api")+`4/32]}`, `{cidr: "::/0"}`) + `}`
}

func (g *Generator) list(most int, one func() string) string {
	var items []string
	for range g.IntN(most + 1) {
		items = append(items, one())
	}
	return "[" + strings.Join(items, ", ") + "]"
}

func (g *Generator) ports() string {
	return g.list(2, func() string {
		return g.Pick(`{port: 80}`, `{port: 81}`, `{port: 53, protocol: UDP}`, `{protocol: UDP}`, `{}`,
			`{port: 80, protocol: SCTP}`, `{protocol: SCTP}`, `{port: web}`,
			`{port: web, protocol: UDP}`, `{port: web, protocol: SCTP}`, `{port: 79, endPort: 80}`,
			`{port: 81, endPort: 90}`, `{port: 1, endPort: 65535}`)
	})
}

func (g *Generator) policy() string { return g.policyFor(g.podSelector()) }

// policyFor returns the spec of a policy with a pod selector.
func (g *Generator) policyFor(selector string) string {
	spec := "podSelector: " + selector
	if types := g.Pick("", "[Ingress]", "[Egress]", "[Ingress, Egress]"); types != "" {
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

// OnePod selects a pod that has a network of its own.
func (g *Generator) OnePod() string {
	pods := slices.DeleteFunc(slices.Sorted(maps.Keys(g.Objects.Pods)),
		func(name string) bool { return e2e.OwnName(name) == agent })
	return pods[g.IntN(len(pods))]
}

// CrowdPrefix begins the names of namespaces that go with all that is in them.
const CrowdPrefix = "crowd-"

// Crowd makes a namespace with pods and a policy, and removes an earlier one.
func (g *Generator) Crowd(round int) {
	name := func(n int) string { return CrowdPrefix + strconv.Itoa(n) }
	changes := []e2e.Change{e2e.Namespace(name(round), g.Pick("team=a", "team=b", "zone=z")),
		e2e.Without(name(round - 3))}
	for i := range 10 {
		addr := fmt.Sprintf("10.99.%d.%d", round%250, i+1)
		changes = append(changes, e2e.Pod(fmt.Sprintf("%s/pod-%d", name(round), i), e2e.Labelled(g.Labels()),
			func(_ *e2e.Cluster, p *corev1.Pod) {
				p.Spec.NodeName = "elsewhere"
				p.Status.PodIPs = []corev1.PodIP{{IP: addr}}
				p.Status.PodIP = addr
			}))
	}
	e2e.Do(append(changes, e2e.Policy(name(round)+"/p", g.policy()))...)(g.Cluster, g.Objects)
}
