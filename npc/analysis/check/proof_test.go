package check_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc/analysis/check"
	"github.com/weave-npc/weave-npc/npc/analysis/check/expectation"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// shop has a web shop whose database only the shop's pods reach, a namespace of developers, and one for monitoring.
func shop(t *testing.T) *cluster.Cluster {
	c := cluster.New()
	for _, facts := range []string{"shop team=a", "dev team=b", "monitoring team=ops"} {
		c.SetNamespace(fixture.Namespace(facts))
	}
	for _, facts := range []string{
		"shop/web-1 10.32.0.2 app=web tier=front Deployment/web",
		"shop/db-0 10.32.0.3 app=db sql:5432",
		"dev/tool 10.32.0.4 app=tool",
		"monitoring/prom 10.32.0.5 app=prom",
		"monitoring/agent node1@172.31.0.1 HostNetwork",
	} {
		c.SetPod(fixture.Pod(facts))
	}
	c.SetPolicy(fixture.Policy(t, "shop/db", `{podSelector: {matchLabels: {app: db}}, ingress: [
		{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: sql}]},
		{from: [{namespaceSelector: {matchLabels: {team: ops}}}], ports: [{port: 9187}]}]}`))
	c.SetPolicy(fixture.Policy(t, "dev/egress", `{podSelector: {matchExpressions: [{key: open, operator: DoesNotExist}]}, policyTypes: [Egress]}`))
	return c
}

// check checks one expectation, which may be in a document with further fields.
func checkOf(t *testing.T, c *cluster.Cluster, item, fields string) (check.Result, expectation.Expectation) {
	t.Helper()
	files, problems := expectation.Parse("x.yaml", []byte("apiVersion: weave-npc/v1alpha1\nkind: Expectations\n"+fields+"\nexpectations:\n- "+item+"\n"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	f := files[0]
	return check.New(c.View(), check.Assumptions{PodCIDRs: f.PodCIDRs, NewNamespaces: f.NewNamespaces}, f.Expectations).Check(f.Expectations[0]),
		f.Expectations[0]
}

// TestDomainNames shows which names are reached, and that they are among the addresses of the internet.
func TestDomainNames(t *testing.T) {
	c := shop(t)
	c.SetClusterPolicy(fixture.ClusterPolicy(t, "names", `{tier: Admin, priority: 1, subject: {namespaces: {matchLabels: {team: b}}}, egress: [
		{action: Accept, to: [{domainNames: [api.example.com, "*.x.org"]}], protocols: [{tcp: {destinationPort: {number: 443}}}]}, {action: Deny, to: [{networks: [0.0.0.0/0]}]}]}`))
	for item, want := range map[string]string{
		"dev/tool reaches api.example.com on 443":                       "",
		"dev/tool reaches API.example.com. on 443":                      "",
		"dev/tool reaches api.example.com":                              "",
		"{from: dev/tool, reaches: {domainName: a.x.org}, on: tcp/443}": "",
		"dev/tool reaches *.x.org on 443":                               "",
		"dev/tool never reaches x.org":                                  "",
		"dev/tool never reaches www.example.com":                        "",
		"dev/* never reaches 192.0.2.1":                                 "",
		"dev/tool reaches api.example.com on 80":                        "dev/tool (10.32.0.4) does not reach api.example.com (as if at 2.0.0.2) on tcp/80",
		"dev/tool never reaches the internet":                           "dev/tool (10.32.0.4) reaches *.x.org (as if at 2.0.0.1) on tcp/443",
		"dev/* never reaches api.example.com on 443":                    "dev/tool (10.32.0.4) reaches api.example.com (as if at 2.0.0.2) on tcp/443",
		"only shop/* reaches api.example.com on 443":                    "dev/tool (10.32.0.4) reaches api.example.com (as if at 2.0.0.2) on tcp/443",
		"only dev/* reaches evil.example.com":                           "monitoring/prom (10.32.0.5) reaches evil.example.com (as if at 2.0.0.3) on tcp/1",
	} {
		if got, _ := checkOf(t, c, item, ""); got.Why != want {
			t.Errorf("%s: %q, want %q", item, got.Why, want)
		}
	}
}

func TestCheck(t *testing.T) {
	const newNamespaces = "newNamespaces: true"
	holds := ""
	for name, c := range map[string]struct{ item, fields, want, policy string }{
		"a port's name":              {"shop/web reaches shop/db-0 on sql", "", holds, ""},
		"a number":                   {"shop/web reaches shop/db-0 on 5432", "", holds, ""},
		"a port that is denied":      {"shop/web reaches shop/db-0 on 80", "", "shop/web-1 (10.32.0.2) does not reach shop/db-0 (10.32.0.3) on tcp/80", ""},
		"some port":                  {"shop/web reaches shop/db-0", "", holds, ""},
		"no port":                    {"dev/tool reaches shop/db-0", "", "dev/tool (10.32.0.4) does not reach shop/db-0 (10.32.0.3) on any port", ""},
		"one of a range is denied":   {"shop/web reaches shop/db-0 on 5432-5433", "", "shop/web-1 (10.32.0.2) does not reach shop/db-0 (10.32.0.3) on tcp/5433", ""},
		"an existing pod":            {"shop/web never reaches shop/db-0", "", "shop/web-1 (10.32.0.2) reaches shop/db-0 (10.32.0.3) on tcp/5432", ""},
		"only, by labels":            {"only shop/web reaches shop/db-0 on sql", "", holds, ""},
		"only, but another port":     {"only shop/web reaches shop/db-0", "", "monitoring/prom (10.32.0.5) reaches shop/db-0 (10.32.0.3) on tcp/9187", ""},
		"none outside":               {"none outside monitoring reaches shop/db-0 on 9187", "", holds, ""},
		"outside a new namespace":    {"none outside monitoring reaches shop/db-0 on 9187", newNamespaces, "a pod that could be in a new namespace without labels reaches shop/db-0 (10.32.0.3) on tcp/9187", ""},
		"replicas of another kind":   {"none outside shop/web reaches shop/db-0 on sql", "", "a pod that could be in shop with role=batch reaches shop/db-0 (10.32.0.3) on tcp/5432", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {role: batch}}}]}]}`},
		"pods that could be there":   {"dev/* never reaches shop/web", "", "a pod that could be in dev with open=other reaches shop/web-1 (10.32.0.2) on tcp/1", ""},
		"pods of a workload":         {"dev/tool never reaches shop/web", "", holds, ""},
		"always, with other pods":    {"pods in monitoring always reaches shop/db-0 on 9187", "", holds, ""},
		"always, but not by labels":  {"pods in shop always reaches shop/db-0 on sql", "", "a pod that could be in shop without labels does not reach shop/db-0 (10.32.0.3) on tcp/5432", ""},
		"always, a new pod does not": {"pods(app=web) in shop always reaches pods(app=db) in shop on 5432", "", "shop/web-1 (10.32.0.2) does not reach a pod that could be in shop with app=db on tcp/5432", ""},
		"a kind":                     {"shop/deploy/web reaches shop/pod/db-0 on sql", "", holds, ""},
		"another kind":               {"shop/job/web reaches shop/db-0 on sql", "", "there is no pod and no workload shop/job/web; did you mean shop/Deployment/web?", ""},
		"a kind without a namespace": {"deploy/web reaches shop/db-0 on sql", "", "there is no namespace deploy; for a Deployment, write NAMESPACE/deploy/web", ""},
		"addresses":                  {"the internet never reaches shop/db-0", "", holds, ""},
		"an address":                 {"shop/db-0 reaches 192.0.2.1 on 443", "", holds, ""},
		"an address that is denied":  {"dev/tool reaches 192.0.2.1", "", "dev/tool (10.32.0.4) does not reach 192.0.2.1 on any port", ""},
		"a node":                     {"172.31.0.1 never reaches shop/web", "", "172.31.0.1 is an address of a node: expectations are about pods and about addresses of no node", ""},
		"nodes are left out":         {"none reaches shop/db-0 on 22", "", holds, ""},
		"a range with pods":          {"10.0.0.0/8 reaches the internet", "", "dev/tool (10.32.0.4) does not reach 1.0.0.2 on any port", ""},
		"only addresses":             {"192.0.2.1 reaches the internet", "", "it is about no pod, and only what pods send and get is for policies to decide", ""},
		"no namespace":               {"dev reaches shp", "", "there is no namespace shp; did you mean shop?", ""},
		"no workload":                {"shop/wep reaches shop/db-0", "", "there is no pod and no workload shop/wep; did you mean web?", ""},
		"no pod with labels":         {"pods(app=wbe) in shop never reaches dev", "", "pods(app=wbe) in shop matches no pod", ""},
		"no pod, and that is right":  {"{expect: pods(app=wbe) in shop never reaches dev on 80, allowEmpty: true}", "", "a pod that could be in shop with app=wbe reaches dev/tool (10.32.0.4) on tcp/80", ""},
		"outside none":               {"none outside monitorng reaches shop", "", "there is no namespace monitorng; did you mean monitoring?", ""},
		"only on its node's network": {"monitoring/agent never reaches shop", "", "monitoring/agent has only pods on the network of their nodes, which policies do not distinguish from the nodes", ""},
		"no port of the name":        {"everyone never reaches shop/db-0 on sqk", "", "no pod has a tcp port of the name sqk; did you mean sql?", ""},
		"a port of udp":              {"everyone never reaches shop/db-0 on udp/sql", "", "no pod has a udp port of the name sql; did you mean tcp/sql?", ""},
		"another's port":             {"dev/tool reaches shop/web on sql", "", "shop/web-1 (10.32.0.2) has no tcp port of the name sql", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := shop(t)
			if c.policy != "" {
				ns := "dev"
				if strings.Contains(c.item, "outside shop") {
					ns = "shop"
				}
				w.SetPolicy(fixture.Policy(t, ns+"/more", c.policy))
				if ns == "dev" {
					w.DeletePolicy("dev", "egress", "")
				}
			}
			r, _ := checkOf(t, w, c.item, c.fields)
			if got := r.Why; got != c.want && (c.want == "" || !strings.HasPrefix(got, c.want)) || (r.Outcome == check.Holds) != (c.want == "") {
				t.Errorf("%d %s\nnot %s", r.Outcome, got, c.want)
			}
		})
	}
}

// TestAddressesOfPodsThatCouldBeThere shows where they may be.
func TestAddressesOfPodsThatCouldBeThere(t *testing.T) {
	for fields, want := range map[string]string{
		"":                                 "",
		"podCIDRs: [10.32.0.0/16]":         "",
		"podCIDRs: [10.0.0.0/8]":           "another replica of dev/tool",
		"podCIDRs: [10.33.0.0/30]":         "another replica of dev/tool",
		"podCIDRs: [10.33.0.4/32, fd::/8]": "another replica of dev/tool",
	} {
		c := shop(t)
		c.SetPolicy(fixture.Policy(t, "shop/vpc", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.33.0.0/16}}]}]}`))
		c.DeletePolicy("dev", "egress", "")
		r, _ := checkOf(t, c, "dev/tool never reaches shop/web", fields)
		if !strings.HasPrefix(r.Why, want) || (r.Outcome == check.Holds) != (want == "") {
			t.Errorf("%s: %s", fields, r.Why)
		}
		if want == "" {
			continue
		}
		text, err := r.Counterexample.Manifests()
		if err != nil || !strings.Contains(text, "# as another replica of dev/tool\n") ||
			strings.Contains(text, "# with an address in 10.33.0.0/16\n") != (fields == "podCIDRs: [10.0.0.0/8]") {
			t.Errorf("%s: %v\n%s", fields, err, text)
		}
	}
}

// TestWhatIsTooMuchIsNotProved shows that an expectation does not hold because there is too much to check.
func TestWhatIsTooMuchIsNotProved(t *testing.T) {
	c := shop(t)
	for i := range 16 {
		c.SetPolicy(fixture.Policy(t, fmt.Sprintf("shop/p%d", i), fmt.Sprintf(`{podSelector: {matchLabels: {key%d: x}}}`, i)))
	}
	r, _ := checkOf(t, c, "monitoring/prom never reaches pods in shop on 22", "")
	if r.Outcome != check.Broken { // existing pods are checked first
		t.Errorf("%d: %s", r.Outcome, r.Why)
	}
	c.SetPolicy(fixture.Policy(t, "dev/egress", `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {team: x}}}]}]}`))
	if r, _ = checkOf(t, c, "dev/tool never reaches pods in shop on 22", ""); r.Outcome != check.Unproved || !strings.Contains(r.Why, "too many") {
		t.Errorf("%d: %s", r.Outcome, r.Why)
	}
}

// TestConflictingAddresses shows that pods whose address another pod claims too get what explain says.
func TestConflictingAddresses(t *testing.T) {
	c := shop(t)
	for _, name := range []string{"one", "two"} {
		c.SetPod(fixture.Pod(fmt.Sprintf("dev/%[1]s node1 10.32.0.9 app=%[1]s", name)))
	}
	c.SetPolicy(fixture.Policy(t, "dev/in", `{podSelector: {matchLabels: {app: one}}}`))
	r, _ := checkOf(t, c, "shop/web reaches pods(app in (one,two)) in dev on 80", "")
	if r.Counterexample == nil || !strings.Contains(r.Counterexample.Verdict.String(), "claim") {
		t.Errorf("%d: %s", r.Outcome, r.Why)
	}
	c.DeletePod("dev", "one", "")
	if r, _ = checkOf(t, c, "shop/web reaches dev/two on 80", ""); r.Outcome != check.Holds {
		t.Error(r.Why)
	}
}
