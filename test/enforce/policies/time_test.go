package policies

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// timeCases show what holds while things come and go.
func timeCases() []e2e.Case {
	const onlyDB = `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: db}}}]}]}`
	return []e2e.Case{
		{Name: "S27_an_address_that_moves_gets_the_new_pods_policies", Says: []string{e2e.Conflict}, Steps: []e2e.Step{
			{Do: e2e.Do(e2e.Pod("shop/web", e2e.UID("a")), e2e.Policy("shop/p", onlyDB), e2e.Policy("ops/p", `
podSelector: {matchLabels: {app: mon}}
ingress: [{from: [{namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: web}}}]}]`)),
				Want: e2e.Wants{"tcp 80": "-*>web,mon +db>web +web>mon"}},
			{About: "a flow of the old pod is established", Then: func(t *testing.T, w *e2e.Cluster) {
				e2e.EachFamily(func(family int) {
					w.Probe(t, "db", e2e.OldFlow(w, "web", family), lab.Allowed)
					w.Probe(t, "web", e2e.OldFlow(w, "mon", family), lab.Allowed)
					w.Probe(t, "web", e2e.OldFlow(w, "api", family), lab.Allowed)
					virtual := w.Service(t, "n1", family, 3, "udp", 5353, "web", 53)
					w.Probe(t, "db", lab.Packet{Proto: "udp", To: virtual.Addr(), Port: 5353, FromPort: 46001},
						lab.Allowed)
				})
			}},
			{About: "the old pod's object is still there when the new one claims the address", Do: e2e.Do(
				e2e.Pod("shop/next", e2e.At("web"), e2e.UID("z"), e2e.Started, e2e.Labelled("app=next")),
				e2e.Policy("shop/q", `{podSelector: {matchLabels: {app: next}}, policyTypes: [Ingress, Egress]}`)),
				Want: e2e.Wants{"tcp 80": "-*>web,mon -web>*"}, Then: noOldFlow},
			{About: "and goes late", Do: e2e.Without("shop/web"), Want: e2e.Wants{"tcp 80": "-*>web,mon -web>*"},
				Then: noOldFlow},
			{About: "and comes back", Do: e2e.Do(e2e.Without("shop/next"), e2e.Pod("shop/web", e2e.UID("zz"),
				e2e.Labelled("app=web"))),
				Want: e2e.Wants{"tcp 80": "-*>web,mon +db>web +web>mon"}},
		}},
		{Name: "S27_the_old_pod_goes_first", Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", onlyDB), Want: e2e.Wants{"tcp 80": "-*>web +db>web"},
				Then: func(t *testing.T, w *e2e.Cluster) {
					e2e.EachFamily(func(family int) { w.Probe(t, "db", e2e.OldFlow(w, "web", family), lab.Allowed) })
				}},
			{About: "finished", Do: e2e.Pod("shop/web", e2e.Phase(corev1.PodSucceeded)), Want: e2e.Wants{"tcp 80": ""}},
			{About: "and its address is another's",
				Do: e2e.Do(e2e.Pod("ops/next", e2e.At("web"), e2e.Labelled("app=next")),
					e2e.Policy("ops/q", `{podSelector: {matchLabels: {app: next}}}`)), Want: e2e.Wants{"tcp 80": "-*>web"},
				Then: func(t *testing.T, w *e2e.Cluster) {
					e2e.EachFamily(func(family int) { w.Probe(t, "db", e2e.OldFlow(w, "web", family), lab.Dropped) })
				}},
		}},
		{Name: "S27_a_remote_peers_address_moves", Says: []string{e2e.Conflict}, Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{podSelector: {matchLabels: {app: api}}}]}]`),
				Want: e2e.Wants{"tcp 80": "-*>web +api>web"}, Then: func(t *testing.T, w *e2e.Cluster) {
					e2e.EachFamily(func(family int) {
						w.Probe(t, "api", e2e.OldFlow(w, "web", family), lab.Allowed)
						w.Probe(t, "api", e2e.OldFlow(w, "db", family), lab.Allowed)
						virtual := w.Service(t, "n2", family, 3, "udp", 5353, "web", 53)
						w.Probe(t, "api", lab.Packet{Proto: "udp", To: virtual.Addr(), Port: 5353, FromPort: 46001},
							lab.Allowed)
					})
				}},
			{About: "to a pod without rights", Do: e2e.Do(e2e.Without("shop/api"), e2e.Pod("shop/next", e2e.At("api"),
				e2e.Labelled("app=next"))),
				Want: e2e.Wants{"tcp 80": "-*>web"}, Then: func(t *testing.T, w *e2e.Cluster) {
					e2e.EachFamily(func(family int) {
						w.Probe(t, "api", e2e.OldFlow(w, "web", family), lab.Dropped)
						w.Probe(t, "api", lab.Packet{Proto: "udp", To: e2e.ServiceAddr(family, 3, 5353).Addr(),
							Port: 5353, FromPort: 46001}, lab.Dropped)
					})
				}},
			{About: "and to one with them", Do: e2e.Do(e2e.Without("shop/next"), e2e.Pod("shop/again", e2e.At("api"),
				e2e.Labelled("app=api"))),
				Want: e2e.Wants{"tcp 80": "-*>web +api>web"}},
			{About: "of two that claim it the one that started last has it", Do: e2e.Pod("ops/liar", e2e.At("api"),
				e2e.Started),
				Want: e2e.Wants{"tcp 80": "-*>web"}},
		}},
		{Name: "S31_a_deleted_namespace_leaves_nothing", Steps: []e2e.Step{
			{About: "nothing yet", Then: func(t *testing.T, w *e2e.Cluster) { w.AwaitBare(t) }},
			{Do: e2e.Do(e2e.Namespace("temp", "kind=temp"), e2e.Pod("temp/web", e2e.At("web"), e2e.Labelled("app=web"),
				e2e.Port("http", 80, "")),
				e2e.Without("shop/web"), e2e.Policy("temp/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Ingress, Egress]
ingress:
- from: [{podSelector: {matchLabels: {app: db}}}, {namespaceSelector: {}}, {ipBlock: {cidr: 192.0.2.0/24}}]
  ports: [{port: http}]
- from: [{namespaceSelector: {matchLabels: {team: b}}}]
egress: [{to: [{namespaceSelector: {}}], ports: [{port: http}]}]`)),
				Want: e2e.Wants{"tcp 80 /4": "-*>web +pods,out>web -web>*", "tcp 80 /6": "-*>web +pods>web -web>*",
					"tcp 81": "-*>web +ops>web -web>*"}},
			{Do: e2e.Do(e2e.Without("temp"), e2e.Pod("shop/web", e2e.Labelled("app=web"))),
				Want: e2e.Wants{"tcp 80": ""},
				Then: func(t *testing.T, w *e2e.Cluster) { w.AwaitBare(t) }},
		}},
	}
}

// arrivalCases have pods that arrive while policies are there, and others that are deleted.
func arrivalCases() []e2e.Case {
	const onlyDB = `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: db}}}]}]}`
	var late *lab.Pod
	arrive := func(node string, c lab.PodConfig) func(t *testing.T, w *e2e.Cluster) {
		return func(t *testing.T, w *e2e.Cluster) {
			late = w.AddPod(t, node, "late", c)
			e2e.Serve(t, late.Host)
		}
	}
	leave := func(t *testing.T, w *e2e.Cluster) { w.ClosePod(t, late) }
	return []e2e.Case{
		{Name: "S59_a_pod_that_a_policy_selects_is_closed_before_its_address_is_known", Steps: []e2e.Step{
			{About: "its object is there", Do: e2e.Do(e2e.Pod("shop/late", e2e.On("node1"), e2e.Labelled("app=late")),
				e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: late}}
policyTypes: [Ingress, Egress]
ingress: [{from: [{podSelector: {}}]}]`)),
				Want: e2e.Wants{"tcp 80": ""}, Then: arrive("node1", lab.PodConfig{})},
			{About: "its network comes up", Want: e2e.Wants{"tcp 80": "-*>late -late>*", "udp 53": "-*>late -late>*",
				"icmp": "-*>late -late>*"}},
			{About: "its address is known", Do: e2e.Pod("shop/late", e2e.At("late"), e2e.Phase(corev1.PodRunning)),
				Want: e2e.Wants{"tcp 80": "-*>late -late>* +shop>late"}},
			{About: "it is not selected any more", Do: e2e.Pod("shop/late", e2e.Labelled("app=free")),
				Want: e2e.Wants{"tcp 80": ""}},
			{About: "it has finished", Do: e2e.Pod("shop/late", e2e.Phase(corev1.PodSucceeded)),
				Want: e2e.Wants{"tcp 80": ""}, Then: leave},
		}},
		{Name: "S59_the_same_on_the_node_that_knows_its_range", Steps: []e2e.Step{
			{Do: e2e.Do(e2e.Pod("shop/late", e2e.On("node2"), e2e.Labelled("app=late")),
				e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: late}}}`)),
				Want: e2e.Wants{"tcp 80": ""}, Then: arrive("node2", lab.PodConfig{})},
			{Want: e2e.Wants{"tcp 80": "-*>late"}},
			{About: "its object goes before it has an address", Do: e2e.Without("shop/late"),
				Want: e2e.Wants{"tcp 80": ""},
				Then: leave},
		}},
		{Name: "S59_an_isolated_pods_address_stays_closed_when_its_object_vanishes", Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", onlyDB), Want: e2e.Wants{"tcp 80": "-*>web +db>web"}},
			{Do: e2e.Without("shop/web"), Want: e2e.Wants{"tcp 80": "-*>web"}},
			{About: "until another pod has it", Do: e2e.Pod("ops/heir", e2e.At("web")), Want: e2e.Wants{"tcp 80": ""}},
		}},
		{Name: "S60_a_new_pod_never_loses_a_packet", Steps: []e2e.Step{
			{About: "without policies", Then: func(t *testing.T, w *e2e.Cluster) {
				arrive("node1", lab.PodConfig{})(t, w)
				defer leave(t, w)
				firstPackets(t, w)
			}},
			{About: "with policies for others that have their addresses", Do: e2e.Do(e2e.Policy("shop/p", onlyDB),
				e2e.Policy("ops/p", `{podSelector: {}, policyTypes: [Egress], egress: [{}]}`)),
				Then: func(t *testing.T, w *e2e.Cluster) {
					for _, node := range []string{"node1", "node2"} {
						arrive(node, lab.PodConfig{})(t, w)
						firstPackets(t, w)
						leave(t, w)
					}
				}},
		}},
		{Name: "S66_long_names_and_labels", Steps: []e2e.Step{
			{Do: e2e.Do(e2e.Namespace(long(63), "kind="+long(63)), e2e.Without("shop/web", "shop/db"),
				e2e.Pod(long(63)+"/"+long(253), e2e.At("web"), e2e.Labelled(long(253)+"/"+long(63)+"="+long(63))),
				e2e.Pod(long(63)+"/"+long(252), e2e.At("db"), e2e.Labelled(long(252)+"x/"+long(63)+"="+long(63))),
				e2e.Policy(long(63)+"/"+long(253), `
podSelector: {matchLabels: {`+long(253)+"/"+long(63)+": "+long(63)+`}}
ingress: [{from: [{namespaceSelector: {matchLabels: {kind: `+long(63)+`}}, podSelector: {matchExpressions: [{key: `+
					long(252)+"x/"+long(63)+`, operator: Exists}]}}]}]`)), Want: e2e.Wants{"tcp 80": "-*>web +db>web"}},
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

func noOldFlow(t *testing.T, w *e2e.Cluster) {
	t.Helper()
	e2e.EachFamily(func(family int) {
		w.Probe(t, "db", e2e.OldFlow(w, "web", family), lab.Dropped)
		w.Probe(t, "web", e2e.OldFlow(w, "mon", family), lab.Dropped)
		w.Probe(t, "web", e2e.OldFlow(w, "api", family), lab.Dropped)
		virtual := e2e.ServiceAddr(family, 3, 5353)
		w.Probe(t, "db", lab.Packet{Proto: "udp", To: virtual.Addr(), Port: 5353, FromPort: 46001}, lab.Dropped)
	})
}

// firstPackets probes once: the first packets of a pod that has just arrived, of protocols that send nothing twice.
func firstPackets(t *testing.T, w *e2e.Cluster) {
	t.Helper()
	e2e.EachFamily(func(family int) {
		late := w.Hosts["late"].Addr(family)
		w.Probe(t, "late", lab.Packet{Proto: "icmp", To: w.Hosts["out"].Addr(family)}, lab.Allowed)
		w.Probe(t, "late", lab.Packet{Proto: "udp", To: w.Hosts["api"].Addr(family), Port: 53}, lab.Allowed)
		for _, from := range []string{"out", "mon", "copy"} {
			w.Probe(t, from, lab.Packet{Proto: "udp", To: late, Port: 53}, lab.Allowed)
		}
	})
}
