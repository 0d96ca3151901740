package diff

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/random"
	"github.com/weave-npc/weave-npc/test/refmodel"
)

// harness is what a random cluster is made of.
type harness struct {
	namespaces map[string]map[string]string
	pods       map[string]refmodel.Pod
	policies   map[string]string
	tiers      map[string]*v1alpha2.ClusterNetworkPolicy
	nodes      []refmodel.Node
}

// randomHarness returns a cluster with few labels, ports and ranges, so that policies overlap.
func randomHarness(r *rand.Rand) *harness {
	w := &harness{namespaces: map[string]map[string]string{}, pods: map[string]refmodel.Pod{}, policies: map[string]string{}, tiers: map[string]*v1alpha2.ClusterNetworkPolicy{}}
	for _, ns := range []string{"a", "b", "c"} {
		if r.IntN(8) > 0 {
			w.namespaces[ns] = map[string]string{"team": random.Pick(r, "x", "y")}
		}
	}
	for i := range 6 {
		w.addPod(r, i)
	}
	for range r.IntN(5) {
		w.change(r, 3)
	}
	for i := range 2 {
		facts := fmt.Sprintf("node%[1]d 172.31.0.%[1]d fd99::%[1]d zone=%[2]s", i+1, random.Pick(r, "x", "y"))
		w.nodes = append(w.nodes, fixture.ModelNode(fixture.Node(facts)))
	}
	for range r.IntN(4) {
		w.change(r, 4)
	}
	return w
}

func (w *harness) addPod(r *rand.Rand, i int) {
	p := fixture.Pod(fmt.Sprintf("%s/p%d node%d app=%s",
		random.Pick(r, "a", "b", "c"), i, 1+r.IntN(2), random.Pick(r, "web", "db")))
	if r.IntN(3) > 0 {
		p.Labels["tier"] = random.Pick(r, "1", "2")
	}
	if r.IntN(6) > 0 {
		p.Addrs = append(p.Addrs, netip.AddrFrom4([4]byte{10, 32, byte(r.IntN(2)), byte(i*8 + r.IntN(8))}))
	}
	if len(p.Addrs) == 0 || r.IntN(3) == 0 {
		p.Addrs = append(p.Addrs, netip.MustParseAddr(fmt.Sprintf("fd32::%d:%d", r.IntN(2), i)))
	}
	if r.IntN(2) == 0 {
		p.Ports = []npc.NamedPort{{Name: "http", Protocol: npc.TCP, Port: random.Pick[uint16](r, 80, 8080)}}
	}
	if r.IntN(4) == 0 {
		p.Ports = append(p.Ports, npc.NamedPort{Name: "http", Protocol: npc.UDP, Port: 53})
	}
	for key, q := range w.pods { // a name is one pod's
		if q.Name == p.Name {
			delete(w.pods, key)
		}
	}
	w.pods[p.Namespace+"/"+p.Name] = fixture.ModelPod(p)
}

// change makes a random change of a kind.
func (w *harness) change(r *rand.Rand, kind int) {
	switch kind {
	case 0:
		w.addPod(r, r.IntN(8))
	case 1:
		for _, key := range sorted(w.pods) {
			if r.IntN(3) == 0 {
				delete(w.pods, key)
				break
			}
		}
	case 2:
		w.namespaces[random.Pick(r, "a", "b", "c")] = map[string]string{"team": random.Pick(r, "x", "y")}
	case 3:
		w.policies[random.Pick(r, "a", "b", "c")+"/"+fmt.Sprint("q", r.IntN(8))] = randomSpec(r)
	case 4:
		p := random.ClusterPolicy(r)
		w.tiers[p.Name] = p
	case 5:
		for _, key := range sorted(w.policies) {
			delete(w.policies, key)
			break
		}
	case 6:
		for _, key := range sorted(w.tiers) {
			delete(w.tiers, key)
			break
		}
	case 7:
		for _, key := range sorted(w.pods) {
			if r.IntN(3) == 0 {
				p := w.pods[key]
				p.Labels = map[string]string{"app": random.Pick(r, "web", "db"), "tier": random.Pick(r, "1", "2")}
				p.Ports = []corev1.ContainerPort{{Name: "http", Protocol: corev1.ProtocolTCP, ContainerPort: random.Pick[int32](r, 80, 8080, 443)}}
				w.pods[key] = p
			}
		}
	default:
		i := r.IntN(len(w.nodes))
		w.nodes[i].Labels = map[string]string{"zone": random.Pick(r, "x", "y")}
		if r.IntN(3) == 0 {
			w.nodes[i].Addrs = []netip.Addr{netip.AddrFrom4([4]byte{172, 31, 0, byte(i + 11)})}
		}
	}
}

func sorted[T any](m map[string]T) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// changed returns a copy with random changes, or another cluster.
func (w *harness) changed(r *rand.Rand) *harness {
	if r.IntN(6) == 0 {
		return randomHarness(r)
	}
	out := &harness{namespaces: copied(w.namespaces), pods: copied(w.pods), policies: copied(w.policies), tiers: copied(w.tiers), nodes: slices.Clone(w.nodes)}
	for range 1 + r.IntN(4) {
		out.change(r, r.IntN(9))
	}
	return out
}

func copied[T any](m map[string]T) map[string]T {
	out := map[string]T{}
	for k, v := range m {
		out[k] = v
	}
	return out
}

// randomSpec is richer than random.Spec: it has ports by UDP and SCTP, an address alone, and policies without types.
func randomSpec(r *rand.Rand) string {
	selector := func() string {
		return random.Pick(r, "{}", "{matchLabels: {app: web}}", "{matchLabels: {app: db, tier: '1'}}",
			"{matchExpressions: [{key: tier, operator: DoesNotExist}]}", "{matchExpressions: [{key: app, operator: NotIn, values: [web]}]}")
	}
	peer := func() string {
		return random.Pick(r, "{podSelector: "+selector()+"}",
			"{namespaceSelector: {matchLabels: {team: '"+random.Pick(r, "x", "y")+"'}}, podSelector: "+selector()+"}",
			"{namespaceSelector: {}}", "{ipBlock: {cidr: 10.32.0.0/16, except: [10.32."+random.Pick(r, "0.0/25", "0.16/28", "1.0/24")+"]}}",
			"{ipBlock: {cidr: '"+random.Pick(r, "0.0.0.0/0", "::/0", "10.32.0.8/29", "fd32::1:0/112", "172.31.0.0/16", "192.0.2.7/32")+"'}}")
	}
	rules := func(peers string) string {
		var rules []string
		for range r.IntN(3) {
			port := random.Pick(r, "{port: 80}", "{port: http}", "{port: 443}", "{port: 1, endPort: 100}", "{protocol: UDP}", "{protocol: UDP, port: http}",
				"{protocol: SCTP, port: 60000, endPort: 65535}")
			rules = append(rules, random.Pick(r, "{"+peers+": ["+peer()+"]}",
				"{"+peers+": ["+peer()+", "+peer()+"], ports: ["+port+", {port: 443}]}", "{ports: ["+port+"]}"))
		}
		return strings.Join(rules, ", ")
	}
	switch r.IntN(4) {
	case 0:
		return "{podSelector: " + selector() + ", egress: [" + rules("to") + "], policyTypes: [Egress]}"
	case 1:
		return "{podSelector: " + selector() + ", ingress: [" + rules("from") + "], egress: [" + rules("to") + "], policyTypes: [Ingress, Egress]}"
	}
	return "{podSelector: " + selector() + ", ingress: [" + rules("from") + "]}"
}

// cluster returns the cluster for the code that is tested.
func (w *harness) cluster(t *testing.T) *cluster.Cluster {
	c := cluster.New()
	fixture.Deliver(w.model(t), c)
	for _, n := range w.nodes {
		c.SetNodeAddrs(n.Name, n.Addrs)
	}
	return c
}

// model returns the cluster for the reference model.
func (w *harness) model(t *testing.T) refmodel.State {
	j := refmodel.State{Namespaces: w.namespaces, Nodes: w.nodes}
	for _, key := range sorted(w.pods) {
		j.Pods = append(j.Pods, w.pods[key])
	}
	for _, key := range sorted(w.policies) {
		p := *fixture.Policy(t, key, w.policies[key])
		j.Policies = append(j.Policies, p)
	}
	for _, key := range sorted(w.tiers) {
		j.ClusterPolicies = append(j.ClusterPolicies, *w.tiers[key])
	}
	return j
}
