package page

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/test/fixture"
)

func addPod(w *cluster.Cluster, namespace, name string, addr string, labels map[string]string) {
	w.SetPod(npc.Pod{Namespace: namespace, Name: name, Node: "node1", Labels: labels, Addrs: []netip.Addr{netip.MustParseAddr(addr)}})
}

// small has three pods. Only web reaches db.
func small(t *testing.T) *cluster.Cluster {
	w := cluster.New()
	w.SetNamespace(npc.Namespace{Name: "shop"})
	for i, name := range []string{"db", "mon", "web"} {
		addPod(w, "shop", name, fmt.Sprintf("10.32.1.%d", i+2), map[string]string{"app": name})
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
		w.SetNamespace(npc.Namespace{Name: g.namespace, Labels: map[string]string{"kubernetes.io/metadata.name": g.namespace, "team": g.namespace}})
		for i := range g.count {
			n++
			addPod(w, g.namespace, fmt.Sprintf("%s-%d", g.app, i), fmt.Sprintf("10.32.1.%d", n), map[string]string{"app": g.app})
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
		w.SetNamespace(npc.Namespace{Name: namespace, Labels: map[string]string{"kubernetes.io/metadata.name": namespace,
			"stage": []string{"dev", "test", "prod"}[s%3]}})
		for a, app := range []string{"web", "api", "worker", "cache", "db"} {
			for range each {
				n++
				w.SetPod(npc.Pod{Namespace: namespace, Name: fmt.Sprintf("%s-%08x-%05x", app, uint32(s*apps+a)*2654435761, n*7919),
					Node:   fmt.Sprintf("node%d", n%100),
					Labels: map[string]string{"app": app, "pod-template-hash": fmt.Sprintf("%08x", s*apps+a)},
					Ports:  []npc.NamedPort{{Name: "http", Protocol: 6, Port: 8080}},
					Addrs:  []netip.Addr{netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})}})
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
