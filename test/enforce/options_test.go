package enforce

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/test/lab"
)

func TestS56_WithoutMulticast(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, base(), "--allow-mcast=false")
		multicast(t, w, false)
		w.expect(t, wants{"tcp 80": ""})
	})
}

// TestHookNone leaves FORWARD to the CNI, which jumps to the chains of weave-npc and drops what returns from WEAVE-NPC.
func TestHookNone(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := newHarness(t, backend, lab.Config{})
		w.jumpsOfCNI(t)
		w.begin(t, base(), "--forward-jump=false")
		for _, n := range w.Nodes() {
			if rules := snapshot(t, n); strings.Contains(rules, "WEAVE-NPC-FORWARD") {
				t.Errorf("%s has a jump of weave-npc\n%s", n, rules)
			}
		}
		w.runCases(t, `^S(2|8|11|36|44|52_a_pod|53|59_a|68)_`)
	})
}

// jumpsOfCNI makes what a CNI has that jumps to the chains of weave-npc itself.
func (w *harness) jumpsOfCNI(t *testing.T) {
	t.Helper()
	for _, n := range w.Nodes() {
		for _, iptables := range []string{"iptables-", "ip6tables-"} {
			for _, args := range []string{"-N WEAVE-NPC", "-N WEAVE-NPC-EGRESS", "-A FORWARD -i cni0 -j WEAVE-NPC-EGRESS",
				"-A FORWARD -o cni0 -j WEAVE-NPC", "-A FORWARD -o cni0 -j DROP", "-A INPUT -i cni0 -j WEAVE-NPC-EGRESS"} {
				run(t, n.Host, iptables+string(w.backend), append([]string{"-w"}, strings.Fields(args)...)...)
			}
		}
	}
}

func TestAllowActionReturnLetsTheRestOfForwardSpeak(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		for _, action := range []string{"RETURN", "ACCEPT"} {
			t.Run(action, func(t *testing.T) {
				w := newHarness(t, backend, lab.Config{})
				for _, n := range w.Nodes() {
					for _, iptables := range []string{"iptables-", "ip6tables-"} {
						run(t, n.Host, iptables+string(backend), "-w", "-A", "FORWARD", "-p", "tcp", "--dport", "81", "-j", "DROP")
					}
				}
				w.begin(t, rich(), "--allow-action", action)
				all := richWants()
				if action == "RETURN" {
					all["tcp 81"] = "-*>*"
				} else {
					// On the node that a packet leaves, the rest of FORWARD speaks anyway.
					all["tcp 81"] += " -pods>out,nodes -web,db,mon>api,copy -api,copy>web,db,mon"
				}
				w.expect(t, all)
			})
		}
	})
}

func TestGateClosedAndOpen(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		pending := policy("shop/p", `{podSelector: {matchLabels: {app: late}}, policyTypes: [Ingress, Egress]}`)
		t.Run("S59_closed", func(t *testing.T) {
			w := start(t, backend, base(), "--fail-closed", "always")
			w.expect(t, wants{"tcp 80": ""})
			p := w.addPod(t, "node1", "late", lab.PodConfig{})
			q := w.addPod(t, "node2", "late2", lab.PodConfig{})
			w.expect(t, wants{"tcp 80": "-*>late,late2 -late,late2>*"})
			o := w.objects(do(base(), pod("shop/late"), pod("shop/late2")))
			w.apply(t, o)
			w.expect(t, wants{"tcp 80": ""})
			w.closePod(t, p)
			w.closePod(t, q)
		})
		t.Run("open", func(t *testing.T) {
			w := start(t, backend, do(base(), pod("shop/late", on("node1"), labelled("app=late")), pending), "--fail-closed", "never")
			w.addPod(t, "node1", "late", lab.PodConfig{})
			w.expect(t, wants{"tcp 80": ""})
			o := w.objects(do(base(), pending, pod("shop/late", labelled("app=late"))))
			w.apply(t, o)
			w.expect(t, wants{"tcp 80": "-*>late -late>*"})
		})
	})
}

func TestS67_LegacyNetworkPolicies(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		const annotation = "net.beta.kubernetes.io/network-policy"
		annotate := func(name, value string) change {
			return func(_ *harness, o *objects) { o.namespaces[name].Annotations = map[string]string{annotation: value} }
		}
		deny := annotate("shop", `{"ingress":{"isolation":"DefaultDeny"}}`)
		allowWeb := policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Ingress, Egress]
ingress: [{from: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: 80}]}]`)
		t.Run("with_the_flag", func(t *testing.T) {
			w := start(t, backend, base(), "--use-legacy-netpol")
			o := w.objects(base())
			for _, s := range []step{
				{about: "policies isolate no pod", do: allowWeb, want: wants{"tcp 80": "", "icmp": ""}},
				{about: "the annotation isolates the namespace", do: deny,
					want: wants{"tcp 80": "-*>shop +db>web", "tcp 81": "-*>shop"}},
				{about: "another isolation isolates no pod", do: annotate("shop", `{"ingress":{"isolation":"Other"}}`),
					want: wants{"tcp 80": ""}},
				{about: "without a policy", do: do(deny, without("shop/p")), want: wants{"tcp 80": "-*>shop", "udp 53": "-*>shop"}},
				{about: "the annotation goes", do: func(_ *harness, o *objects) { o.namespaces["shop"].Annotations = nil },
					want: wants{"tcp 80": ""}},
			} {
				s.do(w, o)
				w.apply(t, o)
				w.expect(t, s.want)
			}
		})
		t.Run("without_it_the_annotation_means_nothing", func(t *testing.T) {
			w := start(t, backend, do(base(), deny))
			w.expect(t, wants{"tcp 80": "", "icmp": ""})
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
			w := newHarness(t, lab.NFT, config.Config)
			w.begin(t, rich())
			w.expect(t, richWants())
		})
	}
}

// TestManyNamespaces has more namespaces than a list of sets may hold.
func TestManyNamespaces(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, base(), "--max-list-size", "3")
		o := w.objects(do(base(), policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: team, operator: Exists}]}}]}]`)))
		w.apply(t, o)
		w.expect(t, wants{"tcp 80": "-*>web +pods>web"})
		load := w.load(t, "mon>web udp 53", "api>web icmp", "-n2>web udp 53", "-n2>web icmp")
		namespace("third", "team=c")(w, o)
		namespace("fourth", "team=c")(w, o)
		w.apply(t, o)
		w.expect(t, wants{"tcp 80": "-*>web +pods>web"})
		pod("fourth/extra", at("out"), only4)(w, o)
		w.apply(t, o)
		w.expect(t, wants{"tcp 80 /4": "-*>web +pods,out>web", "tcp 80 /6": "-*>web +pods>web"})
		without("fourth")(w, o)
		w.apply(t, o)
		without("third")(w, o)
		w.apply(t, o)
		load.stop(t)
		namespace("ops", "")(w, o)
		w.apply(t, o)
		w.expect(t, wants{"tcp 80": "-*>web +shop>web"})
	})
}

func TestS60_APodThatFinishedWithoutAnAddressClosesNothing(t *testing.T) {
	t.Parallel()
	w := start(t, lab.NFT, do(base(), pod("shop/late", on("node1"), labelled("app=late")),
		policy("shop/p", `{podSelector: {matchLabels: {app: late}}, policyTypes: [Ingress, Egress]}`)))
	p := w.addPod(t, "node1", "unknown", lab.PodConfig{})
	w.expect(t, wants{"tcp 80": "-*>unknown -unknown>*"})
	w.daemons[0].awaitLine(t, 0, "shop/late")
	o := w.objects(do(base(), pod("shop/late", on("node1"), labelled("app=late"), phase(corev1.PodFailed))))
	w.apply(t, o)
	w.expect(t, wants{"tcp 80": ""})
	time.Sleep(quiescence)
	w.closePod(t, p)
}
