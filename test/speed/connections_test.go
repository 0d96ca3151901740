package speed

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// scenario is what policies a client and a server have. Policies differ by the label of their peer; with fewer peers
// than policies, several have the same.
type scenario struct {
	policies, peers int
	serverOnly      bool // the policies do not select the client
}

// scenarios returns the measured ones.
func scenarios() []scenario {
	return []scenario{{}, {policies: 1, peers: 1}, {policies: 100, peers: 100}, {policies: 1_000, peers: 50, serverOnly: true}}
}

// String returns the sizes as a part of a benchmark's name.
func (s scenario) String() string { return fmt.Sprintf("policies=%d/peers=%d", s.policies, s.peers) }

// manifests returns the objects of a node's cluster. Another node has a pod for each peer.
func (s scenario) manifests(b *testing.B, br *bridge) []byte {
	b.Helper()
	var out bytes.Buffer
	put := func(o any) {
		text, err := yaml.Marshal(o)
		if err != nil {
			b.Fatal(err)
		}
		fmt.Fprintf(&out, "---\n%s", text)
	}
	pod := func(facts string, args ...any) { put(fixture.PodObject(fixture.Pod(fmt.Sprintf(facts, args...)))) }
	name, allowed := br.node.Name(), s.peers/2
	put(fixture.NodeObject(npc.Node{Name: name}))
	put(fixture.NamespaceObject(fixture.Namespace("shop")))
	pod("shop/client %s %s app=client peer=%d", name, br.client.Addr4(), allowed)
	pod("shop/server %s %s app=server peer=%d", name, br.server.Addr4(), allowed)
	pod("shop/other %s %s app=other", name, br.other.Addr4())
	for i := range s.peers {
		pod("shop/peer-%d remote 10.64.0.%d peer=%d", i, i+1, i)
	}
	for i := range s.policies {
		put(s.policy(b, i))
	}
	return out.Bytes()
}

// policy returns policy i.
func (s scenario) policy(b *testing.B, i int) *networkingv1.NetworkPolicy {
	peer := fmt.Sprintf("[{podSelector: {matchLabels: {peer: %q}}}]", fmt.Sprint(i%s.peers))
	spec := fmt.Sprintf("{podSelector: {matchExpressions: [{key: app, operator: In, values: [client, server]}]}, "+
		"policyTypes: [Ingress, Egress], ingress: [{from: %s}], egress: [{to: %s}]}", peer, peer)
	if s.serverOnly {
		spec = fmt.Sprintf("{podSelector: {matchLabels: {app: server}}, ingress: [{from: %s}]}", peer)
	}
	p := fixture.Policy(b, fmt.Sprintf("shop/np-%d", i), spec)
	p.TypeMeta = metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}
	return p
}

// BenchmarkConnections opens connections between two pods of a bridge, and uses them: with a bridge alone, with
// br_netfilter and conntrack (the floor), and with weave-npc on each backend, in turns. A ratio is the median of those
// of all turns. "connections" and "throughput" are rates, the others times.
func BenchmarkConnections(b *testing.B) {
	binary, all := build(b), bridges(b)
	for _, s := range scenarios() {
		b.Run(s.String(), func(b *testing.B) {
			for _, br := range all {
				br.enforce(b, binary, s)
			}
			time.Sleep(quiescence)
			takeTurns(b, all, map[string][]float64{}) // neighbours are resolved
			measured := map[string][]float64{}        // unit -> value of each turn
			for b.Loop() {
				for range 100 {
					takeTurns(b, all, measured)
				}
			}
			for unit, values := range measured {
				b.ReportMetric(median(values), unit)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// takeTurns measures everything with each bridge, once, and adds the ratios to those of earlier turns. Another bridge
// is the first the next time.
func takeTurns(b *testing.B, all []*bridge, measured map[string][]float64) {
	b.Helper()
	for _, br := range all {
		if err := br.forget(); err != nil {
			b.Fatal(err)
		}
	}
	for _, m := range measurements() {
		values := map[string][]float64{} // kind -> what has the names of the measurement
		for _, br := range all {
			v, err := br.measure(m.measure)
			if err != nil {
				b.Fatal(err)
			}
			values[br.kind] = v
		}
		for i, name := range m.names {
			floor := values["floor"][i]
			measured["floor-"+name] = append(measured["floor-"+name], floor)
			quantity, _, _ := strings.Cut(strings.Replace(name, "/", "-", 1), "-")
			for kind, v := range values {
				if kind != "floor" {
					unit := kind + "-x/floor-" + quantity
					measured[unit] = append(measured[unit], v[i]/floor)
				}
			}
		}
	}
	first := all[0]
	copy(all, all[1:])
	all[len(all)-1] = first
}
