package lint_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc/analysis/lint"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// TestServices are for clients outside, behind pods that policies isolate.
func TestServices(t *testing.T) {
	const closed = "warning no rule lets addresses outside reach tcp/5432 of pod shop/db, which is behind LoadBalancer shop/db"
	for name, c := range map[string]struct{ service, policy, want string }{
		"pods alone":          {"type: LoadBalancer", "ingress: [{from: [{podSelector: {}}]}]", closed},
		"nothing":             {"type: LoadBalancer", "", closed},
		"another port":        {"type: LoadBalancer", "ingress: [{ports: [{port: 80}]}]", closed},
		"a NodePort":          {"type: NodePort", "", strings.Replace(closed, "LoadBalancer", "NodePort", 1)},
		"for the cluster":     {"type: ClusterIP", "", ""},
		"its port":            {"type: LoadBalancer", "ingress: [{ports: [{port: 5432}]}]", ""},
		"its port's name":     {"type: LoadBalancer", "ingress: [{ports: [{port: postgres}]}]", ""},
		"a block":             {"type: LoadBalancer", "ingress: [{from: [{ipBlock: {cidr: 203.0.113.0/24}}]}]", ""},
		"egress is isolated":  {"type: LoadBalancer", "policyTypes: [Egress]", ""},
		"endpoints elsewhere": {"type: LoadBalancer, selector: null", "", ""},
	} {
		policy := strings.TrimSuffix("shop/p {podSelector: {matchLabels: {app: db}}, "+c.policy, ", ") + "}"
		text := objects(t, policy) + "---\napiVersion: v1\nkind: Service\nmetadata: {name: db, namespace: shop}\nspec: {" + c.service +
			", ports: [{port: 5432}]"
		if !strings.Contains(c.service, "selector") {
			text += ", selector: {app: db}"
		}
		t.Run(name, func(t *testing.T) { expect(t, lintText(t, text+"}\n"), "service-closed", c.want) })
	}
}

// entrances are an Ingress and an HTTPRoute that lead to ports of a Service.
func entrances(service, port string) string {
	return fmt.Sprintf(`---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: shop}
spec:
  rules:
  - http:
      paths: [{path: /, pathType: Prefix, backend: {service: {name: %[1]s, port: {number: %[2]s}}}}, {backend: {resource: {name: bucket}}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: ops}
spec: {rules: [{backendRefs: [{name: %[1]s, namespace: shop, port: %[2]s}, {kind: Bucket, name: bucket}]}]}
`, service, port)
}

// TestEntrances lead to pods that policies isolate. Their controllers are elsewhere.
func TestEntrances(t *testing.T) {
	const way = "no rule lets pods of other namespaces or addresses outside reach tcp/80 of pod shop/frontend, which %s leads to: " +
		"its controller cannot, unless it runs in the same namespace"
	blocked := "warning " + fmt.Sprintf(way, "HTTPRoute ops/web") + "\nwarning " + fmt.Sprintf(way, "Ingress shop/web")
	for _, c := range []struct{ name, policy, want string }{
		{"nothing", "", blocked},
		{"own_pods", "ingress: [{from: [{podSelector: {}}]}]", blocked},
		{"own_namespace_by_name", "ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}}]}]", blocked},
		{"another_port", "ingress: [{ports: [{port: 8080}]}]", blocked},
		{"the_port", "ingress: [{ports: [{port: http}]}]", ""},
		{"a_block", "ingress: [{from: [{ipBlock: {cidr: 203.0.113.0/24}}]}]", ""},
		{"another_namespace", "ingress: [{from: [{namespaceSelector: {matchLabels: {team: blue}}}]}]", ""},
		{"a_namespace_of_other_manifests", "ingress: [{from: [{namespaceSelector: {matchLabels: {team: edge}}}]}]", ""},
		{"any_namespace", "ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: nginx}}}]}]", ""},
		{"egress", "policyTypes: [Egress]", ""},
	} {
		policy := strings.TrimSuffix("shop/p {podSelector: {matchLabels: {app: frontend}}, "+c.policy, ", ") + "}"
		text := objects(t, policy) + frontend + entrances("frontend", "8080")
		t.Run(c.name, func(t *testing.T) {
			expect(t, lintText(t, text), "backend-blocked", c.want)
			expect(t, lintText(t, text), "backend-missing", "")
		})
	}
}

const frontend = `---
apiVersion: v1
kind: Service
metadata: {name: frontend, namespace: shop}
spec: {selector: {app: frontend}, ports: [{port: 8080, targetPort: http}]}
---
apiVersion: v1
kind: Service
metadata: {name: external, namespace: shop}
spec: {type: ExternalName, externalName: example.com}
`

// TestEntrancesOfACluster have pods alone that exist, and Services alone if these could be read.
func TestEntrancesOfACluster(t *testing.T) {
	const selector = "ingress: [{from: [{namespaceSelector: {matchLabels: {team: %s}}}]}]"
	for _, c := range []struct {
		name, service, peer, unreadable string
		rule                            string
		want                            int
	}{
		{"pods", "frontend", "blue", "", "backend-blocked", 0},
		{"no_pods", "frontend", "edge", "", "backend-blocked", 2},
		{"no_service", "none", "blue", "", "backend-missing", 2},
		{"services_that_may_be_there", "none", "blue", "services cannot be listed", "backend-missing", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, n := read(t, objects(t, "shop/p {podSelector: {matchLabels: {app: frontend}}, "+fmt.Sprintf(selector, c.peer)+"}")+
				frontend+entrances(c.service, "8080"))
			all := cluster.New()
			o.Deliver(all)
			o.Positions = nil
			if c.unreadable != "" {
				n.Unreadable = []string{c.unreadable}
			}
			found := slices.DeleteFunc(lint.Run(o, all.View(), n), func(f lint.Finding) bool { return f.Rule != c.rule })
			if len(found) != c.want {
				t.Errorf("%+v", found)
			}
			for _, f := range found {
				if f.Level != lint.Warning {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

// TestMissingBackends of entrances may be in other manifests, unless a port is missing.
func TestMissingBackends(t *testing.T) {
	for _, c := range []struct{ name, service, port, want string }{
		{"a_service", "frontent", "8080", "note there is no Service frontent in namespace shop; did you mean frontend?"},
		{"a_port", "frontend", "80", `warning Service shop/frontend has no port "tcp/80"; it has tcp/8080`},
		{"outside", "external", "80", ""},
		{"none", "frontend", "8080", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := c.want
			if want != "" {
				want += "\n" + want // of each entrance
			}
			found := lintText(t, objects(t)+frontend+entrances(c.service, c.port))
			expect(t, found, "backend-missing", want)
			for _, f := range found {
				if at := f.Namespace + "/" + f.Kind; f.Rule == "backend-missing" &&
					(f.File != "-" || at == "shop/Ingress" && f.Line != 54 || at == "ops/HTTPRoute" && f.Line != 62) {
					t.Errorf("%+v", f)
				}
			}
		})
	}
	if found := lintText(t, objects(t)+entrances("frontend", "8080")); len(found) > 0 {
		t.Errorf("without any Service: %+v", found)
	}
}

// TestBlocksOfServices have ClusterIPs, which no packet has when policies are evaluated, and no address of a pod.
func TestBlocksOfServices(t *testing.T) {
	const dns = `---
apiVersion: v1
kind: Service
metadata: {name: dns, namespace: kube-system}
spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10, "fd96::a"], selector: {k8s-app: dns}, ports: [{port: 53, protocol: UDP}]}
---
apiVersion: v1
kind: Service
metadata: {name: headless, namespace: shop}
spec: {clusterIP: None, selector: {app: db}, ports: [{port: 5432}]}
`
	const text = "%s has the ClusterIP of Service kube-system/dns and no pod's address: " +
		"policies see the address of the endpoint: select its pods by labels"
	for _, c := range []struct {
		name, block     string
		manifests, want bool
	}{
		{"the_address", "{cidr: 10.96.0.10/32}", true, true},
		{"the_address_in_IPv6", "{cidr: fd96::a/128}", true, true},
		{"another_one", "{cidr: 10.96.1.10/32}", true, false},
		{"the_range_of_manifests", "{cidr: 10.96.0.0/12}", true, false},
		{"the_range", "{cidr: 10.96.0.0/12}", false, true},
		{"the_range_without_the_address", "{cidr: 10.96.0.0/12, except: [10.96.0.0/24]}", false, false},
		{"a_range_with_pods", "{cidr: 10.0.0.0/8}", false, false},
		{"a_wide_range_without_pods", "{cidr: 'fd00::/8'}", false, false},
		{"everything", "{cidr: 0.0.0.0/0}", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, n := read(t, objects(t, "shop/p {podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: "+c.block+"}]}]}")+dns)
			all := cluster.New()
			o.Deliver(all)
			if !c.manifests {
				o.Positions = nil
			}
			want := ""
			if c.want {
				cidr := strings.TrimSuffix(strings.TrimPrefix(c.block, "{cidr: "), "}")
				want = "warning spec.egress[0].to[0].ipBlock: " + fmt.Sprintf(text, cidr)
			}
			expect(t, lint.Run(o, all.View(), n), "block-of-services", want)
		})
	}
}

// read reads manifests.
func read(t *testing.T, text string) (snapshot.Objects, snapshot.Network) {
	t.Helper()
	m, err := snapshot.Open(snapshot.StandardInput, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	o, err := m.WithWorkloads()
	if err != nil {
		t.Fatal(err)
	}
	n, err := m.Network()
	if err != nil {
		t.Fatal(err)
	}
	return o, n
}
