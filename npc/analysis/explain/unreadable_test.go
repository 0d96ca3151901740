package explain_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/refmodel"
	"github.com/weave-npc/weave-npc/test/scene"
)

// TestWhatIsKnownWithoutAllRightsHolds hides namespaces of random clusters: their labels, pods and policies, together
// or not. A verdict that is not unknown is the reference model's on the whole cluster, in each direction. Where nothing
// is hidden, none is unknown.
func TestWhatIsKnownWithoutAllRightsHolds(t *testing.T) {
	known, open := 0, 0
	check := func(rt *rapid.T) {
		s := scene.Draw(rt)
		v := s.Cluster(s.DrawHidden(rt)).View()
		var ends []flow.End
		for _, p := range s.Pods {
			for _, a := range p.Addrs {
				e := flow.End{Pod: p.Namespace + "/" + p.Name, Addr: a}
				if v.Pods[e.Pod] == nil { // a user who cannot read the pod sees its address only when asking about it
					e.Pod = ""
				}
				ends = append(ends, e)
			}
		}
		for _, a := range scene.Outside()[2:6] {
			ends = append(ends, flow.End{Addr: a})
		}
		service := rapid.SampledFrom(scene.Services()).Draw(rt, "service")
		for _, f := range append(flow.Between(ends, ends, service), byName(rt, s, v, service)...) {
			out, in := s.Evaluate(refmodel.Everywhere, evaluated(s, f))
			said := explain.Explain(v, f)
			for _, side := range []struct {
				explain.Side
				want bool
			}{{said.Egress, out}, {said.Ingress, in}} {
				if side.Unknown != "" {
					open++
				} else if known++; side.Allowed != side.want {
					rt.Fatalf("%s must be %t:\n%s", side.Direction, side.want, said)
				}
				if side.Unknown != "" && !v.Unreadable.Any() {
					rt.Fatalf("everything is read, and yet:\n%s", said)
				}
			}
			if said.Allowed && (said.Egress.Unknown+said.Ingress.Unknown != "" || said.Unknown) {
				rt.Fatalf("allowed, although something is unknown:\n%s", said)
			}
		}
	}
	for _, name := range []string{"a", "b", "c"} { // 300 clusters, unless a flag says another number
		t.Run(name, func(t *testing.T) { rapid.Check(t, check) })
	}
	if t.Logf("%d directions known, %d unknown", known, open); known < open/10 || open < known/100 {
		t.Error("one of them is too rare for a result")
	}
}

// byName returns flows between pods that can be read and pods that only the name is known of.
func byName(rt *rapid.T, s *scene.Scene, v *cluster.View, service flow.Service) (out []flow.Flow) {
	for _, p := range s.Pods {
		hidden, err := v.Find(p.Namespace + "/" + p.Name)
		if err != nil {
			rt.Fatal(err)
		}
		for _, q := range s.Pods {
			other, err := v.Find(q.Namespace + "/" + q.Name)
			if err != nil {
				rt.Fatal(err)
			}
			if !hidden[0].Addr.IsValid() && hidden[0] != other[0] {
				out = append(out, flow.Between(hidden, other, service)...)
				out = append(out, flow.Between(other, hidden, service)...)
			}
		}
	}
	return out
}

// evaluated returns the packet of a flow. If only the name of a pod is known, it has one of its addresses, of the other
// end's family if it has one.
func evaluated(s *scene.Scene, f flow.Flow) refmodel.Packet {
	from, to := f.From.Addr, f.To.Addr
	for range 2 {
		if !from.IsValid() {
			from = s.Pod(f.From.Pod).Addrs[0]
			for _, a := range s.Pod(f.From.Pod).Addrs {
				if to.IsValid() && a.Is4() == to.Is4() {
					from = a
				}
			}
		}
		if !to.IsValid() {
			to = s.Pod(f.To.Pod).Addrs[0]
			for _, a := range s.Pod(f.To.Pod).Addrs {
				if from.IsValid() && a.Is4() == from.Is4() {
					to = a
				}
			}
		}
	}
	return fixture.ModelPacket(from, to, f.Service)
}

// TestUnknownIsNeitherAllowedNorDenied shows what is said of a pod whose namespace cannot be read, or only in part.
func TestUnknownIsNeitherAllowedNorDenied(t *testing.T) {
	shop := map[string]bool{"shop": true}
	hidden := npc.Partly{Reason: "forbidden", Read: shop}
	for _, c := range []struct {
		name       string
		unreadable npc.Unreadable
		policy     string // of shop/web
		from, to   string
		want       string // in the text
		unknown    bool
	}{
		{"policies_of_the_other_side", npc.Unreadable{Policies: hidden}, "", "shop/web", "pay/db",
			"ingress to pay/db: unknown: network policies of namespace pay cannot be read: forbidden", true},
		{"the_known_side_denies", npc.Unreadable{Policies: hidden}, `{podSelector: {}, policyTypes: [Egress]}`, "shop/web", "pay/db", ": denied\n", false},
		{"no_pod_of_the_other_side", npc.Unreadable{Pods: hidden, Policies: hidden, Namespaces: npc.Partly{Reason: "forbidden"}}, "", "shop/web", "pay/other",
			"ingress to pay/other: unknown: pod pay/other cannot be read: forbidden", true},
		{"labels_may_match", npc.Unreadable{Namespaces: hidden},
			`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {team: pay}}}]}]}`, "shop/web", "pay/db",
			"not known: peer wants a namespace with team=pay, the labels of namespace pay could not be read", true},
		{"the_name_of_a_namespace_is_known", npc.Unreadable{Namespaces: npc.Partly{Reason: "forbidden"}},
			`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: pay}}}]}]}`,
			"shop/web", "pay/db", ": allowed\n", false},
		{"it_is_another_name", npc.Unreadable{Namespaces: npc.Partly{Reason: "forbidden"}},
			`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop, team: a}}}]}]}`,
			"shop/web", "pay/db", ": denied\n", false},
		{"an_address_may_be_a_pods", npc.Unreadable{Pods: hidden}, "", "shop/web", "10.32.9.9",
			"ingress to 10.32.9.9: unknown: 10.32.9.9 may be the address of a pod that cannot be read: forbidden", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := cluster.New()
			w.SetUnreadable(c.unreadable)
			w.SetPod(fixture.Pod("shop/web"))
			w.SetPod(fixture.Pod("pay/db"))
			if c.policy != "" {
				w.SetPolicy(fixture.Policy(t, "shop/p", c.policy))
			}
			v := explain.Explain(w.View(), fixture.Flows(t, w.View(), c.from, c.to, "tcp/80")[0])
			if !strings.Contains(v.String(), c.want) || v.Unknown != c.unknown {
				t.Errorf("unknown: %t, want %s in\n%s", v.Unknown, c.want, v)
			}
		})
	}
}

// TestRowsOfWhatCannotBeRead mark pods whose policies are not known, and policies whose pods are not.
func TestRowsOfWhatCannotBeRead(t *testing.T) {
	c := cluster.New()
	c.SetPod(fixture.Pod("shop/web"))
	c.SetPod(fixture.Pod("pay/db"))
	c.SetPolicy(fixture.Policy(t, "shop/p", `{podSelector: {}}`))
	c.SetPolicy(fixture.Policy(t, "ops/q", `{podSelector: {}}`))
	hidden := npc.Partly{Reason: "forbidden", Read: map[string]bool{"shop": true}}
	c.SetUnreadable(npc.Unreadable{Policies: hidden, Pods: hidden})
	for _, p := range explain.Pods(c.View(), "") {
		if unknown := p.Unknown != ""; unknown != (p.Pod == "pay/db") {
			t.Errorf("%s: %q", p.Pod, p.Unknown)
		}
	}
	for _, p := range explain.Policies(c.View(), "") {
		if p.Unreadable != (p.Policy == "ops/q") {
			t.Errorf("%s: others unreadable: %t", p.Policy, p.Unreadable)
		}
	}
	c.SetClusterPolicy(fixture.ClusterPolicy(t, "x", `{tier: Admin, priority: 1, subject: {namespaces: {matchLabels: {team: a}}}}`))
	c.SetUnreadable(npc.Unreadable{Namespaces: hidden})
	if rows := explain.Pods(c.View(), "pay"); rows[0].Unknown != "the labels of its namespace cannot be read" {
		t.Errorf("%+v", rows)
	}
}

// TestBrief says in a few words what decides.
func TestBrief(t *testing.T) {
	c := cluster.New()
	c.SetNamespace(fixture.Namespace("shop team=a"))
	c.SetPod(fixture.Pod("shop/web 10.32.1.2 fd32::2"))
	c.SetPod(fixture.Pod("shop/db 10.32.1.3 fd32::3 app=db"))
	c.SetPolicy(fixture.Policy(t, "shop/db", `{podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: 1}]}, {from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}`))
	c.SetPolicy(fixture.Policy(t, "shop/more", `{podSelector: {matchLabels: {app: db}}, policyTypes: [Egress]}`))
	c.SetPolicy(fixture.Policy(t, "shop/most", `{podSelector: {matchLabels: {app: db}}, policyTypes: [Egress]}`))
	c.SetClusterPolicy(fixture.ClusterPolicy(t, "x", `{tier: Admin, priority: 1, subject: {namespaces: {}}, ingress: [
		{name: ssh, action: Deny, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 22}}}]}]}`))
	for _, c2 := range []struct{ from, to, port, want string }{
		{"shop/web", "shop/db", "1", "ingress: policy shop/db/rule 1"},
		{"shop/web", "shop/db", "2", "IPv4: ingress: policy shop/db/rule 2; IPv6: ingress: no rule of policy shop/db"},
		{"shop/web", "shop/db", "22", "ingress: Admin policy x/rule 1 'ssh'"},
		{"shop/db", "shop/web", "2", "egress: no rule of policy shop/more and 1 more"},
		{"shop/web", "192.0.2.1", "2", "no policy isolates them"},
		{"shop/web", "shop/web", "2", "egress: a pod reaches itself; ingress: a pod reaches itself"},
	} {
		var verdicts []explain.Verdict
		for _, f := range fixture.Flows(t, c.View(), c2.from, c2.to, "tcp/"+c2.port) {
			verdicts = append(verdicts, explain.Explain(c.View(), f))
		}
		if c2.from == c2.to {
			verdicts = verdicts[:1]
		}
		if got := explain.Brief(verdicts); got != c2.want {
			t.Errorf("%s -> %s, %s: %s, want %s", c2.from, c2.to, c2.port, got, c2.want)
		}
	}
}
