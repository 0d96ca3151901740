package page

import (
	"fmt"
	"testing"

	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// small has three pods. Only web reaches db.
func small(t *testing.T) *cluster.Cluster {
	w := cluster.New()
	w.SetNamespace(fixture.Namespace("shop"))
	for i, name := range []string{"db", "mon", "web"} {
		w.SetPod(fixture.Pod(fmt.Sprintf("shop/%[1]s node1 10.32.1.%[2]d app=%[1]s", name, i+2)))
	}
	w.SetPolicy(fixture.Policy(t, "shop/db", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`))
	return w
}

// thirty is a cluster of three namespaces and 30 pods.
func thirty(t *testing.T) *cluster.Cluster {
	w := cluster.New()
	n := 0
	for _, g := range []struct {
		namespace, app string
		count          int
	}{{"shop", "web", 4}, {"shop", "cart", 4}, {"shop", "checkout", 3}, {"shop", "mail", 2}, {"data", "postgres", 3}, {"data", "redis", 3},
		{"data", "backup", 1}, {"ops", "prometheus", 2}, {"ops", "grafana", 1}, {"ops", "logs", 3}, {"ingress", "proxy", 4}} {
		w.SetNamespace(fixture.Namespace(g.namespace + " team=" + g.namespace))
		for i := range g.count {
			n++
			w.SetPod(fixture.Pod(fmt.Sprintf("%s/%[2]s-%d node1 10.32.1.%d app=%[2]s", g.namespace, g.app, i, n)))
		}
	}
	for name, spec := range map[string]string{
		"shop/default": `{podSelector: {}, policyTypes: [Ingress]}`,
		"shop/web": `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: ingress}}}],
			ports: [{port: 80}]}]}`,
		"shop/cart": `{podSelector: {matchExpressions: [{key: app, operator: In, values: [cart, checkout]}]},
			ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 80}]}]}`,
		"shop/mail": `{podSelector: {matchLabels: {app: mail}}, policyTypes: [Ingress, Egress],
			ingress: [{from: [{podSelector: {matchLabels: {app: checkout}}}]}],
			egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8]}}]}]}`,
		"data/postgres": `{podSelector: {matchLabels: {app: postgres}}, ingress: [{from: [{podSelector: {matchLabels: {app: backup}}},
			{namespaceSelector: {matchLabels: {team: shop}}, podSelector: {matchLabels: {app: checkout}}}]}]}`,
		"data/redis": `{podSelector: {matchLabels: {app: redis}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: shop}},
			podSelector: {matchLabels: {app: cart}}}]}]}`,
		"ops/in": `{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}`,
		"shop/monitoring": `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: ops}},
			podSelector: {matchLabels: {app: prometheus}}}]}]}`,
	} {
		w.SetPolicy(fixture.Policy(t, name, spec))
	}
	return w
}

// large is a cluster of pods in namespaces of five workloads each, with two policies for each workload.
func large(t testing.TB, pods, workloads int) *cluster.Cluster {
	w := cluster.New()
	const apps = 5
	each := pods / workloads
	n := 0
	for s := range workloads / apps {
		namespace := fmt.Sprintf("team-%03d", s)
		w.SetNamespace(fixture.Namespace(namespace + " stage=" + []string{"dev", "test", "prod"}[s%3]))
		for a, app := range []string{"web", "api", "worker", "cache", "db"} {
			for range each {
				n++
				name := fmt.Sprintf("%s-%08x-%05x", app, uint32(s*apps+a)*2654435761, n*7919)
				w.SetPod(fixture.Pod(fmt.Sprintf("%s/%s node%d 10.%d.%d.%d http:8080 app=%s pod-template-hash=%08x",
					namespace, name, n%100, n>>16, n>>8&255, n&255, app, s*apps+a)))
			}
			next := []string{"api", "db", "cache", "db", "worker"}[a]
			w.SetPolicy(fixture.Policy(t, namespace+"/"+app, fmt.Sprintf(`{podSelector: {matchLabels: {app: %s}}, ingress: [
				{from: [{podSelector: {}}], ports: [{port: %d}, {port: http}]},
				{from: [{namespaceSelector: {matchLabels: {stage: prod}}, podSelector: {matchLabels: {app: %s}}}], ports: [{port: 9090}]}]}`,
				app, 5000+a, next)))
			w.SetPolicy(fixture.Policy(t, namespace+"/"+app+"-out", fmt.Sprintf(`{podSelector: {matchLabels: {app: %s}}, policyTypes: [Egress], egress: [
				{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}}]},
				{to: [{namespaceSelector: {}}], ports: [{port: 53, protocol: UDP}, {port: 53}, {port: 9090}]},
				{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8]}}], ports: [{port: 443}]}]}`, app, namespace)))
		}
	}
	return w
}
