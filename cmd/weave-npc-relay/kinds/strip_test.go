package kinds_test

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/kinds"
	"github.com/weave-npc/weave-npc/npc/source/convert"
)

// kind returns the kind of a name.
func kind(t *testing.T, name string) *kinds.Kind {
	t.Helper()
	for _, k := range kinds.All() {
		if k.Name == name {
			return k
		}
	}
	t.Fatalf("no kind %s", name)
	return nil
}

// filler fills objects at random, with values that mean something in the places where random ones would not.
func filler(seed int64) *randfill.Filler {
	pick := func(c randfill.Continue, texts ...string) string { return texts[c.Intn(len(texts))] }
	addr := func(c randfill.Continue) string {
		return pick(c, "10.0.0.1", "10.0.0.2", "fd00::1", "::ffff:10.0.0.3", "x", "")
	}
	return randfill.NewWithSeed(seed).NilChance(0.3).NumElements(0, 3).MaxDepth(12).Funcs(
		func(o *metav1.Time, c randfill.Continue) { o.Time = time.Unix(int64(c.Intn(1_000_000)), 0) },
		func(o *corev1.PodIP, c randfill.Continue) { o.IP = addr(c) },
		func(o *corev1.HostIP, c randfill.Continue) { o.IP = addr(c) },
		func(o *corev1.PodPhase, c randfill.Continue) {
			*o = corev1.PodPhase(pick(c, "", "Pending", "Running", "Succeeded", "Failed", "Unknown"))
		},
		func(o *corev1.PodCondition, c randfill.Continue) {
			o.Type = corev1.PodConditionType(pick(c, "Ready", "PodReadyToStartContainers", "Initialized"))
			o.Status = corev1.ConditionStatus(pick(c, "True", "False", "Unknown"))
		},
		func(o *corev1.ContainerPort, c randfill.Continue) {
			o.Name, o.ContainerPort, o.Protocol = pick(c, "", "http", "dns"), int32(c.Intn(70000)), corev1.Protocol(pick(c, "", "TCP", "UDP", "SCTP", "X"))
		},
		func(o *corev1.ContainerRestartPolicy, c randfill.Continue) {
			*o = corev1.ContainerRestartPolicy(pick(c, "Always", "Never"))
		},
		func(o *corev1.NodeAddress, c randfill.Continue) { o.Address = addr(c) },
		func(o *metav1.OwnerReference, c randfill.Continue) {
			yes := c.Bool()
			o.Kind, o.Name, o.Controller = pick(c, "ReplicaSet", "Node", "DaemonSet"), pick(c, "web-abc", "db"), &yes
		},
		func(o *metav1.ObjectMeta, c randfill.Continue) {
			c.FillNoCustom(o)
			if c.Bool() {
				metav1.SetMetaDataLabel(o, "pod-template-hash", "abc")
			}
			if c.Bool() {
				metav1.SetMetaDataAnnotation(o, "net.beta.kubernetes.io/network-policy", pick(c, "x", `{"ingress":{"isolation":"DefaultDeny"}}`))
			}
		},
	)
}

// TestStripKeepsEveryFact compares what agents make of random objects with what they make of the stripped ones, encoded
// and decoded.
func TestStripKeepsEveryFact(t *testing.T) {
	same := cmpopts.EquateComparable(netip.Addr{})
	codecs, err := kinds.NewCodecs()
	if err != nil {
		t.Fatal(err)
	}
	stripped := func(name string, o runtime.Object) runtime.Object {
		k := kind(t, name)
		text, err := runtime.Encode(codecs.Factory.LegacyCodec(k.Version), k.Strip(o))
		if err != nil {
			t.Fatal(err)
		}
		out, _, err := codecs.Factory.UniversalDeserializer().Decode(text, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for seed := range int64(2000) {
		f := filler(seed)
		var p corev1.Pod
		f.Fill(&p)
		if p.Name == "" {
			p.Name = "p"
		}
		want, ignored := convert.OfPod(&p)
		got, gotIgnored := convert.OfPod(stripped("pods", &p).(*corev1.Pod))
		if diff := cmp.Diff(want, got, same, cmpopts.EquateEmpty(), cmpopts.EquateApproxTime(0)) + cmp.Diff(ignored, gotIgnored); diff != "" {
			t.Fatalf("seed %d: pod (-want +got):\n%s", seed, diff)
		}
		var n corev1.Namespace
		f.Fill(&n)
		wantN, ignored := convert.OfNamespace(&n)
		gotN, gotIgnored := convert.OfNamespace(stripped("namespaces", &n).(*corev1.Namespace))
		if diff := cmp.Diff(wantN, gotN, cmpopts.EquateEmpty()) + cmp.Diff(ignored, gotIgnored); diff != "" {
			t.Fatalf("seed %d: namespace (-want +got):\n%s", seed, diff)
		}
		var node corev1.Node
		f.Fill(&node)
		if diff := cmp.Diff(convert.OfNode(&node), convert.OfNode(stripped("nodes", &node).(*corev1.Node)), same, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("seed %d: node (-want +got):\n%s", seed, diff)
		}
	}
}

// TestPoliciesKeepTheirSpecAndTheirAnnotationsForWeaveNPC, and nothing else but what identifies them.
func TestPoliciesKeepTheirSpecAndTheirAnnotationsForWeaveNPC(t *testing.T) {
	m := metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: "u", ResourceVersion: "5", CreationTimestamp: metav1.Unix(1, 0), Generation: 3,
		Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"weave-npc/staged": "1", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}}
	want := metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: "u", ResourceVersion: "5", CreationTimestamp: metav1.Unix(1, 0),
		Annotations: map[string]string{"weave-npc/staged": "1"}}
	spec := networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Ingress"}}
	got := kind(t, "networkpolicies").Strip(&networkingv1.NetworkPolicy{ObjectMeta: m, Spec: spec}).(*networkingv1.NetworkPolicy)
	if diff := cmp.Diff(&networkingv1.NetworkPolicy{ObjectMeta: want, Spec: spec}, got); diff != "" {
		t.Error(diff)
	}
	unknown := []byte(`{"tier":"Admin","egress":[{"to":[{"galaxies":{}}]}],"later":true}`)
	k := kind(t, "clusternetworkpolicies")
	read := struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     json.RawMessage   `json:"spec"`
	}{m, unknown}
	text, err := json.Marshal(read)
	if err != nil {
		t.Fatal(err)
	}
	stored := k.New()
	if err := json.Unmarshal(text, stored); err != nil {
		t.Fatal(err)
	}
	if text, err = json.Marshal(k.Strip(stored.DeepCopyObject())); err != nil {
		t.Fatal(err)
	}
	read.Metadata, read.Spec = metav1.ObjectMeta{}, nil
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, read.Metadata) + cmp.Diff(string(unknown), string(read.Spec)); diff != "" {
		t.Error(diff)
	}
	if kind(t, "pods").Strip(&corev1.Node{}) != nil {
		t.Error("a node is taken for a pod")
	}
}
