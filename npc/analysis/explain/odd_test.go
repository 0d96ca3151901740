package explain_test

import (
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/refmodel"
)

// oddities draws specs with fields that the resource definition rejects, alongside valid ones. A definition of another
// version may accept them, and the typed decoding of an object drops unknown fields. All are JSON.
type oddities struct{ *rand.Rand }

func (o oddities) pick(from ...string) string { return from[o.IntN(len(from))] }

// some returns a list of at most two items.
func (o oddities) some(item func() string) string {
	switch o.IntN(8) {
	case 0:
		return o.pick("null", "[]")
	case 1:
		return "[" + item() + ", " + item() + "]"
	}
	return "[" + item() + "]"
}

// fields returns an object that mostly has one of some fields.
func (o oddities) fields(fields ...func() string) string {
	pick := func() string { return fields[o.IntN(len(fields))]() }
	switch o.IntN(15) {
	case 0:
		return "{}"
	case 1:
		return `{"unknown": 1}`
	case 2:
		return "{" + pick() + ", " + pick() + "}"
	}
	return "{" + pick() + "}"
}

func (o oddities) selector() string {
	switch o.IntN(8) {
	case 0:
		return `{"matchLabels": {` + o.pick(`"app": "no label;"`, `"": "x"`, `"a b": "x"`, `"app": ""`, `"app": "web", "team": "\n"`,
			`"a/b/c": "x"`) + `}}`
	case 1:
		return `{"matchExpressions": [{"key": ` + o.pick(`"app"`, `"app"`, `"app"`, `""`, `"a b"`) + `, "operator": ` +
			o.pick(`"In"`, `"NotIn"`, `"Exists"`, `"DoesNotExist"`, `"Is"`, `""`, `"in"`, `"Gt"`) + `, "values": ` +
			o.pick(`null`, `[]`, `["web"]`, `["web", "no label;"]`, `["no label;"]`, `[""]`, `["1"]`) + `}]}`
	case 2:
		return o.pick(`null`, `{"matchLabels": null}`, `{"matchExpressions": []}`)
	}
	return o.pick(`{}`, `{"matchLabels": {"app": "web"}}`, `{"matchLabels": {"team": "a"}}`,
		`{"matchExpressions": [{"key": "app", "operator": "Exists"}]}`)
}

func (o oddities) namespaces() string { return `"namespaces": ` + o.selector() }

func (o oddities) pods() string {
	return `"pods": ` + o.pick(`null`, `{}`, `{"podSelector": `+o.selector()+`}`,
		`{"namespaceSelector": `+o.selector()+`, "podSelector": `+o.selector()+`}`)
}

func (o oddities) peer() string {
	return o.fields(o.namespaces, o.pods,
		func() string { return `"nodes": ` + o.selector() },
		func() string { return `"domainNames": ` + o.pick(`null`, `[]`, `[""]`, `["example.com"]`) },
		func() string { return `"networks": ` + o.some(o.network) })
}

func (o oddities) network() string {
	return o.pick(`""`, `"10.0.0.0"`, `"10.0.0.0/33"`, `"010.0.0.0/8"`, `"10.0.0.0/08"`, `"10.0.0.0/+8"`, `"10.0.0/8"`,
		`"::ffff:10.0.0.0/104"`, `"::ffff:10.0.0.0/8"`,
		`"::ffff:0:0/96"`, `"fe80::%eth0/64"`, `" 10.0.0.0/8"`, `"10.0.0.0/8\n"`, `"10.32.1.2/8"`, `"10.32.1.3/24"`,
		`"0.0.0.0/0"`, `"1.2.3.4/0"`, `"::/0"`, `"FD32::/16"`, `"fd32:0:0:0:0:0:0:9/16"`, `"172.31.0.1/32"`, `"0.0.0.0/1"`,
		`"128.0.0.0/1"`, `"10.32.1.2/32"`)
}

func (o oddities) protocol() string {
	port := func(protocol string) func() string {
		number := func() string {
			return o.pick("-1", "0", "1", "80", "80", "81", "65535", "65536", "2147483647", "-2147483648", "65616")
		}
		return func() string {
			return `"` + protocol + `": ` + o.pick(`null`, `{}`, `{"destinationPort": null}`, `{"destinationPort": `+o.fields(
				func() string { return `"number": ` + number() },
				func() string {
					return `"range": ` + o.pick(`null`, `{}`, `{"start": `+number()+`, "end": `+number()+`}`)
				})+`}`)
		}
	}
	return o.fields(port("tcp"), port("udp"), port("sctp"), func() string {
		return `"destinationNamedPort": ` + o.pick(`""`, `"http"`, `"http"`, `"HTTP"`, `"80"`, `"h t"`, `"dns"`, `"\n"`, `"a-name-that-is-too-long"`)
	})
}

func (o oddities) spec() string {
	rule := func(peers string, peer func() string) func() string {
		return func() string {
			return `{"action": ` + o.pick(`"Accept"`, `"Accept"`, `"Deny"`, `"Deny"`, `"Pass"`, `""`, `"accept"`, `"Log"`, `null`) +
				`, "` + peers + `": ` + o.some(peer) + `, "protocols": ` + o.pick(o.some(o.protocol), "null") + `}`
		}
	}
	return `{"tier": ` + o.pick(`"Admin"`, `"Admin"`, `"Baseline"`, `"Baseline"`, `"admin"`, `""`, `null`) +
		`, "priority": ` + o.pick("-1", "0", "1", "1001", "2147483647") +
		`, "subject": ` + o.pick(`{"namespaces": {}}`, o.fields(o.namespaces, o.pods)) +
		`, "ingress": ` + o.some(rule("from", func() string { return o.fields(o.namespaces, o.pods) })) +
		`, "egress": ` + o.some(rule("to", o.peer)) + `}`
}

// oddHarness returns a cluster for the reference model, and the same one to explain.
func oddHarness(t *testing.T) (refmodel.State, harness) {
	on := refmodel.State{Namespaces: map[string]map[string]string{"a": {"team": "a"}, "b": {"team": "b"}}}
	for _, facts := range []string{"a/web node1 10.32.1.2 fd32:1::2 app=web http:80", "a/client node1 10.32.1.3 fd32:1::3",
		"b/web node2 10.32.2.2 fd32:2::2 app="} {
		on.Pods = append(on.Pods, fixture.ModelPod(fixture.Pod(facts)))
	}
	for _, facts := range []string{"node1 172.31.0.1 app=web", "node2 172.31.0.2"} {
		on.Nodes = append(on.Nodes, fixture.ModelNode(fixture.Node(facts)))
	}
	w := harness{t, cluster.New()}
	fixture.Deliver(on, w)
	for _, n := range on.Nodes {
		w.SetNodeAddrs(n.Name, n.Addrs)
	}
	return on, w
}

// TestS89_OddPoliciesAreEvaluatedAsTheAPISays draws policies that the API server should have rejected, and compares the
// verdicts on packets with those of a reference model that is written from the API's documentation alone.
func TestS89_OddPoliciesAreEvaluatedAsTheAPISays(t *testing.T) {
	const seed, tries = 89, 5000
	ends := []string{"10.32.1.2", "10.32.1.3", "10.32.2.2", "fd32:1::2", "fd32:2::2", "172.31.0.1", "172.31.0.2", "198.51.100.7"}
	draw := oddities{rand.New(rand.NewPCG(seed, seed))}
	on, w := oddHarness(t)
	asked, denied := 0, 0
	for range tries {
		specs := []string{draw.spec(), draw.spec()}
		on.ClusterPolicies = nil
		for i, text := range specs {
			o := &v1alpha2.ClusterNetworkPolicy{}
			if err := json.Unmarshal([]byte(text), &o.Spec); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			o.Name = strconv.Itoa(i)
			w.SetClusterPolicy(o)
			on.ClusterPolicies = append(on.ClusterPolicies, *o)
		}
		for range 8 {
			p := refmodel.Packet{Src: netip.MustParseAddr(draw.pick(ends...)), Dst: netip.MustParseAddr(draw.pick(ends...)),
				Protocol: corev1.Protocol(draw.pick("TCP", "UDP", "SCTP")), Port: []int32{1, 80, 81, 65535}[draw.IntN(4)]}
			if p.Src.Is4() != p.Dst.Is4() || p.Src == p.Dst {
				continue
			}
			out, in := on.Evaluate(refmodel.Everywhere, p)
			v := explain.Explain(w.View(), flow.Flow{From: flow.End{Addr: p.Src}, To: flow.End{Addr: p.Dst},
				Service: flow.Service{Protocol: npc.PortProtocol(p.Protocol), Port: uint16(p.Port)}})
			if v.Egress.Allowed != out || v.Ingress.Allowed != in {
				t.Fatalf("%v\nthe reference model lets it out: %t, in: %t\nthe policies are\n%s\nexplained is\n%s", p, out, in, strings.Join(specs, "\n"), v)
			}
			asked++
			if !v.Allowed {
				denied++
			}
		}
	}
	if denied < asked/10 || denied > asked*9/10 {
		t.Errorf("of %d packets %d were denied: that says little", asked, denied)
	}
}
