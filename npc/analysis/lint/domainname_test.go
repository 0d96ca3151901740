package lint_test

import (
	"slices"
	"testing"

	"github.com/weave-npc/weave-npc/npc/analysis/lint"
)

// TestPodsThatLearnNothing has policies with domain names whose pods may ask kube-dns, and some whose pods may not.
func TestPodsThatLearnNothing(t *testing.T) {
	const (
		names   = "{action: Accept, to: [{domainNames: [example.com]}]}"
		rest    = "{action: Deny, to: [{networks: [0.0.0.0/0, '::/0']}]}"
		rest4   = "{action: Deny, to: [{networks: [0.0.0.0/0]}]}"
		rest6   = "{action: Deny, to: [{networks: ['::/0']}]}"
		pods    = "{action: Deny, to: [{namespaces: {}}]}"
		kubeDNS = "{action: Accept, to: [{pods: {podSelector: {matchLabels: {k8s-app: kube-dns}}}}]}"
		system  = "{action: Accept, to: [{namespaces: {matchLabels: {kubernetes.io/metadata.name: kube-system}}}]}"
		ops     = "{action: Accept, to: [{namespaces: {matchLabels: {kubernetes.io/metadata.name: ops}}}]}"
		coreDNS = "{action: Accept, to: [{pods: {podSelector: {matchLabels: {k8s-app: coredns}}}}]}"
		server  = "{action: Accept, to: [{networks: [169.254.20.10/32]}], " +
			"protocols: [{udp: {destinationPort: {number: 53}}}]}"
		web = "{action: Accept, to: [{networks: [192.0.2.0/24]}], " +
			"protocols: [{tcp: {destinationPort: {number: 443}}}]}"
		pass     = "{action: Pass, to: [{namespaces: {}}]}"
		isolated = "shop/q {podSelector: {matchLabels: {app: frontend}}, policyTypes: [Egress], egress: "
	)
	const why = " to ask kube-dns at udp/53, from whose answers addresses of domainNames are learned"
	const both, one = "warning spec.egress: no rule allows 2 pods, such as shop/db," + why,
		"warning spec.egress: no rule allows pod shop/frontend" + why
	policy := func(rules string) string {
		return "p {tier: Admin, priority: 1, subject: {namespaces: {matchLabels: {team: red}}}, egress: [" + rules + "]}"
	}
	for _, c := range []struct {
		name     string
		policies []string
		want     string
	}{
		{"no names", []string{policy(rest)}, ""},
		{"nothing is denied", []string{policy(names)}, ""},
		{"the rest is denied", []string{policy(names + ", " + rest)}, both},
		{"the pods of kube-dns", []string{policy(kubeDNS + ", " + names + ", " + rest)}, ""},
		{"their namespace", []string{policy(system + ", " + names + ", " + rest)}, ""},
		{"another namespace", []string{policy(ops + ", " + names + ", " + rest)}, both},
		{"other pods", []string{policy(coreDNS + ", " + names + ", " + rest)}, both},
		{"an address", []string{policy(server + ", " + names + ", " + rest)}, ""},
		{"another port", []string{policy(web + ", " + names + ", " + rest)}, both},
		{"too late", []string{policy(names + ", " + rest + ", " + kubeDNS)}, both},
		{"the family that pods have", []string{policy(names + ", " + rest4)}, both},
		{"the other family", []string{policy(names + ", " + rest6)}, ""},
		{"addresses stay free", []string{policy(names + ", " + pods)}, ""},
		{"of all namespaces", []string{
			"p {tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [" + names + ", " + rest + "]}"},
			"warning spec.egress: no rule allows 3 pods, such as ops/grafana," + why},
		{"a NetworkPolicy for other traffic", []string{policy(names), isolated + "[{ports: [{port: 443}]}]}"}, one},
		{"a NetworkPolicy for DNS", []string{policy(names), isolated + "[{ports: [{port: 53, protocol: UDP}]}]}"}, ""},
		{"a NetworkPolicy for kube-dns", []string{policy(names), isolated + "[{to: [{namespaceSelector: {}, " +
			"podSelector: {matchLabels: {k8s-app: kube-dns}}}]}]}"}, ""},
		{"a NetworkPolicy for its namespace", []string{policy(names), isolated + "[{to: [{podSelector: {}}]}]}"}, one},
		{"passed", []string{policy(pass + ", " + names + ", " + rest)}, ""},
		{"another policy comes first", []string{policy(names + ", " + rest),
			"q {tier: Admin, priority: 0, subject: {namespaces: {}}, egress: [" + kubeDNS + "]}"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect(t, of("p", lintText(t, objects(t, c.policies...))), "egress-forgets-dns", c.want)
		})
	}
}

// TestNames has domain names that are probably not what the author wanted, and some that are.
func TestNames(t *testing.T) {
	const why = " is for Services: a ClusterIP is translated to a pod's address before policies are evaluated; " +
		"select pods by labels"
	const anybody = " stands for names that anybody may have, such as those below "
	for _, c := range []struct{ name, rule, want string }{
		{"DB.shop.svc.cluster.local.", "name-of-service", "db.shop.svc.cluster.local" + why},
		{"db.none.svc.cluster.local", "name-of-service", "db.none.svc.cluster.local" + why},
		{"db.none.svc", "name-of-service", "db.none.svc" + why},
		{"db.shop.svc.cluster.example", "name-of-service", "db.shop.svc.cluster.example" + why},
		{"db.none.svc.cluster.example", "name-of-service", ""},
		{"db-0.db.shop.svc.cluster.local", "name-of-service", ""},
		{"*.db.shop.svc.cluster.local", "name-of-service", ""},
		{"*.shop.svc.cluster.local", "name-of-service", "*.shop.svc.cluster.local" + why},
		{"*.svc.cluster.local", "name-of-service", "*.svc.cluster.local" + why},
		{"*.cluster.local", "name-of-service", "*.cluster.local" + why},
		{"svc.example.com", "name-of-service", ""},
		{"a.shop.example.com", "name-of-service", ""},
		{"*.co.uk", "wildcard-public-suffix", "*.co.uk" + anybody + "co.uk"},
		{"*.GitHub.io", "wildcard-public-suffix", "*.github.io" + anybody + "github.io"},
		{"*.s3.amazonaws.com", "wildcard-public-suffix", "*.s3.amazonaws.com" + anybody + "s3.amazonaws.com"},
		{"*.amazonaws.com", "wildcard-public-suffix", "*.amazonaws.com" + anybody + "s3.amazonaws.com"},
		{"*.eu-west-1.amazonaws.com", "wildcard-public-suffix",
			"*.eu-west-1.amazonaws.com" + anybody + "s3.eu-west-1.amazonaws.com"},
		{"*.core.windows.net", "wildcard-public-suffix", "*.core.windows.net" + anybody + "blob.core.windows.net"},
		{"*.windows.net", "wildcard-public-suffix", "*.windows.net" + anybody + "blob.core.windows.net"},
		{"*.run.app", "wildcard-public-suffix", "*.run.app" + anybody + "s3.run.app"},
		{"*.digitaloceanspaces.com", "wildcard-public-suffix",
			"*.digitaloceanspaces.com" + anybody + "s3.digitaloceanspaces.com"},
		{"github.io", "wildcard-public-suffix", ""},
		{"*.example.github.io", "wildcard-public-suffix", ""},
		{"*.example.co.uk", "wildcard-public-suffix", ""},
		{"*.registry.example", "wildcard-public-suffix", ""},
		{"*.corp.internal", "wildcard-public-suffix", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := lintText(t, objects(t, "p {tier: Admin, priority: 1, subject: {namespaces: {}}, "+
				"egress: [{action: Accept, to: [{networks: [192.0.2.0/24]}, {domainNames: [example.com, '"+c.name+"']}]}]}"))
			if c.want != "" {
				c.want = level(c.rule) + " spec.egress[0].to[1].domainNames[1]: " + c.want
			}
			expect(t, found, c.rule, c.want)
		})
	}
}

// level returns the level of a rule.
func level(rule string) string {
	i := slices.IndexFunc(lint.Rules(), func(r lint.RuleInfo) bool { return r.ID == rule })
	return string(lint.Rules()[i].Level)
}

// of returns the findings about the ClusterNetworkPolicy of a name.
func of(name string, found []lint.Finding) []lint.Finding {
	return slices.DeleteFunc(found, func(f lint.Finding) bool { return f.Namespace != "" || f.Name != name })
}
