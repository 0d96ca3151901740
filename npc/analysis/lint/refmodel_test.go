package lint_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/npc/analysis/lint"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/random"
	"github.com/weave-npc/weave-npc/test/refmodel"
)

// harness is random objects, and pods that could come: the linter does not know them.
type harness struct {
	snapshot.Objects
	toCome []*corev1.Pod
}

func randomHarness(t *testing.T, r *rand.Rand) harness {
	var w harness
	for _, name := range []string{"aaa", "bbb", "ccc"} {
		n := fixture.Namespace(name + " team=" + random.Pick(r, "x", "y"))
		w.Namespaces = append(w.Namespaces, fixture.NamespaceObject(n))
	}
	for i := range 16 {
		facts := fmt.Sprintf("%s/p%d node%d", random.Pick(r, "aaa", "bbb", "ccc"), i, i)
		if r.IntN(4) == 0 {
			facts += fmt.Sprintf(" fd32::%d", i)
		} else {
			facts += fmt.Sprintf(" 10.32.0.%d", i)
		}
		facts += random.Pick(r, " app=web", " app=db", " app=web", " app=other", "")
		facts += random.Pick(r, " tier=1", " tier=2", "")
		p := fixture.PodObject(fixture.Pod(facts + random.Pick(r, " http:80", " http:8080")))
		if i < 6 {
			w.Pods = append(w.Pods, p)
		} else {
			w.toCome = append(w.toCome, p)
		}
	}
	for i := range 3 + r.IntN(6) {
		key := fmt.Sprintf("%s/q%d", random.Pick(r, "aaa", "aaa", "bbb"), i)
		w.Policies = append(w.Policies, fixture.Policy(t, key, randomSpec(r)))
	}
	names := map[string]bool{}
	for range r.IntN(5) {
		p := randomClusterPolicy(r)
		if !names[p.Name] {
			names[p.Name] = true
			w.ClusterPolicies = append(w.ClusterPolicies, p)
		}
	}
	return w
}

// randomClusterPolicy returns one without peers that are Nodes, with CIDRs that cover each other.
func randomClusterPolicy(r *rand.Rand) *v1alpha2.ClusterNetworkPolicy {
	u := random.Universe()
	u.Nodes, u.CIDRs = nil, []v1alpha2.CIDR{"0.0.0.0/0", "::/0", "10.32.0.0/28", "10.32.0.8/29"}
	return random.ClusterPolicyOf(r, u)
}

// randomSpec returns one of few specs, so that many policies cover others.
func randomSpec(r *rand.Rand) string {
	selector := func() string {
		return random.Pick(r, "{}", "{matchLabels: {app: web}}", "{matchLabels: {app: web, tier: '1'}}",
			"{matchExpressions: [{key: tier, operator: DoesNotExist}]}",
			"{matchExpressions: [{key: app, operator: NotIn, values: [web]}]}", "{matchExpressions: [{key: app, operator: In, values: [web, db]}]}",
			"{matchExpressions: [{key: app, operator: NotIn, values: [web, db]}, {key: app, operator: Exists}]}",
			"{matchExpressions: [{key: tier, operator: Exists}, {key: tier, operator: NotIn, values: ['1']}]}", "{matchLabels: {app: absent}}")
	}
	space := func() string {
		return random.Pick(r, "{}", "{matchLabels: {team: x}}", "{matchLabels: {kubernetes.io/metadata.name: aaa}}",
			"{matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [aaa, bbb]}]}", "{matchLabels: {team: none}}")
	}
	peer := func() string {
		switch r.IntN(6) {
		case 0, 1:
			return "{podSelector: " + selector() + "}"
		case 2:
			return "{namespaceSelector: " + space() + ", podSelector: " + selector() + "}"
		case 3:
			return "{namespaceSelector: " + space() + "}"
		case 4:
			return "{ipBlock: {cidr: 10.32.0.0/28, except: [" + random.Pick(r, "10.32.0.0/29", "10.32.0.4/30", "10.32.0.0/29, 10.32.0.8/29",
				"10.32.0.4/30, 10.32.0.5/32") + "]}}"
		default:
			return "{ipBlock: {cidr: '" + random.Pick(r, "0.0.0.0/0", "::/0", "10.32.0.8/29", "10.32.0.0/28") + "'}}"
		}
	}
	rules := func(peers string) (text string) {
		for i := range r.IntN(4) {
			if i > 0 {
				text += ", "
			}
			ports := "ports: [{port: " + random.Pick(r, "80", "http", "443", "1, endPort: 100", "80, protocol: UDP", "80}, {port: 443") + "}]"
			switch r.IntN(4) {
			case 0:
				text += "{" + peers + ": [" + peer() + "]}"
			case 1:
				text += "{" + peers + ": [" + peer() + "], " + ports + "}"
			case 2:
				text += "{" + peers + ": [" + peer() + ", " + peer() + "], " + ports + "}"
			default:
				text += "{" + ports + "}"
			}
		}
		return "[" + text + "]"
	}
	return fmt.Sprintf("{podSelector: %s, policyTypes: %s, ingress: %s, egress: %s}", selector(),
		random.Pick(r, "[Ingress]", "[Ingress]", "[Egress]", "[Ingress, Egress]"), rules("from"), rules("to"))
}

// verdicts returns the reference model's verdicts on all connections of pods with each other and with addresses.
func (w harness) verdicts(pods []*corev1.Pod) (out []bool) {
	j := refmodel.State{Namespaces: map[string]map[string]string{}}
	for _, n := range w.Namespaces {
		j.Namespaces[n.Name] = n.Labels
	}
	var ends []netip.Addr
	for _, p := range pods {
		a := netip.MustParseAddr(p.Status.PodIP)
		ends = append(ends, a)
		j.Pods = append(j.Pods, refmodel.Pod{Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName, Labels: p.Labels, Addrs: []netip.Addr{a},
			Ports: p.Spec.Containers[0].Ports})
	}
	for _, p := range w.Policies {
		j.Policies = append(j.Policies, *p)
	}
	for _, p := range w.ClusterPolicies {
		j.ClusterPolicies = append(j.ClusterPolicies, *p)
	}
	inside := len(ends)
	ends = append(ends, netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8::1"))
	for i, from := range ends {
		for k, to := range ends {
			if i >= inside && k >= inside || from.Is4() != to.Is4() {
				continue
			}
			for _, s := range []refmodel.Packet{{Protocol: "TCP", Port: 80}, {Protocol: "TCP", Port: 8080}, {Protocol: "UDP", Port: 80}, {Protocol: "ICMP"}} {
				s.Src, s.Dst = from, to
				let, in := j.Evaluate(refmodel.Everywhere, s)
				out = append(out, let, in)
			}
		}
	}
	return out
}

var place = regexp.MustCompile(`^spec\.(ingress|egress)\[(\d+)\](?:\.(?:from|to)\[(\d+)\])?`)

// without returns the cluster without what findings of some rules say is superfluous.
func (w harness) without(found []lint.Finding, rules ...string) (_ harness, claims int) {
	gone := map[string]bool{}
	for _, f := range found {
		if slices.Contains(rules, f.Rule) {
			gone[f.Kind+" "+f.Name+" "+place.FindString(f.Message)] = true
			claims++
		}
	}
	var policies []*networkingv1.NetworkPolicy
	for _, p := range w.Policies {
		if gone["NetworkPolicy "+p.Name+" "] {
			continue
		}
		p = p.DeepCopy()
		is := func(field string) bool { return gone["NetworkPolicy "+p.Name+" "+field] }
		p.Spec.Ingress = keep("spec.ingress", "from", p.Spec.Ingress,
			func(r *networkingv1.NetworkPolicyIngressRule) *[]networkingv1.NetworkPolicyPeer { return &r.From }, is)
		p.Spec.Egress = keep("spec.egress", "to", p.Spec.Egress,
			func(r *networkingv1.NetworkPolicyEgressRule) *[]networkingv1.NetworkPolicyPeer { return &r.To }, is)
		policies = append(policies, p)
	}
	w.Policies = policies
	var tiers []*v1alpha2.ClusterNetworkPolicy
	for _, p := range w.ClusterPolicies {
		if gone["ClusterNetworkPolicy "+p.Name+" "] {
			continue
		}
		p = p.DeepCopy()
		is := func(field string) bool { return gone["ClusterNetworkPolicy "+p.Name+" "+field] }
		p.Spec.Ingress = keep("spec.ingress", "from", p.Spec.Ingress,
			func(r *v1alpha2.ClusterNetworkPolicyIngressRule) *[]v1alpha2.ClusterNetworkPolicyIngressPeer {
				return &r.From
			}, is)
		p.Spec.Egress = keep("spec.egress", "to", p.Spec.Egress,
			func(r *v1alpha2.ClusterNetworkPolicyEgressRule) *[]v1alpha2.ClusterNetworkPolicyEgressPeer {
				return &r.To
			}, is)
		tiers = append(tiers, p)
	}
	w.ClusterPolicies = tiers
	return w, claims
}

// keep returns the rules that are not gone, without their peers that are gone. A rule whose peers are all gone is gone
// too.
func keep[R, P any](field, side string, rules []R, peers func(*R) *[]P, gone func(string) bool) (out []R) {
	for i, r := range rules {
		at := field + "[" + strconv.Itoa(i) + "]"
		all := peers(&r)
		var left []P
		for k, p := range *all {
			if !gone(at + "." + side + "[" + strconv.Itoa(k) + "]") {
				left = append(left, p)
			}
		}
		if !gone(at) && (len(left) > 0 || len(*all) == 0) {
			*all = left
			out = append(out, r)
		}
	}
	return out
}

// TestReferenceModelAgreesThatItIsSuperfluous removes what the linter says is superfluous, all of a kind at once: no
// verdict of the reference model changes. What others cover is also compared with pods that the linter does not know
// of. LINT_CLUSTERS is the number of clusters.
func TestReferenceModelAgreesThatItIsSuperfluous(t *testing.T) {
	states := 25
	if n, err := strconv.Atoi(os.Getenv("LINT_CLUSTERS")); err == nil {
		states = n
	}
	total := map[string]int{}
	for seed := range uint64(states) {
		r := rand.New(rand.NewPCG(seed, 17))
		w := randomHarness(t, r)
		c := cluster.New()
		w.Deliver(c)
		found := lint.Run(w.Objects, c.View(), snapshot.Network{})
		everybody := slices.Concat(w.Pods, w.toCome)
		for _, kind := range []struct {
			pods  []*corev1.Pod
			rules []string
		}{
			{everybody, []string{"rule-covered", "policy-covered"}},
			{everybody, []string{"rule-unreachable"}},
			{everybody, []string{"except-all"}},
			{w.Pods, []string{"selects-nothing"}},
			{w.Pods, []string{"peer-matches-no-pod", "peers-split"}},
		} {
			// A finding names a selector of a policy that selects no pod, and the policy is removed.
			claimed := slices.Clone(found)
			for i := range claimed {
				if claimed[i].Rule == "selects-nothing" {
					claimed[i].Message = ""
				}
			}
			after, claims := w.without(claimed, kind.rules...)
			if claims == 0 {
				continue
			}
			total[kind.rules[0]] += claims
			if !slices.Equal(w.verdicts(kind.pods), after.verdicts(kind.pods)) {
				text, _ := yaml.Marshal([]any{w.Policies, w.ClusterPolicies})
				t.Fatalf("cluster %d: without what %v is found about, verdicts differ\n%+v\n%s", seed, kind.rules, found, text)
			}
		}
	}
	t.Logf("%d clusters, findings: %v", states, total)
	for _, rule := range []string{"rule-covered", "rule-unreachable", "except-all", "selects-nothing", "peer-matches-no-pod"} {
		if total[rule] < states/15 {
			t.Errorf("%s is found %d times in %d clusters", rule, total[rule], states)
		}
	}
}
