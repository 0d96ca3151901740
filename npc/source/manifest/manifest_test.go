package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/npc/source/convert"
)

func TestS70_DefaultsAreFilledIn(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{
			name: "namespace",
			text: `{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {kubernetes.io/metadata.name: lie}}}`,
			want: `
apiVersion: v1
kind: Namespace
metadata:
  labels: {kubernetes.io/metadata.name: shop}
  name: shop
  uid: ` + string(stableUID(KindNamespace, "", "shop")),
		},
		{
			name: "pod without a status",
			text: `{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, ports: [{containerPort: 80}]}]}}`,
			want: `
apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: default
  uid: ` + string(stableUID(KindPod, "default", "web")) + `
spec: {containers: [{name: c, ports: [{containerPort: 80, protocol: TCP}]}]}
status: {}`,
		},
		{
			name: "pod with podIPs",
			text: `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, uid: mine, resourceVersion: "7"},
  status: {podIPs: [{ip: 10.0.0.1}, {ip: "fd00::1"}], hostIPs: [{ip: 192.0.2.1}]}}`,
			want: `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, uid: mine}
spec: {containers: null}
status: {phase: Running, podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}, {ip: "fd00::1"}], hostIP: 192.0.2.1, hostIPs: [{ip: 192.0.2.1}]}`,
		},
		{
			name: "pod with podIP that contradicts podIPs",
			text: `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, uid: mine},
  status: {podIP: 10.0.0.2, podIPs: [{ip: 10.0.0.1}, {ip: "fd00::1"}], hostIP: 192.0.2.1, phase: Failed}}`,
			want: `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, uid: mine}
spec: {containers: null}
status: {phase: Failed, podIP: 10.0.0.2, podIPs: [{ip: 10.0.0.2}], hostIP: 192.0.2.1, hostIPs: [{ip: 192.0.2.1}]}`,
		},
		{
			name: "policy without types",
			text: `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: p, uid: u}, spec: {podSelector: {},
  ingress: [{ports: [{port: 80}, {port: http, protocol: UDP}, {}]}]}}`,
			want: `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p, namespace: default, uid: u}
spec:
  podSelector: {}
  policyTypes: [Ingress]
  ingress: [{ports: [{port: 80, protocol: TCP}, {port: http, protocol: UDP}, {protocol: TCP}]}]`,
		},
		{
			name: "policy with egress rules without types",
			text: `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: p, uid: u}, spec: {egress: [{ports: [{port: 80}]}]}}`,
			want: `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p, namespace: default, uid: u}
spec:
  podSelector: {}
  policyTypes: [Ingress, Egress]
  egress: [{ports: [{port: 80, protocol: TCP}]}]`,
		},
		{
			name: "policy with types",
			text: `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: p, uid: u}, spec: {policyTypes: [Egress]}}`,
			want: `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p, namespace: default, uid: u}
spec: {podSelector: {}, policyTypes: [Egress]}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := Parse("m.yaml", []byte(test.text))
			if len(m.Problems) > 0 || len(m.Objects) != 1 {
				t.Fatalf("problems %v, objects %v", m.Problems, m.Objects)
			}
			var want any
			switch m.Objects[0].Value.(type) {
			case *corev1.Namespace:
				want = &corev1.Namespace{}
			case *corev1.Pod:
				want = &corev1.Pod{}
			case *networkingv1.NetworkPolicy:
				want = &networkingv1.NetworkPolicy{}
			}
			if err := yaml.UnmarshalStrict([]byte(test.want), want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, any(m.Objects[0].Value)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestManifestsThatAreAccepted(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       string // the objects and their lines
		ignored    int
	}{
		{"nothing", "", "", 0},
		{"comments and markers", "# c\n---\n---\n# d\n...\n", "", 0},
		{"null", "null\n---\n~\n", "", 0},
		{"byte order mark", "\uFEFF" + valid, "Namespace shop:1", 0},
		{"several documents", "---\n" + valid + "--- # second\n" + podText("") + "...\n%YAML 1.1\n---\n" +
			policyText("  {}\n"), "Namespace shop:2 Pod shop/web:6 NetworkPolicy shop/web:13", 0},
		{"document on the marker's line", "--- {apiVersion: v1, kind: Namespace, metadata: {name: a}}\n", "Namespace a:1", 0},
		{"marker in a block", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  annotations:\n    x: |\n      ---\n      ...\n",
			"Pod default/a:1", 0},
		{"list", "apiVersion: v1\nkind: List\nmetadata: {}\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: a}\n" +
			"- apiVersion: networking.k8s.io/v1\n  kind: NetworkPolicy\n  metadata: {name: b}\n- {apiVersion: v1, kind: Secret}\n",
			"Pod default/a:5 NetworkPolicy default/b:8", 1},
		{"typed lists", "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n- kind: Pod\n  apiVersion: v1\n" +
			"  metadata: {name: b}\n---\napiVersion: v1\nkind: NamespaceList\nitems: [{metadata: {name: c}}]\n---\n" +
			"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicyList\nitems: [{metadata: {name: d}}]\n",
			"Pod default/a:4 Pod default/b:5 Namespace c:11 NetworkPolicy default/d:15", 0},
		{"JSON", "{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"Namespace\",\n\t\"metadata\": {\"name\": \"a\"}\n}\n", "Namespace a:1", 0},
		{"kinds of others", "apiVersion: v1\nkind: Service\n---\napiVersion: projectcalico.org/v3\nkind: NetworkPolicy\n---\n" +
			"apiVersion: apps/v1\nkind: DeploymentList\nitems: 7\n", "", 3},
		{"kinds of no version", "apiVersion: unknown/\nkind: Other\n---\napiVersion: /\nkind: Other\n", "", 2},
		{"anchors and merges", "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: &l {a: b}}\n---\napiVersion: v1\n" +
			"kind: Pod\nmetadata: &m {name: c}\nspec: {nodeSelector: {<<: {a: b}}}\n", "Pod default/a:1 Pod default/c:5", 0},
		{"as the API stores them", policyText("  egress: [{to: [{ipBlock: {cidr: 010.0.0.5/24, except: [10.0.0.128/25]}}," +
			" {ipBlock: {cidr: \"::/0\", except: [\"8000::/1\"]}}]}]\n"), "NetworkPolicy shop/web:1", 0},
		{"with a status", policyText("  {}\n") + "status: {conditions: []}\n", "NetworkPolicy shop/web:1", 0},
		{"as kubectl prints them", podText("spec: {containers: [{name: c, image: i, resources: {limits: {cpu: 100m}}}]}\n" +
			"status: {conditions: [{type: Ready, status: \"True\", lastTransitionTime: null}], podIP: 10.0.0.1}\n"), "Pod shop/web:1", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := Parse("m.yaml", []byte(test.text))
			if len(m.Problems) > 0 {
				t.Fatalf("refused: %v", m.Problems)
			}
			var got []string
			for _, o := range m.Objects {
				got = append(got, fmt.Sprintf("%s:%d", o, o.Line))
			}
			if got := strings.Join(got, " "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if len(m.Ignored) != test.ignored {
				t.Errorf("ignored %v", m.Ignored)
			}
		})
	}
}

// TestManifestsAmongOtherFiles are read without what is no object and what is a template.
func TestManifestsAmongOtherFiles(t *testing.T) {
	const noKind, template = "apiVersion: v2\nname: chart\n", "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {{ .Values.x }}\n"
	for name, c := range map[string]struct{ text, want string }{
		"values of a chart":             {"a: 1\n", noObject},
		"a chart":                       {noKind, noObject},
		"a list":                        {"[1, 2]\n", noObject},
		"a template":                    {template, Template},
		"no apiVersion":                 {"kind: NetworkPolicy\nmetadata: {name: p}\n", "m.yaml:1: has no apiVersion or no kind"},
		"no YAML":                       {"a: {\n", "m.yaml:1: "},
		"an object that is no template": {"apiVersion: v1\nkind: Pod\nmetadata: {name: A}\n", "m.yaml:3: Pod default/A: metadata.name: "},
	} {
		t.Run(name, func(t *testing.T) {
			if alone := Parse("m.yaml", []byte(c.text)); len(alone.Problems) == 0 {
				t.Error("it is accepted as a manifest that is alone")
			}
			f := Options{Mixed: true}.Parse("m.yaml", []byte(c.text))
			var got []string
			for kind := range f.Ignored {
				got = append(got, kind)
			}
			for _, p := range f.Problems {
				got = append(got, p.Error())
			}
			if len(got) != 1 || !strings.HasPrefix(got[0], c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestKindsThatMayBeIntended are those of other policies, and those that look misspelt.
func TestKindsThatMayBeIntended(t *testing.T) {
	for kind, want := range map[string]string{
		"networking.k8s.io/v1 NetworkPolcy":                        "networking.k8s.io/v1 has no kind of this name; did you mean NetworkPolicy?",
		"networking.k8s.oi/v1 NetworkPolicy":                       "policies of this kind are not enforced; those that are",
		"cilium.io/v2 CiliumNetworkPolicy":                         "policies of this kind are not enforced; those that are",
		"policy.networking.k8s.io/v1alpha1 AdminNetworkPolicyList": "policies of this kind are not enforced; `kubectl npc convert` makes ClusterNetworkPolicies of them",
		"policy.networking.k8s.io/v1alpha2 ClusterNetworkPolcy":    "no policies of this kind are enforced; did you mean ClusterNetworkPolicy?",
		"v1 Pdo":                       "v1 has no kind of this name; did you mean Pod?",
		"v1 Service":                   "",
		"v1 ServiceList":               "",
		"argoproj.io/v1alpha1 Rollout": "",
		"security.istio.io/v1 AuthorizationPolicy": "",
	} {
		version, name, _ := strings.Cut(kind, " ")
		f := Parse("m.yaml", []byte("apiVersion: "+version+"\nkind: "+name+"\n"))
		if got := f.Ignored[kind]; got.Count != 1 || !strings.HasPrefix(got.Doubt, want) || want == "" && got.Doubt != "" {
			t.Errorf("%s: %+v, want %q", kind, got, want)
		}
	}
}

func FuzzParseManifest(f *testing.F) {
	f.Add([]byte(valid + "---\n" + podText("status: {podIPs: [{ip: 10.0.0.1}]}\n")))
	f.Add([]byte(policyText("  ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/9]}}], ports: [{port: 80}]}]\n")))
	f.Add([]byte(clusterPolicyText("  egress: [{action: Deny, to: [{networks: [10.0.0.0/8]}], protocols: [{tcp: {destinationPort: {number: 1}}}]}]\n")))
	f.Add([]byte("apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod, metadata: {name: a}}]\n"))
	f.Add([]byte("{\"a\": \"b\"}\n...\n%YAML 1.1\n--- &a\n? [*a]\n"))
	f.Add([]byte("a: !!binary x\nb: .nan\n<<: *c\n\"\x00\""))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := Parse("m.yaml", data)
		lines := 2
		for _, lineBreak := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} {
			lines += strings.Count(string(data), lineBreak)
		}
		for _, p := range m.Problems {
			if p.Line < 1 || p.Line > lines || p.Text == "" {
				t.Errorf("problem %+v in %d lines", p, lines)
			}
		}
		for _, o := range m.Objects {
			if o.Line < 1 || o.Line > lines || o.Name == "" || (o.Namespace == "") != (o.Kind == KindNamespace || o.Kind == KindClusterNetworkPolicy) {
				t.Errorf("object %+v in %d lines", o, lines)
			}
			switch given := o.Value.(type) {
			case *corev1.Namespace:
				convert.OfNamespace(given)
			case *corev1.Pod:
				if _, ignored := convert.OfPod(given); len(ignored) > 0 {
					t.Errorf("valid pod, ignored %q", ignored)
				}
			}
		}
	})
}

// TestProblemsAreOneLine each, whatever the names of files and the values in them are.
func TestProblemsAreOneLine(t *testing.T) {
	for _, p := range []Problem{{Path: "a\nb\x1b[2J", Text: "c\n::error::d"}, {Path: "a\nb\x1b[2J", Line: 7, Text: "c\r"}} {
		if text := p.Error(); strings.ContainsAny(text, "\n\r\x1b") || !strings.HasPrefix(text, `a\nb\u001b[2J:`) {
			t.Errorf("%q", text)
		}
	}
}
