package replay_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/replay"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// end returns an address, or a pod with its workload and address.
func end(text string) flowlog.End {
	if a, err := netip.ParseAddr(text); err == nil {
		return flowlog.End{Addr: a}
	}
	p := fixture.Pod(text)
	return flowlog.End{Namespace: p.Namespace, Workload: p.Workload.String(), Pod: p.Name, Addr: p.Addrs[0], Labels: p.Labels}
}

func record(t *testing.T, from, to, service string, verdict flowlog.Verdict) flowlog.Record {
	t.Helper()
	s, err := flow.ParseService(service)
	if err != nil {
		t.Fatal(err)
	}
	return flowlog.Record{Count: 2, Replied: 1, Node: "node1", From: end(from), To: end(to), Port: s, Verdict: verdict}
}

const (
	web = "shop/web-1 Deployment/web 10.32.1.2 app=web pod-template-hash=a"
	api = "shop/api-1 Deployment/api 10.32.1.3 app=api"
	db  = "shop/db-0 StatefulSet/db 10.32.1.4 app=db"
	mon = "ops/mon-1 Deployment/mon 10.32.2.5 app=mon"
)

const onlyFromWeb = `{podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: 1}]},
	{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: pg}]}]}`

// text returns changes in lines.
func text(changes []replay.ChangedRecord) string {
	var lines []string
	for _, c := range changes {
		lines = append(lines, fmt.Sprintf("%s > %s: %s %v, %s %v", c.Record.From, c.Record.To, c.Before.Verdict, c.Before.By, c.After.Verdict, c.After.By))
	}
	return strings.Join(lines, "\n")
}

// TestReplay shows which records change, and by which rules.
func TestReplay(t *testing.T) {
	named := func(r flowlog.Record, names ...string) flowlog.Record { r.PortNames = names; return r }
	for _, c := range []struct {
		name     string
		policies []string
		pods     []npc.Pod
		records  []flowlog.Record
		want     string
	}{
		{"nothing_without_policies", nil, nil, []flowlog.Record{record(t, web, db, "tcp/5432", flowlog.Allowed)}, ""},
		{"newly_denied", []string{onlyFromWeb}, nil, []flowlog.Record{named(record(t, web, db, "tcp/5432", flowlog.Allowed), "pg"),
			record(t, api, db, "tcp/5432", flowlog.Allowed), record(t, mon, web, "tcp/80", flowlog.Allowed)},
			"shop/Deployment/api > shop/StatefulSet/db: allowed [], denied [no ingress rule of policy shop/p0]"},
		{"newly_allowed", []string{onlyFromWeb}, nil, []flowlog.Record{named(record(t, web, db, "tcp/5432", flowlog.Denied), "pg")},
			"shop/Deployment/web > shop/StatefulSet/db: denied [], allowed [ingress rule 2 of policy shop/p0]"},
		{"ports_are_named_as_the_manifests_name_them", []string{onlyFromWeb},
			[]npc.Pod{fixture.Pod("shop/db-7 app=db controller-revision-hash=b")},
			[]flowlog.Record{named(record(t, web, db, "tcp/5432", flowlog.Allowed), "pg")},
			"shop/Deployment/web > shop/StatefulSet/db: allowed [], denied [no ingress rule of policy shop/p0]"},
		{"other_pods_at_the_address_do_not_matter", []string{onlyFromWeb},
			[]npc.Pod{fixture.Pod("shop/new 10.32.1.2")},
			[]flowlog.Record{named(record(t, web, db, "tcp/5432", flowlog.Allowed), "pg")}, ""},
		{"a_namespace_has_its_name",
			[]string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ops}}}]}]}`},
			nil, []flowlog.Record{record(t, mon, web, "tcp/80", flowlog.Allowed), record(t, api, web, "tcp/80", flowlog.Allowed)},
			"shop/Deployment/api > shop/Deployment/web: allowed [], denied [no ingress rule of policy shop/p0]"},
		{"addresses_outside", []string{`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 192.0.2.0/24}}]}]}`}, nil,
			[]flowlog.Record{record(t, web, "192.0.2.1", "tcp/443", flowlog.Allowed), record(t, web, "198.51.100.1", "tcp/443", flowlog.Allowed)},
			"shop/Deployment/web > 198.51.100.1: allowed [], denied [no egress rule of policy shop/p0]"},
		{"its_own_node_reaches_a_pod", []string{`{podSelector: {}}`},
			[]npc.Pod{fixture.Pod("x/x node1@172.31.0.1")},
			[]flowlog.Record{record(t, "172.31.0.1", web, "tcp/80", flowlog.Allowed), record(t, "172.31.0.2", web, "tcp/80", flowlog.Allowed)},
			"172.31.0.2 > shop/Deployment/web: allowed [], denied [no ingress rule of policy shop/p0]"},
		{"an_address_that_changed_hands", []string{onlyFromWeb}, nil, []flowlog.Record{
			named(record(t, web, db, "tcp/5432", flowlog.Allowed), "pg"), named(record(t, "10.32.1.2", db, "tcp/5432", flowlog.Allowed), "pg"),
			named(record(t, strings.Replace(api, ".3", ".2", 1), db, "tcp/5432", flowlog.Allowed), "pg")},
			"10.32.1.2 > shop/StatefulSet/db: allowed [], denied [no ingress rule of policy shop/p0]\n" +
				"shop/Deployment/api > shop/StatefulSet/db: allowed [], denied [no ingress rule of policy shop/p0]"},
		{"a_pod_with_changed_labels", []string{onlyFromWeb}, nil, []flowlog.Record{
			record(t, api, "shop/x Pod/x 10.32.1.9 app=web", "tcp/5432", flowlog.Allowed),
			record(t, api, "shop/x Pod/x 10.32.1.9 app=db", "tcp/5432", flowlog.Allowed)},
			"shop/Deployment/api > shop/Pod/x: allowed [], denied [no ingress rule of policy shop/p0]"},
		{"a_port_that_got_a_name", []string{onlyFromWeb}, nil, []flowlog.Record{
			record(t, web, db, "tcp/5432", flowlog.Allowed), named(record(t, web, db, "tcp/5432", flowlog.Denied), "pg")},
			"shop/Deployment/web > shop/StatefulSet/db: allowed [], denied [no ingress rule of policy shop/p0]\n" +
				"shop/Deployment/web > shop/StatefulSet/db: denied [], allowed [ingress rule 2 of policy shop/p0]"},
		{"between_pods_of_a_workload", []string{`{podSelector: {}}`}, nil, []flowlog.Record{record(t, web, web, "tcp/80", flowlog.Allowed),
			record(t, "shop/x Pod/x 10.32.1.9", "shop/x Pod/x 10.32.1.9", "tcp/80", flowlog.Allowed)},
			"shop/Deployment/web > shop/Deployment/web: allowed [], denied [no ingress rule of policy shop/p0]"},
		{"all_that_isolates_is_named", []string{`{podSelector: {}}`, `{podSelector: {}, policyTypes: [Egress]}`, `{podSelector: {}}`}, nil,
			[]flowlog.Record{record(t, web, api, "tcp/80", flowlog.Allowed)}, "shop/Deployment/web > shop/Deployment/api: allowed [], " +
				"denied [no egress rule of policy shop/p1 no ingress rule of policy shop/p0 no ingress rule of policy shop/p2]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := cluster.New()
			for _, p := range c.pods {
				w.SetPod(p)
			}
			for i, spec := range c.policies {
				w.SetPolicy(fixture.Policy(t, fmt.Sprintf("shop/p%d", i), spec))
			}
			if diff := cmp.Diff(c.want, text(replay.Changes(c.records, w))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestTiersAreReplayed shows that a rule of a cluster network policy is named with its tier.
func TestTiersAreReplayed(t *testing.T) {
	w := cluster.New()
	w.SetClusterPolicy(fixture.ClusterPolicy(t, "fence", `{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [
		{action: Deny, to: [{networks: [192.0.2.0/24]}]}]}`))
	r := record(t, web, "192.0.2.1", "tcp/80", flowlog.Allowed)
	r.By = &flowlog.RuleRef{Policy: "shop/web", Number: 3, Direction: "egress"}
	want := "shop/Deployment/web > 192.0.2.1: allowed [egress rule 3 of policy shop/web], denied [egress rule 1 of Admin policy fence]"
	if got := text(replay.Changes([]flowlog.Record{r}, w)); got != want {
		t.Errorf("%s,\nwant %s", got, want)
	}
}

// TestDomainNamesAreReplayed shows that an address has the names that it was recorded with.
func TestDomainNamesAreReplayed(t *testing.T) {
	w := cluster.New()
	w.SetClusterPolicy(fixture.ClusterPolicy(t, "names", `{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [
		{action: Accept, to: [{domainNames: ["*.example.com"]}]}, {action: Deny, to: [{networks: [0.0.0.0/0]}]}]}`))
	var records []flowlog.Record
	for i, name := range []string{"api.example.com", "evil.example.org", ""} {
		r := record(t, web, fmt.Sprintf("192.0.2.%d", i+1), "tcp/80", flowlog.Allowed)
		if name != "" {
			r.To.DomainNames = []string{name}
		}
		records = append(records, r)
	}
	const denied = ": allowed [], denied [egress rule 2 of Admin policy names]"
	want := "shop/Deployment/web > 192.0.2.2" + denied + "\nshop/Deployment/web > 192.0.2.3" + denied
	if got := text(replay.Changes(records, w)); got != want {
		t.Errorf("%s,\nwant %s", got, want)
	}
}

// TestDeniedByTheOtherNode shows that what one node allowed and the other one denied counts as denied.
func TestDeniedByTheOtherNode(t *testing.T) {
	sent, refused := record(t, web, db, "tcp/5432", flowlog.Allowed), record(t, web, db, "tcp/5432", flowlog.Denied)
	sent.Replied, refused.Replied, refused.Node = 0, 0, "node2"
	w := cluster.New()
	w.SetPolicy(fixture.Policy(t, "shop/db", `{podSelector: {}}`))
	if got := replay.Changes([]flowlog.Record{sent, refused}, w); len(got) > 0 {
		t.Errorf("%s", text(got))
	}
	refused.Node = sent.Node // which allowed it at another time
	if got := replay.Changes([]flowlog.Record{sent, refused}, w); len(got) != 1 {
		t.Errorf("%s", text(got))
	}
}
