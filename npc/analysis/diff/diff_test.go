package diff

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// TestDomainNames shows that each name is a destination of its own, which no range of addresses stands for.
func TestDomainNames(t *testing.T) {
	const deny = "{action: Deny, to: [{networks: [0.0.0.0/0]}]}"
	names := func(list string) string {
		return "{action: Accept, to: [{domainNames: [" + list + "]}], protocols: [{tcp: {destinationPort: {number: 443}}}]}, "
	}
	for _, c := range []struct {
		what, before, after string
		want                []string
	}{
		{"a name comes", names("a.example.com") + deny, names("a.example.com, b.example.com") + deny,
			[]string{"+ shop/web -> b.example.com: tcp/443 (0, 1)"}},
		{"a name goes", names("a.example.com") + deny, deny, []string{"- shop/web -> a.example.com: tcp/443 (0, 1)"}},
		{"a wildcard comes", names("a.example.com") + deny, names(`a.example.com, "*.example.com"`) + deny,
			[]string{"+ shop/web -> *.example.com: tcp/443 (0, 1)"}},
		{"a wildcard stands for a name", names("a.example.com") + deny, names(`"*.example.com"`) + deny,
			[]string{"+ shop/web -> *.example.com: tcp/443 (0, 1)"}},
		{"names instead of ranges", "{action: Accept, to: [{networks: [198.51.100.0/24]}]}, " + deny, names("a.x, b.x") + deny,
			[]string{"+ shop/web -> a.x and b.x: tcp/443 (0, 2)", "- shop/web -> 198.51.100.0/24: everything (0, 1)"}},
		{"all is denied", "", names("a.x") + deny, []string{"- shop/web -> 0.0.0.0/0: everything (0, 1)",
			"- shop/web -> a.x: everything except tcp/443 (0, 1)"}},
		{"nothing", names("a.x") + deny, names("a.x") + deny, nil},
		{"no name opens connections", names("a.x") + deny, names("a.x") + deny + "shop/p {podSelector: {}}", []string{"- 0.0.0.0/0 -> shop/web: everything (0, 1)"}},
	} {
		cluster := func(rules string) *cluster.Cluster {
			rules, policy, _ := strings.Cut(rules, "shop/p ")
			w := made(t, "shop/web 10.0.0.1 app=web\n"+strings.Repeat("shop/p "+policy, min(1, len(policy))))
			w.SetClusterPolicy(fixture.ClusterPolicy(t, "names", "{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: ["+rules+"]}"))
			return w
		}
		r := Compare(cluster(c.before), cluster(c.after), Options{})
		if got := lines(r); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s:\n%s\nwant\n%s", c.what, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
		if c.what == "a name comes" {
			g := r.Opens.Groups(0)[0]
			got := fmt.Sprintf("%s; %s; %s; %s", g.Example, g.Before, g.After, g.To.DomainNames)
			if want := "shop/web -> b.example.com, tcp/443; egress from shop/web: denied by Admin policy names/rule 2; " +
				"egress from shop/web: allowed by Admin policy names/rule 1; [b.example.com]"; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	}
}

// made returns a cluster of pods and policies in lines: "shop/web-1 10.0.0.1 app=web", or "shop/policy {spec}".
func made(t *testing.T, text string) *cluster.Cluster {
	t.Helper()
	c := cluster.New()
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch key, spec, _ := strings.Cut(line, " "); {
		case line == "":
		case strings.HasPrefix(spec, "{"):
			c.SetPolicy(fixture.Policy(t, key, spec))
		default:
			p := fixture.Pod(line)
			c.SetNamespace(fixture.Namespace(p.Namespace))
			c.SetPod(p)
		}
	}
	return c
}

// lines returns a result in short lines.
func lines(r *Result) (out []string) {
	for i, s := range []*Side{r.Opens, r.Closes} {
		for _, g := range s.Groups(0) {
			out = append(out, fmt.Sprintf("%c %s -> %s: %s (%d, %d)", "+-"[i], g.From.Text, g.To.Text, g.Ports, g.Pods, g.Outside))
		}
	}
	return out
}

const (
	two   = "shop/web-1 10.0.0.1 app=web Deployment/web\nshop/web-2 10.0.0.2 app=web Deployment/web\nshop/db 10.0.0.3 app=db\n"
	allow = "shop/db {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 5432}]}]}\n"
)

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name, before, after string
		options             Options
		want                []string
	}{
		{name: "the_same", before: two + allow, after: two + allow},
		{name: "a_policy_comes", before: two, after: two + allow, want: []string{
			"- shop/web -> shop/db: everything except tcp/5432 (2, 0)", "- 0.0.0.0/0 -> shop/db: everything (0, 1)"}},
		{name: "a_template_for_pods", before: two + allow, after: "shop/web 10.254.0.1 app=web Deployment/web\nshop/db 10.0.0.3 app=db\n" + allow},
		{name: "pods_for_a_template", before: "shop/web 10.254.0.1 app=web Deployment/web\nshop/db 10.0.0.3 app=db\n" + allow, after: two + allow},
		{name: "a_template_with_other_labels", before: two + allow, after: "shop/web 10.254.0.1 app=front Deployment/web\nshop/db 10.0.0.3 app=db\n" + allow,
			want: []string{"- shop/web -> shop/db: tcp/5432 (2, 0)"}},
		{name: "a_pod_comes", before: two, after: two + "ops/agent 10.0.0.9 app=agent DaemonSet/agent\n", options: Options{To: "shop", From: "ops"},
			want: []string{"+ ops/agent (new) -> all 2 workloads of shop: everything (3, 0)"}},
		{name: "a_pod_goes", before: two, after: "shop/web-1 10.0.0.1 app=web Deployment/web\nshop/db 10.0.0.3 app=db\n", options: Options{To: "shop", From: "shop"},
			want: []string{"- shop/db and 1 of 2 pods of shop/web (web-1) -> 1 of 2 pods of shop/web (web-2) (gone): everything (2, 0)",
				"- 1 of 2 pods of shop/web (web-2) (gone) -> shop/db and 1 of 2 pods of shop/web (web-1): everything (2, 0)"}},
		{name: "a_family_that_one_state_has", before: "a/x 10.0.0.1 app=x\na/y 10.0.0.2 app=to\n", after: "a/x 10.0.0.1,fd00::1 app=x\na/y 10.0.0.2,fd00::2 app=to\n"},
		{name: "a_family_of_two", before: "a/x 10.0.0.1,fd00::1 app=x\na/y 10.0.0.2,fd00::2 app=to\n",
			after: "a/x 10.0.0.1,fd00::1 app=x\na/y 10.0.0.2,fd00::2 app=to\na/p {podSelector: {matchLabels: {app: to}}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0}}]}]}\n",
			want:  []string{"- a/x and ::/0 -> a/y: everything (1, 1)"}},
		{name: "without_an_address", before: "a/x app=x\na/y 10.0.0.2 app=to\n",
			after: "a/x app=x\na/y 10.0.0.2 app=to\na/p {podSelector: {matchLabels: {app: to}}, ingress: [{from: [{podSelector: {}}]}]}\n",
			want:  []string{"- 0.0.0.0/0 -> a/y: everything (0, 1)"}},
		{name: "either_namespace", before: two + "ops/x 10.0.0.8 app=x\n", after: two + "ops/x 10.0.0.8 app=x\nops/p {podSelector: {}, policyTypes: [Ingress, Egress]}\n",
			options: Options{Either: "shop"}, want: []string{"- ops/x -> all 2 workloads of shop: everything (3, 0)", "- all 2 workloads of shop -> ops/x: everything (3, 0)"}},
		{name: "empty"},
		{name: "one_pod", before: "a/x 10.0.0.1 app=x\n", after: "a/x 10.0.0.1 app=to\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := lines(Compare(made(t, c.before), made(t, c.after), c.options))
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// TestReasons shows what decides about the example of a group, in each cluster state, in the direction that decides.
func TestReasons(t *testing.T) {
	r := Compare(made(t, two+allow), made(t, two+strings.Replace(allow, "5432", "5433", 1)), Options{})
	g := r.Opens.Groups(1)[0]
	if got := g.Example.String(); got != "shop/web-1 -> shop/db, tcp/5433" || g.Example.Only || g.Example.Family != "IPv4" {
		t.Errorf("%+v", g.Example)
	}
	if got := g.Before.String(); got != "ingress to shop/db: denied: no rule allows it (no ingress rule of policy shop/db)" {
		t.Errorf("before: %s", got)
	}
	if got := g.After.String(); got != "ingress to shop/db: allowed: a rule allows it (ingress rule 1 of policy shop/db)" {
		t.Errorf("after: %s", got)
	}
	gone := Compare(made(t, two), made(t, "shop/db 10.0.0.3 app=db\n"), Options{From: "shop", To: "shop"}).Closes.Groups(1)[0]
	if got := gone.After.String(); got != "shop/web-1 is not there" {
		t.Errorf("after: %s", got)
	}
}

func TestPortsInWords(t *testing.T) {
	const tcp, udp, sctp = 6, 17, 132
	for want, ports := range map[string]Ports{
		"tcp/80":          {{Protocol: tcp, First: 80, Last: 80}},
		"tcp/1-1024, udp": {{Protocol: tcp, First: 1, Last: 1024}, {Protocol: udp, First: 1, Last: 65535}},
		"everything":      {{Protocol: 1}, {Protocol: tcp, First: 1, Last: 65535}, {Protocol: udp, First: 1, Last: 65535}, {Protocol: sctp, First: 1, Last: 65535}},
		"everything except tcp/80": {{Protocol: 1}, {Protocol: tcp, First: 1, Last: 79}, {Protocol: tcp, First: 81, Last: 65535},
			{Protocol: udp, First: 1, Last: 65535}, {Protocol: sctp, First: 1, Last: 65535}},
		"everything except icmp": {{Protocol: tcp, First: 1, Last: 65535}, {Protocol: udp, First: 1, Last: 65535}, {Protocol: sctp, First: 1, Last: 65535}},
	} {
		if got := ports.String(); got != want {
			t.Errorf("%v: %s, want %s", ports, got, want)
		}
	}
	many := Ports{}
	for i := range uint16(40) {
		many = append(many, flow.Ports{Protocol: tcp, First: 10 * (i + 1), Last: 10 * (i + 1)})
	}
	if got := many.String(); !strings.HasSuffix(got, "tcp/120, and 28 more ranges") {
		t.Error(got)
	}
	text, err := json.Marshal(many[:2])
	if err != nil || string(text) != `["tcp/10","tcp/20"]` {
		t.Errorf("%s, %v", text, err)
	}
}

// TestManyInWords shows how a line names many workloads.
func TestManyInWords(t *testing.T) {
	var before, after strings.Builder
	for i := range 12 {
		fmt.Fprintf(&before, "prod/p%02d 10.1.0.%d app=p%d\n", i, i+1, i)
		fmt.Fprintf(&before, "dev/d%02d 10.2.0.%d app=d%d\n", i, i+1, i)
	}
	after.WriteString(before.String())
	after.WriteString("prod/deny {podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [p3]}]}, ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: dev}}}]}]}\n")
	got := lines(Compare(made(t, before.String()), made(t, after.String()), Options{From: "prod"}))
	want := "[- all 12 workloads of prod -> all 12 workloads of prod except prod/p03: everything (121, 0)]"
	if fmt.Sprint(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
