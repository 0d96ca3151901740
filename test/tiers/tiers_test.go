package tiers_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"pgregory.net/rapid"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/refmodel"
	"github.com/weave-npc/weave-npc/test/tiers"
)

// universe is that of the cluster below: its networks overlap the addresses of pods and nodes.
func universe() tiers.Universe {
	return tiers.Universe{
		Names:       []string{"p", "q", "r"},
		Namespaces:  []map[string]string{nil, {"x": "1"}, {"x": "2"}},
		Pods:        []map[string]string{nil, {"y": "1"}, {"y": "2", "z": ""}},
		Nodes:       []map[string]string{nil, {"role": "edge"}},
		CIDRs:       []v1alpha2.CIDR{"10.32.0.0/16", "10.32.1.2/32", "0.0.0.0/0", "172.31.0.0/30", "fd32::/16", "::/0"},
		Ports:       []int32{1, 80, 81, 65535},
		PortNames:   []string{"http", "none"},
		DomainNames: []v1alpha2.DomainName{"*.example.com", "example.com"},
	}
}

// cluster has two pods in each of two namespaces, on two nodes.
func cluster() refmodel.State {
	w := refmodel.State{
		Namespaces: map[string]map[string]string{"a": {"x": "1"}, "b": {"x": "2"}},
		Nodes: []refmodel.Node{
			fixture.ModelNode(fixture.Node("node1 172.31.0.1 role=edge")),
			fixture.ModelNode(fixture.Node("node2 172.31.0.2")),
		},
	}
	for i := 1; i <= 4; i++ {
		facts := fmt.Sprintf("%c/%d node%[3]d 10.32.1.%[2]d y=%[3]d http:%[4]d", "ab"[i%2], i, 1+i/3, 79+i)
		w.Pods = append(w.Pods, fixture.ModelPod(fixture.Pod(facts)))
	}
	return w
}

// TestDrawnPoliciesAreAdmitted draws policies and validates them by the two definitions of the kind. At least one
// definition must admit each policy. All that policies can hold must occur.
func TestDrawnPoliciesAreAdmitted(t *testing.T) {
	standard, experimental := definition(t, "standard"), definition(t, "experimental")
	seen := map[string]int{}
	for i, p := range draw(1000) {
		holds := contents(p.Spec)
		for _, what := range holds {
			seen[what]++
		}
		text, err := json.Marshal(p.Spec)
		if err != nil {
			t.Fatal(err)
		}
		notStandard, notExperimental := refused(t, standard, text), refused(t, experimental, text)
		if slices.Contains(holds, "to nodes") || slices.Contains(holds, "to domainNames") {
			notStandard = "nodes or domain names, which are pruned"
		}
		if notExperimental == "" && namesPortOfNetworks(p.Spec) {
			notExperimental = "a named port with networks, nodes or domain names"
		}
		if notStandard != "" && notExperimental != "" {
			t.Fatalf("policy %d is refused as standard: %s\nas experimental: %s\n%s", i, notStandard, notExperimental, text)
		}
	}
	for _, what := range []string{"tier Admin", "tier Baseline", "priority 0", "priority 1000", "subject namespaces", "subject pods",
		"Accept", "Deny", "Pass", "ingress rule", "egress rule", "no rules", "from namespaces", "from pods", "to namespaces", "to pods", "to nodes", "to networks", "to domainNames",
		"named port", "number", "range", "no protocols", "TCP", "UDP", "SCTP", "a named port with networks"} {
		if seen[what] < 5 {
			t.Errorf("%s: %d times in 1,000 policies", what, seen[what])
		}
	}
}

// TestDrawnPoliciesAreEvaluated lets some policies at a time decide in both directions, on their own and together.
func TestDrawnPoliciesAreEvaluated(t *testing.T) {
	w, policies := cluster(), draw(1000)
	addrs := []netip.Addr{netip.MustParseAddr("198.51.100.7"), w.Nodes[0].Addrs[0], w.Nodes[1].Addrs[0]}
	for _, p := range w.Pods {
		addrs = append(addrs, p.Addrs...)
	}
	seen := map[string]int{}
	tied := 0
	for ; len(policies) >= 4; policies = policies[4:] {
		w.ClusterPolicies = nil
		for i, p := range policies[:4] {
			p.Name = fmt.Sprint(p.Name, i)
			w.ClusterPolicies = append(w.ClusterPolicies, *p)
			if i > 0 && p.Spec.Tier == policies[i-1].Spec.Tier && p.Spec.Priority == policies[i-1].Spec.Priority {
				tied++
			}
		}
		for _, src := range addrs {
			for _, dst := range addrs {
				for _, protocol := range []corev1.Protocol{"TCP", "UDP", "ICMP"} {
					out, in := w.Evaluate(refmodel.Everywhere, refmodel.Packet{Src: src, Dst: dst, Protocol: protocol, Port: 80})
					seen[fmt.Sprint("out ", out)]++
					seen[fmt.Sprint("in ", in)]++
				}
			}
		}
	}
	for _, verdict := range []string{"out true", "out false", "in true", "in false"} {
		if seen[verdict] < 1000 {
			t.Errorf("%s: %d times", verdict, seen[verdict])
		}
	}
	if tied < 60 {
		t.Errorf("only %d policies tie with the one before", tied)
	}
}

func draw(n int) []*v1alpha2.ClusterNetworkPolicy {
	g := rapid.Custom(func(t *rapid.T) *v1alpha2.ClusterNetworkPolicy { return tiers.Draw(t, universe()) })
	var all []*v1alpha2.ClusterNetworkPolicy
	for i := range n {
		all = append(all, g.Example(i))
	}
	return all
}

// contents names what a policy has.
func contents(s v1alpha2.ClusterNetworkPolicySpec) (all []string) {
	add := func(has bool, what string) {
		if has {
			all = append(all, what)
		}
	}
	add(true, "tier "+string(s.Tier))
	add(true, fmt.Sprint("priority ", s.Priority))
	add(s.Subject.Namespaces != nil, "subject namespaces")
	add(s.Subject.Pods != nil, "subject pods")
	add(len(s.Ingress)+len(s.Egress) == 0, "no rules")
	add(namesPortOfNetworks(s), "a named port with networks")
	protocols := func(all []v1alpha2.ClusterNetworkPolicyProtocol) {
		add(len(all) == 0, "no protocols")
		for _, p := range all {
			add(p.DestinationNamedPort != "", "named port")
			add(p.TCP != nil && p.TCP.DestinationPort.Number > 0, "number")
			add(p.TCP != nil && p.TCP.DestinationPort.Range != nil, "range")
			add(p.TCP != nil, "TCP")
			add(p.UDP != nil, "UDP")
			add(p.SCTP != nil, "SCTP")
		}
	}
	for _, r := range s.Ingress {
		add(true, "ingress rule")
		add(true, string(r.Action))
		protocols(r.Protocols)
		for _, p := range r.From {
			add(p.Namespaces != nil, "from namespaces")
			add(p.Pods != nil, "from pods")
		}
	}
	for _, r := range s.Egress {
		add(true, "egress rule")
		add(true, string(r.Action))
		protocols(r.Protocols)
		for _, p := range r.To {
			add(p.Namespaces != nil, "to namespaces")
			add(p.Pods != nil, "to pods")
			add(p.Nodes != nil, "to nodes")
			add(p.Networks != nil, "to networks")
			add(p.DomainNames != nil, "to domainNames")
		}
	}
	return all
}

// namesPortOfNetworks reports what the experimental definition refuses by an expression, which the schemas do not have.
func namesPortOfNetworks(s v1alpha2.ClusterNetworkPolicySpec) bool {
	for _, r := range s.Egress {
		for _, to := range r.To {
			for _, p := range r.Protocols {
				if to.Namespaces == nil && to.Pods == nil && p.DestinationNamedPort != "" {
					return true
				}
			}
		}
	}
	return false
}

// definition returns the schema of a policy's spec in one channel of the module that has the kind.
func definition(t *testing.T, channel string) *spec.Schema {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/network-policy-api").Output()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(strings.TrimSpace(string(out)), "config/crd", channel, "policy.networking.k8s.io_clusternetworkpolicies.yaml")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Name   string
				Schema struct{ OpenAPIV3Schema spec.Schema }
			}
		}
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	if len(crd.Spec.Versions) != 1 || crd.Spec.Versions[0].Name != v1alpha2.GroupVersion.Version {
		t.Fatalf("the definition does not have one version, %s", v1alpha2.GroupVersion.Version)
	}
	s := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	if len(s.Properties) == 0 {
		t.Fatal("the definition has no schema of the spec")
	}
	return &s
}

// refused returns why a schema refuses a spec, "" if it does not.
func refused(t *testing.T, schema *spec.Schema, text []byte) string {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	result := validate.NewSchemaValidator(schema, nil, "spec", strfmt.Default).Validate(value)
	if err := result.AsError(); err != nil {
		return err.Error()
	}
	return ""
}
