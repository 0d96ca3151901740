package enforce

import (
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
)

// timeCases show what holds while things come and go.
func timeCases() []testCase {
	const onlyDB = `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: db}}}]}]}`
	return []testCase{
		{name: "S27_an_address_that_moves_gets_the_new_pods_policies", says: []string{conflict}, steps: []step{
			{do: do(pod("shop/web", uid("a")), policy("shop/p", onlyDB), policy("ops/p", `
podSelector: {matchLabels: {app: mon}}
ingress: [{from: [{namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: web}}}]}]`)),
				want: wants{"tcp 80": "-*>web,mon +db>web +web>mon"}},
			{about: "a flow of the old pod is established", then: func(t *testing.T, w *harness) {
				families(func(family int) {
					w.probe(t, "db", oldFlow(w, "web", family), lab.Allowed)
					w.probe(t, "web", oldFlow(w, "mon", family), lab.Allowed)
					w.probe(t, "web", oldFlow(w, "api", family), lab.Allowed)
					virtual := w.service(t, "n1", family, 3, "udp", 5353, "web", 53)
					w.probe(t, "db", lab.Packet{Proto: "udp", To: virtual.Addr(), Port: 5353, FromPort: 46001}, lab.Allowed)
				})
			}},
			{about: "the old pod's object is still there when the new one claims the address", do: do(
				pod("shop/next", at("web"), uid("z"), started, labelled("app=next")),
				policy("shop/q", `{podSelector: {matchLabels: {app: next}}, policyTypes: [Ingress, Egress]}`)),
				want: wants{"tcp 80": "-*>web,mon -web>*"}, then: noOldFlow},
			{about: "and goes late", do: without("shop/web"), want: wants{"tcp 80": "-*>web,mon -web>*"}, then: noOldFlow},
			{about: "and comes back", do: do(without("shop/next"), pod("shop/web", uid("zz"), labelled("app=web"))),
				want: wants{"tcp 80": "-*>web,mon +db>web +web>mon"}},
		}},
		{name: "S27_the_old_pod_goes_first", steps: []step{
			{do: policy("shop/p", onlyDB), want: wants{"tcp 80": "-*>web +db>web"}, then: func(t *testing.T, w *harness) {
				families(func(family int) { w.probe(t, "db", oldFlow(w, "web", family), lab.Allowed) })
			}},
			{about: "finished", do: pod("shop/web", phase(corev1.PodSucceeded)), want: wants{"tcp 80": ""}},
			{about: "and its address is another's", do: do(pod("ops/next", at("web"), labelled("app=next")),
				policy("ops/q", `{podSelector: {matchLabels: {app: next}}}`)), want: wants{"tcp 80": "-*>web"},
				then: func(t *testing.T, w *harness) {
					families(func(family int) { w.probe(t, "db", oldFlow(w, "web", family), lab.Dropped) })
				}},
		}},
		{name: "S27_a_remote_peers_address_moves", says: []string{conflict}, steps: []step{
			{do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{podSelector: {matchLabels: {app: api}}}]}]`),
				want: wants{"tcp 80": "-*>web +api>web"}, then: func(t *testing.T, w *harness) {
					families(func(family int) {
						w.probe(t, "api", oldFlow(w, "web", family), lab.Allowed)
						w.probe(t, "api", oldFlow(w, "db", family), lab.Allowed)
						virtual := w.service(t, "n2", family, 3, "udp", 5353, "web", 53)
						w.probe(t, "api", lab.Packet{Proto: "udp", To: virtual.Addr(), Port: 5353, FromPort: 46001}, lab.Allowed)
					})
				}},
			{about: "to a pod without rights", do: do(without("shop/api"), pod("shop/next", at("api"), labelled("app=next"))),
				want: wants{"tcp 80": "-*>web"}, then: func(t *testing.T, w *harness) {
					families(func(family int) {
						w.probe(t, "api", oldFlow(w, "web", family), lab.Dropped)
						w.probe(t, "api", lab.Packet{Proto: "udp", To: serviceAddr(family, 3, 5353).Addr(), Port: 5353, FromPort: 46001}, lab.Dropped)
					})
				}},
			{about: "and to one with them", do: do(without("shop/next"), pod("shop/again", at("api"), labelled("app=api"))),
				want: wants{"tcp 80": "-*>web +api>web"}},
			{about: "of two that claim it the one that started last has it", do: pod("ops/liar", at("api"), started),
				want: wants{"tcp 80": "-*>web"}},
		}},
		{name: "S31_a_deleted_namespace_leaves_nothing", steps: []step{
			{about: "nothing yet", then: func(t *testing.T, w *harness) { w.awaitBare(t) }},
			{do: do(namespace("temp", "kind=temp"), pod("temp/web", at("web"), labelled("app=web"), port("http", 80, "")),
				without("shop/web"), policy("temp/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Ingress, Egress]
ingress:
- from: [{podSelector: {matchLabels: {app: db}}}, {namespaceSelector: {}}, {ipBlock: {cidr: 192.0.2.0/24}}]
  ports: [{port: http}]
- from: [{namespaceSelector: {matchLabels: {team: b}}}]
egress: [{to: [{namespaceSelector: {}}], ports: [{port: http}]}]`)),
				want: wants{"tcp 80 /4": "-*>web +pods,out>web -web>*", "tcp 80 /6": "-*>web +pods>web -web>*",
					"tcp 81": "-*>web +ops>web -web>*"}},
			{do: do(without("temp"), pod("shop/web", labelled("app=web"))), want: wants{"tcp 80": ""},
				then: func(t *testing.T, w *harness) { w.awaitBare(t) }},
		}},
	}
}

// arrivalCases have pods that arrive while policies are there, and others that are deleted.
func arrivalCases() []testCase {
	const onlyDB = `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: db}}}]}]}`
	var late *lab.Pod
	arrive := func(node string, c lab.PodConfig) func(t *testing.T, w *harness) {
		return func(t *testing.T, w *harness) {
			late = w.addPod(t, node, "late", c)
			serve(t, late.Host)
		}
	}
	leave := func(t *testing.T, w *harness) { w.closePod(t, late) }
	return []testCase{
		{name: "S59_a_pod_that_a_policy_selects_is_closed_before_its_address_is_known", steps: []step{
			{about: "its object is there", do: do(pod("shop/late", on("node1"), labelled("app=late")),
				policy("shop/p", `
podSelector: {matchLabels: {app: late}}
policyTypes: [Ingress, Egress]
ingress: [{from: [{podSelector: {}}]}]`)),
				want: wants{"tcp 80": ""}, then: arrive("node1", lab.PodConfig{})},
			{about: "its network comes up", want: wants{"tcp 80": "-*>late -late>*", "udp 53": "-*>late -late>*",
				"icmp": "-*>late -late>*"}},
			{about: "its address is known", do: pod("shop/late", at("late"), phase(corev1.PodRunning)),
				want: wants{"tcp 80": "-*>late -late>* +shop>late"}},
			{about: "it is not selected any more", do: pod("shop/late", labelled("app=free")), want: wants{"tcp 80": ""}},
			{about: "it has finished", do: pod("shop/late", phase(corev1.PodSucceeded)), want: wants{"tcp 80": ""}, then: leave},
		}},
		{name: "S59_the_same_on_the_node_that_knows_its_range", steps: []step{
			{do: do(pod("shop/late", on("node2"), labelled("app=late")),
				policy("shop/p", `{podSelector: {matchLabels: {app: late}}}`)),
				want: wants{"tcp 80": ""}, then: arrive("node2", lab.PodConfig{})},
			{want: wants{"tcp 80": "-*>late"}},
			{about: "its object goes before it has an address", do: without("shop/late"), want: wants{"tcp 80": ""},
				then: leave},
		}},
		{name: "S59_an_isolated_pods_address_stays_closed_when_its_object_vanishes", steps: []step{
			{do: policy("shop/p", onlyDB), want: wants{"tcp 80": "-*>web +db>web"}},
			{do: without("shop/web"), want: wants{"tcp 80": "-*>web"}},
			{about: "until another pod has it", do: pod("ops/heir", at("web")), want: wants{"tcp 80": ""}},
		}},
		{name: "S60_a_new_pod_never_loses_a_packet", steps: []step{
			{about: "without policies", then: func(t *testing.T, w *harness) {
				arrive("node1", lab.PodConfig{})(t, w)
				defer leave(t, w)
				firstPackets(t, w)
			}},
			{about: "with policies for others that have their addresses", do: do(policy("shop/p", onlyDB),
				policy("ops/p", `{podSelector: {}, policyTypes: [Egress], egress: [{}]}`)), then: func(t *testing.T, w *harness) {
				for _, node := range []string{"node1", "node2"} {
					arrive(node, lab.PodConfig{})(t, w)
					firstPackets(t, w)
					leave(t, w)
				}
			}},
		}},
		{name: "S66_long_names_and_labels", steps: []step{
			{do: do(namespace(long(63), "kind="+long(63)), without("shop/web", "shop/db"),
				pod(long(63)+"/"+long(253), at("web"), labelled(long(253)+"/"+long(63)+"="+long(63))),
				pod(long(63)+"/"+long(252), at("db"), labelled(long(252)+"x/"+long(63)+"="+long(63))),
				policy(long(63)+"/"+long(253), `
podSelector: {matchLabels: {`+long(253)+"/"+long(63)+": "+long(63)+`}}
ingress: [{from: [{namespaceSelector: {matchLabels: {kind: `+long(63)+`}}, podSelector: {matchExpressions: [{key: `+
					long(252)+"x/"+long(63)+`, operator: Exists}]}}]}]`)), want: wants{"tcp 80": "-*>web +db>web"}},
		}},
	}
}

// long returns a name of n characters.
func long(n int) string {
	name := []byte(strings.Repeat("abcdefghi.", 30)[:n])
	if n <= 63 {
		name = []byte(strings.Repeat("a", n))
	}
	name[n-1] = 'z'
	return string(name)
}

// started gives a pod a start time, which is later than an unknown one.
func started(_ *harness, p *corev1.Pod) {
	later := metav1.NewTime(time.Now())
	p.Status.StartTime = &later
}

// oldFlow returns a packet of a UDP flow that always has the same ports.
func oldFlow(w *harness, to string, family int) lab.Packet {
	return lab.Packet{Proto: "udp", To: w.hosts[to].Addr(family), Port: 53, FromPort: 46000}
}

func noOldFlow(t *testing.T, w *harness) {
	t.Helper()
	families(func(family int) {
		w.probe(t, "db", oldFlow(w, "web", family), lab.Dropped)
		w.probe(t, "web", oldFlow(w, "mon", family), lab.Dropped)
		w.probe(t, "web", oldFlow(w, "api", family), lab.Dropped)
		virtual := serviceAddr(family, 3, 5353)
		w.probe(t, "db", lab.Packet{Proto: "udp", To: virtual.Addr(), Port: 5353, FromPort: 46001}, lab.Dropped)
	})
}

// firstPackets probes once: the first packets of a pod that has just arrived, of protocols that send nothing twice.
func firstPackets(t *testing.T, w *harness) {
	t.Helper()
	families(func(family int) {
		late := w.hosts["late"].Addr(family)
		w.probe(t, "late", lab.Packet{Proto: "icmp", To: w.hosts["out"].Addr(family)}, lab.Allowed)
		w.probe(t, "late", lab.Packet{Proto: "udp", To: w.hosts["api"].Addr(family), Port: 53}, lab.Allowed)
		for _, from := range []string{"out", "mon", "copy"} {
			w.probe(t, from, lab.Packet{Proto: "udp", To: late, Port: 53}, lab.Allowed)
		}
	})
}

// ofPolicies matches the names of chains that are there for policies alone.
var ofPolicies = regexp.MustCompile(`WEAVE-NPC-([IEAB]-|ADMIN|BASELINE)`)

// awaitBare waits until the nodes have only the sets and chains that they have without any policy.
func (w *harness) awaitBare(t *testing.T) {
	t.Helper()
	for _, n := range w.Nodes() {
		var left []string
		await.Within(t, timeout, func() bool {
			left = nil
			for _, s := range w.listSets(t, n) {
				if len(s.Name) == len("weave-")+25 {
					left = append(left, s.Name)
				}
			}
			for _, iptables := range []string{"iptables-", "ip6tables-"} {
				for line := range strings.Lines(run(t, n.Host, iptables+string(w.backend)+"-save", "-t", "filter")) {
					if ofPolicies.MatchString(line) {
						left = append(left, line)
					}
				}
			}
			return len(left) == 0
		}, func() string { return n.Name() + " still has " + strings.Join(left, ", ") })
	}
}
