package policies

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

func TestS56_WithoutMulticast(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Base(), "--allow-mcast=false")
		e2e.Multicast(t, w, false)
		w.Expect(t, e2e.Wants{"tcp 80": ""})
	})
}

// TestHookNone leaves FORWARD to the CNI, which jumps to the chains of weave-npc and drops what returns from WEAVE-NPC.
func TestHookNone(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.New(t, backend, lab.Config{})
		w.JumpsOfCNI(t)
		w.Begin(t, e2e.Base(), "--forward-jump=false")
		for _, n := range w.Nodes() {
			if rules := e2e.Snapshot(t, n); strings.Contains(rules, "WEAVE-NPC-FORWARD") {
				t.Errorf("%s has a jump of weave-npc\n%s", n, rules)
			}
		}
		w.RunCases(t, cases(), `^S(2|11|44|52_a_pod|53|59_a|68)_`)
	})
}

func TestAllowActionReturnLetsTheRestOfForwardSpeak(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		for _, action := range []string{"RETURN", "ACCEPT"} {
			t.Run(action, func(t *testing.T) {
				w := e2e.New(t, backend, lab.Config{})
				for _, n := range w.Nodes() {
					for _, iptables := range []string{"iptables-", "ip6tables-"} {
						e2e.Run(t, n.Host, iptables+string(backend), "-w", "-A", "FORWARD", "-p", "tcp", "--dport",
							"81", "-j", "DROP")
					}
				}
				w.Begin(t, e2e.Rich(), "--allow-action", action)
				all := e2e.RichWants()
				if action == "RETURN" {
					all["tcp 81"] = "-*>*"
				} else {
					// On the node that a packet leaves, the rest of FORWARD speaks anyway.
					all["tcp 81"] += " -pods>out,nodes -web,db,mon>api,copy -api,copy>web,db,mon"
				}
				w.Expect(t, all)
			})
		}
	})
}

func TestGateClosedAndOpen(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		pending := e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: late}}, policyTypes: [Ingress, Egress]}`)
		t.Run("S59_closed", func(t *testing.T) {
			w := e2e.Start(t, backend, e2e.Base(), "--fail-closed", "always")
			w.Expect(t, e2e.Wants{"tcp 80": ""})
			p := w.AddPod(t, "node1", "late", lab.PodConfig{})
			q := w.AddPod(t, "node2", "late2", lab.PodConfig{})
			w.Expect(t, e2e.Wants{"tcp 80": "-*>late,late2 -late,late2>*"})
			o := w.Objects(e2e.Do(e2e.Base(), e2e.Pod("shop/late"), e2e.Pod("shop/late2")))
			w.Apply(t, o)
			w.Expect(t, e2e.Wants{"tcp 80": ""})
			w.ClosePod(t, p)
			w.ClosePod(t, q)
		})
		t.Run("open", func(t *testing.T) {
			w := e2e.Start(t, backend, e2e.Do(e2e.Base(), e2e.Pod("shop/late", e2e.On("node1"),
				e2e.Labelled("app=late")), pending), "--fail-closed", "never")
			w.AddPod(t, "node1", "late", lab.PodConfig{})
			w.Expect(t, e2e.Wants{"tcp 80": ""})
			o := w.Objects(e2e.Do(e2e.Base(), pending, e2e.Pod("shop/late", e2e.Labelled("app=late"))))
			w.Apply(t, o)
			w.Expect(t, e2e.Wants{"tcp 80": "-*>late -late>*"})
		})
	})
}

func TestS67_LegacyNetworkPolicies(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		const annotation = "net.beta.kubernetes.io/network-policy"
		annotate := func(name, value string) e2e.Change {
			return func(_ *e2e.Cluster, o *e2e.Objects) {
				o.Namespaces[name].Annotations = map[string]string{annotation: value}
			}
		}
		deny := annotate("shop", `{"ingress":{"isolation":"DefaultDeny"}}`)
		allowWeb := e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Ingress, Egress]
ingress: [{from: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: 80}]}]`)
		t.Run("with_the_flag", func(t *testing.T) {
			w := e2e.Start(t, backend, e2e.Base(), "--use-legacy-netpol")
			o := w.Objects(e2e.Base())
			for _, s := range []e2e.Step{
				{About: "policies isolate no pod", Do: allowWeb, Want: e2e.Wants{"tcp 80": "", "icmp": ""}},
				{About: "the annotation isolates the namespace", Do: deny,
					Want: e2e.Wants{"tcp 80": "-*>shop +db>web", "tcp 81": "-*>shop"}},
				{About: "another isolation isolates no pod", Do: annotate("shop", `{"ingress":{"isolation":"Other"}}`),
					Want: e2e.Wants{"tcp 80": ""}},
				{About: "without a policy", Do: e2e.Do(deny, e2e.Without("shop/p")),
					Want: e2e.Wants{"tcp 80": "-*>shop", "udp 53": "-*>shop"}},
				{About: "the annotation goes", Do: func(_ *e2e.Cluster,
					o *e2e.Objects) {
					o.Namespaces["shop"].Annotations = nil
				},
					Want: e2e.Wants{"tcp 80": ""}},
			} {
				s.Do(w, o)
				w.Apply(t, o)
				w.Expect(t, s.Want)
			}
		})
		t.Run("without_it_the_annotation_means_nothing", func(t *testing.T) {
			w := e2e.Start(t, backend, e2e.Do(e2e.Base(), deny))
			w.Expect(t, e2e.Wants{"tcp 80": "", "icmp": ""})
		})
	})
}

// TestOneFamily has nodes without the other family's addresses.
func TestOneFamily(t *testing.T) {
	t.Parallel()
	for _, config := range []struct {
		name string
		lab.Config
	}{{"IPv4", lab.Config{IPv4: true}}, {"IPv6", lab.Config{IPv6: true}}} {
		t.Run(config.name, func(t *testing.T) {
			t.Parallel()
			w := e2e.New(t, lab.NFT, config.Config)
			w.Begin(t, e2e.Rich())
			w.Expect(t, e2e.RichWants())
		})
	}
}

// TestManyNamespaces has more namespaces than a list of sets may hold.
func TestManyNamespaces(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Base(), "--max-list-size", "3")
		o := w.Objects(e2e.Do(e2e.Base(), e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: team, operator: Exists}]}}]}]`)))
		w.Apply(t, o)
		w.Expect(t, e2e.Wants{"tcp 80": "-*>web +pods>web"})
		load := w.Load(t, "mon>web udp 53", "api>web icmp", "-n2>web udp 53", "-n2>web icmp")
		e2e.Namespace("third", "team=c")(w, o)
		e2e.Namespace("fourth", "team=c")(w, o)
		w.Apply(t, o)
		w.Expect(t, e2e.Wants{"tcp 80": "-*>web +pods>web"})
		e2e.Pod("fourth/extra", e2e.At("out"), e2e.Only4)(w, o)
		w.Apply(t, o)
		w.Expect(t, e2e.Wants{"tcp 80 /4": "-*>web +pods,out>web", "tcp 80 /6": "-*>web +pods>web"})
		e2e.Without("fourth")(w, o)
		w.Apply(t, o)
		e2e.Without("third")(w, o)
		w.Apply(t, o)
		load.Stop(t)
		e2e.Namespace("ops", "")(w, o)
		w.Apply(t, o)
		w.Expect(t, e2e.Wants{"tcp 80": "-*>web +shop>web"})
	})
}

func TestS60_APodThatFinishedWithoutAnAddressClosesNothing(t *testing.T) {
	t.Parallel()
	w := e2e.Start(t, lab.NFT, e2e.Do(e2e.Base(), e2e.Pod("shop/late", e2e.On("node1"), e2e.Labelled("app=late")),
		e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: late}}, policyTypes: [Ingress, Egress]}`)))
	p := w.AddPod(t, "node1", "unknown", lab.PodConfig{})
	w.Expect(t, e2e.Wants{"tcp 80": "-*>unknown -unknown>*"})
	w.Daemons[0].AwaitLine(t, 0, "shop/late")
	o := w.Objects(e2e.Do(e2e.Base(), e2e.Pod("shop/late", e2e.On("node1"), e2e.Labelled("app=late"),
		e2e.Phase(corev1.PodFailed))))
	w.Apply(t, o)
	w.Expect(t, e2e.Wants{"tcp 80": ""})
	time.Sleep(e2e.Quiescence)
	w.ClosePod(t, p)
}
