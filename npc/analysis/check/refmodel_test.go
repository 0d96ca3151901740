package check_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/check"
	"github.com/weave-npc/weave-npc/npc/analysis/check/expectation"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/random"
	"github.com/weave-npc/weave-npc/test/refmodel"
)

var (
	checks = flag.Int("proof.checks", 600, "how many pairs of a random cluster and a random expectation are checked")
	seeds  = flag.Int("proof.seed", 0, "the first cluster's seed")
)

// harness is a cluster as weave-npc has it and as the reference model has it.
type harness struct {
	*rand.Rand
	cluster *cluster.Cluster
	model   refmodel.State
	pods    []npc.Pod
	// fresh is set if pods may be in a namespace that is not there.
	fresh bool
	// selectors are the selectors of pods in policies.
	selectors []*metav1.LabelSelector
}

func newHarness(t *testing.T, seed uint64) *harness {
	w := &harness{Rand: rand.New(rand.NewPCG(seed, 17)), cluster: cluster.New()}
	w.model.Namespaces = map[string]map[string]string{}
	for _, ns := range []string{"a", "b", "c"} {
		n := fixture.Namespace(ns + " team=" + random.Pick(w.Rand, "x", "y"))
		w.model.Namespaces[ns] = n.Labels
		w.cluster.SetNamespace(n)
	}
	for i := range 3 + w.IntN(6) {
		w.addPod(i)
	}
	denied := w.IntN(2) == 0
	for i := range w.IntN(6) + 4*w.IntN(2) {
		spec := w.spec()
		if denied && i < 3 {
			spec = "{podSelector: {}, policyTypes: [" + random.Pick(w.Rand, "Ingress", "Egress", "Ingress, Egress") + "]}"
		}
		o := fixture.Policy(t, fmt.Sprintf("%s/q%d", random.Pick(w.Rand, "a", "b", "c"), i), spec)
		w.cluster.SetPolicy(o)
		w.model.Policies = append(w.model.Policies, *o)
		w.selectors = append(w.selectors, &o.Spec.PodSelector)
		for _, r := range o.Spec.Ingress {
			for _, p := range r.From {
				w.selectors = append(w.selectors, p.PodSelector)
			}
		}
		for _, r := range o.Spec.Egress {
			for _, p := range r.To {
				w.selectors = append(w.selectors, p.PodSelector)
			}
		}
	}
	if w.IntN(3) == 0 {
		for range w.IntN(4) {
			w.addClusterPolicy()
		}
	}
	return w
}

func (w *harness) addPod(i int) {
	p := fixture.Pod(fmt.Sprintf("%s/p%d node1 app=%s of-no-policy=%s", random.Pick(w.Rand, "a", "b", "c"), i,
		random.Pick(w.Rand, "web", "db"), random.Pick(w.Rand, "1", "2")))
	if w.IntN(3) > 0 {
		p.Labels["tier"] = random.Pick(w.Rand, "1", "2")
	}
	p.Addrs = fixture.Addrs(fmt.Sprintf("10.32.%d.%d", w.IntN(2), 2*i+2))
	if w.IntN(2) == 0 {
		p.Addrs = append(p.Addrs, netip.MustParseAddr(fmt.Sprintf("fd32::%d:%d", w.IntN(2), i+1)))
	}
	if w.IntN(2) == 0 {
		p.Ports = []npc.NamedPort{{Name: "http", Protocol: npc.TCP, Port: random.Pick[uint16](w.Rand, 80, 8080)}}
	}
	if w.IntN(2) == 0 {
		p.Workload = &npc.Workload{Kind: "Deployment", Name: "of-" + p.Labels["app"]}
	}
	w.cluster.SetPod(p)
	w.pods = append(w.pods, p)
	w.model.Pods = append(w.model.Pods, fixture.ModelPod(p))
}

func (w *harness) addClusterPolicy() {
	u := random.Universe()
	u.Nodes, u.CIDRs = u.Nodes[:1], []v1alpha2.CIDR{"0.0.0.0/0", "::/0", "10.32.0.0/17", "10.32.0.16/28", "fd32::1:0/112"}
	o := random.ClusterPolicyOf(w.Rand, u)
	if slices.ContainsFunc(w.model.ClusterPolicies, func(p v1alpha2.ClusterNetworkPolicy) bool { return p.Name == o.Name }) {
		return
	}
	w.cluster.SetClusterPolicy(o)
	w.model.ClusterPolicies = append(w.model.ClusterPolicies, *o)
	pods := func(p *v1alpha2.NamespacedPod) {
		if p != nil {
			w.selectors = append(w.selectors, &p.PodSelector)
		}
	}
	pods(o.Spec.Subject.Pods)
	for _, r := range o.Spec.Ingress {
		for _, p := range r.From {
			pods(p.Pods)
		}
	}
	for _, r := range o.Spec.Egress {
		for _, p := range r.To {
			pods(p.Pods)
		}
	}
}

func (w *harness) spec() string {
	selector := func() string {
		return random.Pick(w.Rand, "{}", "{matchLabels: {app: web}}", "{matchLabels: {app: db, tier: '1'}}",
			"{matchExpressions: [{key: tier, operator: DoesNotExist}]}", "{matchExpressions: [{key: app, operator: NotIn, values: [web]}]}",
			"{matchExpressions: [{key: app, operator: In, values: [web, cache]}, {key: tier, operator: Exists}]}")
	}
	peer := func() string {
		switch w.IntN(6) {
		case 0, 1:
			return "{podSelector: " + selector() + "}"
		case 2:
			return "{namespaceSelector: {matchLabels: {team: " + random.Pick(w.Rand, "x", "y") + "}}, podSelector: " + selector() + "}"
		case 3:
			return "{namespaceSelector: {matchLabels: {" + random.Pick(w.Rand, "team: x", "kubernetes.io/metadata.name: b") + "}}}"
		case 4:
			return "{ipBlock: {cidr: 10.32.0.0/16, except: [10.32." + random.Pick(w.Rand, "0.0/25", "0.16/28", "1.0/24") + "]}}"
		}
		return "{ipBlock: {cidr: '" + random.Pick(w.Rand, "0.0.0.0/0", "::/0", "10.32.0.8/29", "fd32::1:0/112", "198.18.0.0/24") + "'}}"
	}
	rules := func(peers string) string {
		var all []string
		for range w.IntN(3) {
			switch w.IntN(3) {
			case 0:
				all = append(all, "{"+peers+": ["+peer()+"]}")
			case 1:
				all = append(all, "{"+peers+": ["+peer()+", "+peer()+"], ports: [{port: http}, {port: 443}]}")
			default:
				all = append(all, "{"+peers+": ["+peer()+"], ports: [{port: "+random.Pick(w.Rand, "80", "http", "443", "1, endPort: 100")+"}]}")
			}
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	return fmt.Sprintf("{podSelector: %s, policyTypes: %s, ingress: %s, egress: %s}", selector(),
		random.Pick(w.Rand, "[Ingress]", "[Egress]", "[Ingress, Egress]"), rules("from"), rules("to"))
}

// subject returns a random subject, as a text and as what is in it.
func (w *harness) subject() (text string, is func(p party, outside bool) bool) {
	at := w.pods[w.IntN(len(w.pods))]
	switch w.IntN(9) {
	case 0:
		return "everyone", func(party, bool) bool { return true }
	case 1, 2:
		return at.Namespace + "/*", func(p party, _ bool) bool { return p.pod != nil && p.pod.Namespace == at.Namespace }
	case 3:
		return "namespaces(team=x)", func(p party, _ bool) bool { return p.pod != nil && w.model.Namespaces[p.pod.Namespace]["team"] == "x" }
	case 4:
		return "pods(app=web,tier!=1) in namespaces(team)", func(p party, _ bool) bool {
			return p.pod != nil && w.model.Namespaces[p.pod.Namespace]["team"] != "" && p.pod.Labels["app"] == "web" && p.pod.Labels["tier"] != "1"
		}
	case 5:
		cidr := random.Pick(w.Rand, "10.32.0.0/24", "198.18.0.0/15", "::/0", "10.32.0.9/32", "0.0.0.0/0")
		return cidr, func(p party, _ bool) bool { return netip.MustParsePrefix(cidr).Contains(p.addr) }
	case 6:
		return "pods(app=web) in " + at.Namespace + " or the internet", func(p party, _ bool) bool {
			return p.pod != nil && p.pod.Namespace == at.Namespace && p.pod.Labels["app"] == "web" || isPublic(p.addr)
		}
	}
	is = func(p party, outside bool) bool {
		return p.pod != nil && w.named(p, outside, func(q npc.Pod) bool { return q.Name == at.Name })
	}
	if at.Workload == nil || w.IntN(2) == 0 {
		return at.Namespace + "/" + at.Name, is
	}
	return at.Namespace + "/" + at.Workload.Name, func(p party, outside bool) bool {
		return p.pod != nil && w.named(p, outside, func(q npc.Pod) bool {
			return q.Namespace == at.Namespace && q.Workload != nil && q.Workload.Name == at.Workload.Name
		})
	}
}

// named reports whether a pod counts as one of those that are named. One that could be there does if it is a replica of
// one of them or, where those are asked about that are not named, if policies see its labels in it.
func (w *harness) named(p party, outside bool, name func(npc.Pod) bool) bool {
	return slices.ContainsFunc(w.pods, func(q npc.Pod) bool {
		if !name(q) || p.pod.Namespace != q.Namespace {
			return false
		}
		switch {
		case p.there:
			return p.pod.Name == q.Name
		case outside:
			return w.like(q, p.pod)
		}
		return p.of != nil && p.of.Name == q.Name
	})
}

func isPublic(a netip.Addr) bool {
	if a.Is6() {
		return netip.MustParsePrefix("2000::/3").Contains(a) && !netip.MustParsePrefix("2001:db8::/32").Contains(a)
	}
	return !slices.ContainsFunc([]string{"10.0.0.0/8", "0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3", "198.18.0.0/15"}, func(cidr string) bool {
		return netip.MustParsePrefix(cidr).Contains(a)
	})
}

// like reports whether a pod that could be there counts as one that is: it has its labels that policies name.
func (w *harness) like(there npc.Pod, p *npc.Pod) bool {
	keys := map[string]bool{}
	for _, s := range w.selectors {
		if s == nil {
			continue
		}
		for k := range s.MatchLabels {
			keys[k] = true
		}
		for _, e := range s.MatchExpressions {
			keys[e.Key] = true
		}
	}
	want := labels.Set{}
	for k, v := range there.Labels {
		if keys[k] {
			want[k] = v
		}
	}
	if len(want) == 0 {
		want = there.Labels
	}
	for k, v := range want {
		if p.Labels[k] != v {
			return false
		}
	}
	return true
}

// asked is an expectation with what it is about, independent of how it is read.
type asked struct {
	expectation.Expectation
	text     string
	from, to func(p party) bool
	ports    []flow.Service // some of those that the expectation is about
	port     string
}

func (w *harness) expectation(t *testing.T) asked {
	var e asked
	from, isFrom := w.subject()
	to, isTo := w.subject()
	e.from, e.to = func(p party) bool { return isFrom(p, false) }, func(p party) bool { return isTo(p, false) }
	e.port = random.Pick(w.Rand, "", "tcp/80", "8080", "http", "udp", "1-443", "icmp", "443, udp/53")
	verb := random.Pick(w.Rand, "reaches", "never reaches", "always reaches", "none outside", "only")
	switch verb {
	case "none outside", "only":
		e.text = verb + " " + from + " reaches " + to
		e.from = func(p party) bool { return !isFrom(p, true) }
	default:
		e.text = from + " " + verb + " " + to
	}
	if verb == "always reaches" && e.port == "" {
		e.port = "tcp/80"
	}
	if e.port != "" {
		e.text += " on " + e.port
	}
	e.ports = services(e.port)
	files, problems := expectation.Parse("x.yaml", []byte(fmt.Sprintf("apiVersion: %s\nkind: %s\nexpectations:\n- %q\n",
		expectation.APIVersion, expectation.Kind, e.text)))
	if len(problems) > 0 || len(files) != 1 {
		t.Fatalf("%q: %v", e.text, problems)
	}
	e.Expectation = files[0].Expectations[0]
	return e
}

// services returns the services that a random expectation is about: all those near the first and last ports of rules of
// random clusters.
func services(port string) (out []flow.Service) {
	all := []flow.Service{{Protocol: 1}}
	for _, protocol := range []uint8{6, 17, 132} {
		for _, n := range []uint16{1, 53, 79, 80, 81, 100, 101, 442, 443, 444, 8079, 8080, 8081, 65535} {
			all = append(all, flow.Service{Protocol: protocol, Port: n})
		}
	}
	for _, s := range all {
		tcp := s.Protocol == 6
		if map[string]bool{"": true, "tcp/80": tcp && s.Port == 80, "8080": tcp && s.Port == 8080, "http": tcp && (s.Port == 80 || s.Port == 8080),
			"udp": s.Protocol == 17, "1-443": tcp && s.Port <= 443, "icmp": s.Protocol == 1,
			"443, udp/53": tcp && s.Port == 443 || s.Protocol == 17 && s.Port == 53}[port] {
			out = append(out, s)
		}
	}
	return out
}

// party is a pod with one of its addresses, or an address.
type party struct {
	pod   *npc.Pod
	addr  netip.Addr
	there bool
	of    *npc.Pod // the pod that it would be another replica of; nil if there is none
}

// parties returns all existing pods, and free addresses near the ends of blocks.
func (w *harness) parties() (out []party) {
	for i := range w.pods {
		for _, a := range w.pods[i].Addrs {
			out = append(out, party{&w.pods[i], a, true, nil})
		}
	}
	for _, text := range []string{"10.32.0.1", "10.32.0.8", "10.32.0.11", "10.32.0.17", "10.32.0.33", "10.32.0.129", "10.32.1.1", "10.32.2.1", "10.33.0.1",
		"1.0.0.1", "198.18.0.1", "198.18.1.1", "10.31.0.1", "fd32::2:1", "fd32::1:ff", "2a00::1", "fd00::1", "10.200.0.1"} {
		a := netip.MustParseAddr(text)
		if !w.taken(a) {
			out = append(out, party{nil, a, true, nil})
		}
	}
	return out
}

func (w *harness) taken(a netip.Addr) bool {
	return slices.ContainsFunc(w.pods, func(p npc.Pod) bool { return slices.Contains(p.Addrs, a) })
}

// could returns a random pod that could be there.
func (w *harness) could(name string) party {
	p := npc.Pod{Namespace: random.Pick(w.Rand, "a", "b", "c"), Name: name, Labels: map[string]string{}}
	if w.fresh && w.IntN(3) == 0 {
		p.Namespace = "fresh"
		l := map[string]string{"kubernetes.io/metadata.name": "fresh"}
		if w.IntN(3) > 0 {
			l["team"] = w.model.Namespaces[random.Pick(w.Rand, "a", "b", "c")]["team"]
		}
		w.model.Namespaces["fresh"] = l
	}
	for key, values := range map[string][]string{"app": {"web", "db", "cache", "none"}, "tier": {"1", "2", "3"}} {
		if w.IntN(4) > 0 {
			p.Labels[key] = random.Pick(w.Rand, values...)
		}
	}
	if w.IntN(2) == 0 { // an existing pod has the number
		if q := w.pods[w.IntN(len(w.pods))]; len(q.Ports) > 0 {
			p.Ports = q.Ports
		}
	}
	for {
		a := netip.AddrFrom4([4]byte{10, 32, byte(w.IntN(3)), byte(w.IntN(48) * w.IntN(6))})
		if w.IntN(4) == 0 && slices.ContainsFunc(w.pods, func(p npc.Pod) bool { return len(p.Addrs) > 1 }) {
			a = netip.MustParseAddr(fmt.Sprintf("fd32::%d:%x", w.IntN(3), 100+w.IntN(100)))
		}
		if !w.taken(a) {
			p.Addrs = []netip.Addr{a}
			return party{&p, a, false, nil}
		}
	}
}

// replica returns another replica of a pod, with another address.
func (w *harness) replica(name string) party {
	p, of := w.could(name), &w.pods[w.IntN(len(w.pods))]
	p.of, p.pod.Namespace, p.pod.Labels, p.pod.Ports, p.pod.Workload = of, of.Namespace, of.Labels, of.Ports, of.Workload
	return p
}

// allowed returns the reference model's verdict on a flow between two parties that exist or could exist.
func (w *harness) allowed(from, to party, s flow.Service) bool {
	j := w.model
	for _, p := range []party{from, to} {
		if !p.there {
			j.Pods = append(slices.Clip(j.Pods), fixture.ModelPod(*p.pod))
		}
	}
	return j.Allowed(refmodel.Everywhere, fixture.ModelPacket(from.addr, to.addr, s))
}

// about reports whether an expectation is about a flow.
func (e asked) about(from, to party, s flow.Service) bool {
	switch {
	case from.pod == nil && to.pod == nil, from.addr.Is4() != to.addr.Is4(), from.addr == to.addr, !e.from(from), !e.to(to):
		return false
	case from.pod != nil && to.pod != nil && from.pod.Name == to.pod.Name:
		return false
	}
	return e.port != "http" || to.pod != nil && slices.Contains(to.pod.Ports, npc.NamedPort{Name: "http", Protocol: s.Protocol, Port: s.Port})
}

// breaks returns what breaks an expectation among some parties, or an empty text.
func (w *harness) breaks(e asked, from, to party) string {
	asked, some := false, false
	for _, s := range e.ports {
		if !e.about(from, to, s) {
			continue
		}
		asked = true
		is := w.allowed(from, to, s)
		some = some || is
		if e.Verb == expectation.Never && is || e.Verb != expectation.Never && !is && e.port != "" {
			return fmt.Sprintf("%s: %v %v (%v) -> %v %v (%v)", s, from.pod, from.addr, is, to.pod, to.addr, is)
		}
	}
	if e.port == "" && e.Verb == expectation.Reaches && asked && !some {
		return fmt.Sprintf("on no port: %v %v -> %v %v", from.pod, from.addr, to.pod, to.addr)
	}
	return ""
}

// confirm compares a counterexample with the reference model.
func (w *harness) confirm(t *testing.T, e asked, x *check.Counterexample) {
	t.Helper()
	for _, n := range x.Namespaces {
		if w.model.Namespaces[n.Name] != nil || !w.fresh {
			t.Errorf("%s: namespace %s is no new one", e.text, n.Name)
		}
		w.model.Namespaces[n.Name] = n.Labels
	}
	of := func(end flow.End) party {
		for _, p := range x.Pods {
			if end.Pod == p.Namespace+"/"+p.Name {
				found := party{p, end.Addr, false, nil}
				for i, q := range w.pods {
					if p.Workload == q.Workload && maps.Equal(p.Labels, q.Labels) && strings.HasPrefix(p.Name, "counterexample-") && e.of(q) {
						found.of = &w.pods[i]
					}
				}
				return found
			}
		}
		for i := range w.pods {
			if end.Pod == w.pods[i].Namespace+"/"+w.pods[i].Name {
				return party{&w.pods[i], end.Addr, true, nil}
			}
		}
		return party{nil, end.Addr, true, nil}
	}
	f := x.Verdict.Flow
	from, to := of(f.From), of(f.To)
	if !e.about(from, to, f.Service) {
		t.Errorf("%s: it is not about %s -> %s, %s", e.text, f.From, f.To, f.Service)
	}
	if is := w.allowed(from, to, f.Service); is != (e.Verb == expectation.Never) || is != x.Verdict.Allowed {
		t.Errorf("%s: %s -> %s, %s: %v by the reference model", e.text, f.From, f.To, f.Service, is)
	}
	for _, p := range x.Pods {
		if len(p.Addrs) != 1 || w.taken(p.Addrs[0]) || !slices.ContainsFunc(w.pods, func(q npc.Pod) bool { return near(q, p.Addrs[0]) }) {
			t.Errorf("%s: %s cannot have the address %v", e.text, p.Name, p.Addrs)
		}
	}
}

// near reports whether an address is in the range around a pod's address that further pods may get addresses from.
func near(q npc.Pod, a netip.Addr) bool {
	return slices.ContainsFunc(q.Addrs, func(b netip.Addr) bool {
		bits := 16
		if a.Is6() {
			bits = 48
		}
		return netip.PrefixFrom(b, bits).Masked().Contains(a)
	})
}

// of reports whether an expectation names a pod or its workload.
func (e asked) of(q npc.Pod) bool {
	return slices.ContainsFunc(slices.Concat(e.From, e.To), func(t expectation.Term) bool {
		return t.Namespace == q.Namespace && (t.Name == q.Name || q.Workload != nil && t.Name == q.Workload.Name)
	})
}

// TestExpectationsAgainstReferenceModel checks random expectations in random clusters. The reference model must confirm
// each counterexample. An expectation that is said to hold must hold in the reference model for all existing pods, and
// for random pods that could be created.
func TestExpectationsAgainstReferenceModel(t *testing.T) {
	outcomes, possible, attacks := map[string]int{}, 0, 0
	for i := range *checks {
		seed := uint64(*seeds + i)
		w := newHarness(t, seed)
		w.fresh = w.IntN(3) == 0
		e := w.expectation(t)
		p := check.New(w.cluster.View(), check.Assumptions{NewNamespaces: w.fresh}, []expectation.Expectation{e.Expectation})
		r := p.Check(e.Expectation)
		outcomes[fmt.Sprint(e.Verb, r.Outcome)]++
		switch {
		case r.Counterexample != nil:
			w.confirm(t, e, r.Counterexample)
			possible += min(len(r.Counterexample.Pods), 1)
		case r.Outcome == check.Holds:
			attacks += w.attack(t, e)
		case r.Outcome == check.Unproved:
			t.Errorf("%s: %s", e.text, r.Why)
		default:
			outcomes["about nothing"]++
			w.isAboutNothing(t, e, r)
		}
		if t.Failed() {
			t.Fatalf("seed %d: %s: %v %s", seed, e.text, r.Outcome, r.Why)
		}
	}
	t.Logf("%d expectations: %v, %d counterexamples with pods that could be there, %d attacks", *checks, outcomes, possible, attacks)
	if possible < *checks/20 || attacks < *checks {
		t.Errorf("too little is checked: %d counterexamples with pods that could be there, %d attacks", possible, attacks)
	}
}

// attack looks for what breaks an expectation that is said to hold, and returns how many pairs it asked about.
func (w *harness) attack(t *testing.T, e asked) (n int) {
	all := w.parties()
	for _, from := range all {
		for _, to := range all {
			if found := w.breaks(e, from, to); found != "" {
				t.Errorf("%s, which is said to hold, is broken by %s", e.text, found)
				return n
			}
			n++
		}
	}
	if e.Verb == expectation.Reaches {
		return n
	}
	party := func(name string) party {
		switch w.IntN(4) {
		case 0:
			return w.replica(name)
		case 1:
			return all[w.IntN(len(all))]
		}
		return w.could(name)
	}
	for range 300 {
		from, to := party("source"), party("destination")
		if found := w.breaks(e, from, to); found != "" {
			t.Errorf("%s, which is said to hold, is broken by %s", e.text, found)
			return n
		}
		n++
	}
	return n
}

// isAboutNothing checks that an expectation that is broken without a counterexample matches no pod, or a port's name
// that is not there.
func (w *harness) isAboutNothing(t *testing.T, e asked, r check.Result) {
	t.Helper()
	all := w.parties()
	lacks := slices.ContainsFunc(all, func(p party) bool { return e.to(p) && (p.pod == nil || len(p.pod.Ports) == 0) })
	if !slices.ContainsFunc(all, func(p party) bool { return e.from(p) }) || !slices.ContainsFunc(all, func(p party) bool { return e.to(p) }) ||
		e.port == "http" && lacks || strings.Contains(r.Why, "matches no pod") || strings.Contains(r.Why, "is about no pod") {
		return
	}
	t.Errorf("%s is not about nothing: %s", e.text, r.Why)
}
