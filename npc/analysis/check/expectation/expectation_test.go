package expectation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// read parses a document with a given expectation among others.
func read(t *testing.T, item string) ([]File, []Problem) {
	t.Helper()
	return Parse("x.yaml", []byte("apiVersion: weave-npc/v1alpha1\nkind: Expectations\nexpectations:\n"+item+"\n"))
}

// show returns what an expectation means in words.
func show(e Expectation) string {
	subject := func(s Subject) (text string) {
		for i, t := range s {
			if i > 0 {
				text += " | "
			}
			switch {
			case t.All:
				text += "all"
			case t.Domain != "":
				text += "domain " + t.Domain
			case len(t.Blocks) > 0:
				for i, b := range t.Blocks {
					text += strings.Repeat(" ", min(i, 1)) + fmt.Sprintf("%s-%d", b.CIDR, len(b.Except))
				}
			default:
				text += fmt.Sprintf("ns=%s[%s] pods=%s%s[%s]", t.Namespace, t.Namespaces.String(), t.Kind, t.Name, t.Pods.String())
			}
		}
		return strings.TrimSpace(text)
	}
	from := subject(e.From)
	if e.Outside {
		from = "not " + from
	}
	return fmt.Sprintf("%s %s %s %v", from, []string{"reaches", "never", "always"}[e.Verb], subject(e.To), e.Ports)
}

func TestSentences(t *testing.T) {
	for text, want := range map[string]string{
		"shop/web reaches shop/db on postgres":             "ns=shop[] pods=web[] reaches ns=shop[] pods=db[] [tcp/postgres]",
		"shop/deploy/web reaches shop/po/db":               "ns=shop[] pods=Deploymentweb[] reaches ns=shop[] pods=Poddb[] []",
		"shop/web can reach shop/db":                       "ns=shop[] pods=web[] reaches ns=shop[] pods=db[] []",
		"none outside monitoring reaches metrics":          "not ns=monitoring[] pods=[] never ns=metrics[] pods=[] []",
		"dev/* never reaches prod/*":                       "ns=dev[] pods=[] never ns=prod[] pods=[] []",
		"dev cannot reach prod on 22":                      "ns=dev[] pods=[] never ns=prod[] pods=[] [tcp/22]",
		"only shop/web and shop/api reach shop/db on 5432": "not ns=shop[] pods=web[] | ns=shop[] pods=api[] never ns=shop[] pods=db[] [tcp/5432]",
		"none reaches prod/db on tcp":                      "all never ns=prod[] pods=db[] [tcp]",
		"pods(app in (a, b), !x) in namespaces(team=a) always reaches kube-system/dns on udp/53, tcp/53 and 8000-8100": "ns=[team=a] pods=[app in (a,b),!x] " +
			"always ns=kube-system[] pods=dns[] [udp/53 tcp/53 tcp/8000-8100]",
		"pods(app=web) in shop never reaches 10.0.0.0/8 or fd00::1": "ns=shop[] pods=[app=web] never 10.0.0.0/8-0 | fd00::1/128-0 []",
		"namespaces(team=a) never reaches the internet on icmp":     "ns=[team=a] pods=[] never 0.0.0.0/0-13 2000::/3-1 [icmp]",
		"all pods reaches everyone on sctp/http":                    "ns=[] pods=[] reaches all [sctp/http]",
		"pods(a=b) never reaches pods in shop":                      "ns=[] pods=[a=b] never ns=shop[] pods=[] []",
		"shop/web reaches API.example.com. and *.x.org on 443":      "ns=shop[] pods=web[] reaches domain api.example.com | domain *.x.org [tcp/443]",
		"10.1.2.3/8 reaches shop/web on 1-65535":                    "10.0.0.0/8-0 reaches ns=shop[] pods=web[] [tcp]",
	} {
		files, problems := read(t, fmt.Sprintf("- %q", text))
		if len(problems) > 0 || len(files) != 1 || len(files[0].Expectations) != 1 {
			t.Errorf("%s: %v", text, problems)
			continue
		}
		if got := show(files[0].Expectations[0]); got != want {
			t.Errorf("%s:\n%s\n%s", text, got, want)
		}
	}
}

func TestSentencesThatMeanNothing(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "there is no verb: write reaches, never reaches or always reaches, as in: shop/web reaches shop/db on tcp/5432",
		"shop/web reachs shop/db":             `there is no verb, and "reachs" is none; did you mean reaches?`,
		"reaches shop/db":                     "before the verb, the source is missing, such as shop/web",
		"shop/web reaches":                    "after the verb, the destination is missing, such as shop/db",
		"shop/web reaches on 80":              "after the verb, the destination is missing, such as shop/db",
		"shop/web reaches shop/db on":         "after on, a port is missing, such as tcp/80, udp/53, http or icmp",
		"shop/web reaches shop/db on 80,":     "after on, a port is missing, such as tcp/80, udp/53, http or icmp",
		"shop/web reaches shop/db on 70000":   `"70000" is no port such as tcp/80, udp/53, 8000-8100, http, nor icmp`,
		"shop/web reaches shop/db on 90-80":   `"90-80" is no port such as tcp/80, udp/53, 8000-8100, http, nor icmp`,
		"shop/web always reaches shop/db":     "always reaches needs ports, such as: on tcp/443",
		"none outside reaches shop":           "after outside, the source is missing, such as shop/web",
		"only reaches shop":                   "after only, the source is missing, such as shop/web",
		"none in dev reaches shop":            `after none comes outside or reaches, not "in"`,
		"none outside dev never reaches x":    "none goes with reaches or can reach alone",
		"shop/web and reaches shop/db":        "the source: a name is missing, such as shop/web",
		"shop/web does not reach shop/db":     `the source: "shop/web does not" is no name: write never reaches, or cannot reach`,
		"shop/web in a hurry reaches shop/db": `the source: "shop/web in a hurry" is no name: it has a blank`,
		"Shop reaches shop/db":                `the source: "Shop" is no subject such as shop/web, shop/*, shop, pods(app=web) in shop, 10.0.0.0/8, api.example.com or everyone`,
		"shop/we_b reaches shop/db":           `the source: "we_b" is no name of a pod or of a workload; for all pods of the namespace write shop/*`,
		"shop/web/x reaches shop/db":          `the source: "web" is no kind of workloads, such as shop/deploy/x`,
		"pods(a=b) of shop reaches shop/db":   `the source: after pods(a=b) comes in NAMESPACE or in namespaces(SELECTOR), not "of shop"`,
		"pods(a=b=c) reaches shop/db":         `the source: pods: "a=b=c" is no selector such as app=web,tier!=test`,
		"pods(a>1) reaches shop/db":           "the source: pods: gt is no operator of selectors of policies",
		"pods(a=b in shop reaches shop/db":    "a parenthesis is not closed",
		"pods a=b) in shop reaches shop/db":   "a parenthesis is closed that was not opened",
		"10.0.0.0/33 reaches shop/db":         `the source: "10.0.0.0/33" is no subject such as shop/web, shop/*, shop, pods(app=web) in shop, 10.0.0.0/8, api.example.com or everyone`,
		"fe80::1%eth0 reaches shop/db":        `the source: "fe80::1%eth0" is no subject such as shop/web, shop/*, shop, pods(app=web) in shop, 10.0.0.0/8, api.example.com or everyone`,
		"shop/web reaches 10.0.0.256":         `the destination: "10.0.0.256" is no domain name such as api.example.com or *.example.com`,
		"api.example.com reaches shop/db":     "api.example.com is a domain name, which opens no connections: it can be a destination",
		"::ffff:10.0.0.0/104 reaches shop/db": `the source: "::ffff:10.0.0.0/104" is no range of addresses such as 10.0.0.0/8`,
	} {
		_, problems := read(t, fmt.Sprintf("- %q", text))
		if want = fmt.Sprintf("x.yaml:4: %q: %s", text, want); len(problems) != 1 || problems[0].Error() != want {
			t.Errorf("%q:\n%v\n%s", text, problems, want)
		}
	}
}

func TestExpectationsWithFields(t *testing.T) {
	for name, c := range map[string]struct{ item, want string }{
		"selectors": {"- {name: n, from: {namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchExpressions: [{key: x, operator: Exists}]}}, neverReaches: shop/db}",
			"n: ns=[team=a] pods=[x] never ns=shop[] pods=db[] []"},
		"a namespace and a list": {"- {noneOutside: [shop/web, {namespace: ops}], reaches: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}, on: [80, udp/53]}",
			"none outside shop/web and pods() in ops reaches 10.0.0.0/8 except 10.1.0.0/16 on tcp/80, udp/53: not ns=shop[] pods=web[] | ns=ops[] pods=[] " +
				"never 10.0.0.0/8-1 [tcp/80 udp/53]"},
		"a sentence":       {"- {name: n, expect: a reaches b, allowEmpty: true}", "n: ns=a[] pods=[] reaches ns=b[] pods=[] [] empty"},
		"always":           {"- {from: a, alwaysReaches: b, on: http}", "a always reaches b on tcp/http: ns=a[] pods=[] always ns=b[] pods=[] [tcp/http]"},
		"an alias":         {"- {from: &a {podSelector: {}}, reaches: *a, on: [80]}", "pods() reaches pods() on tcp/80: ns=[] pods=[] reaches ns=[] pods=[] [tcp/80]"},
		"a domain name":    {"- {from: a, reaches: {domainName: B.x}}", "a reaches B.x: ns=a[] pods=[] reaches domain b.x []"},
		"several lines":    {"- shop/web\n  reaches\n  shop/db", "shop/web reaches shop/db: ns=shop[] pods=web[] reaches ns=shop[] pods=db[] []"},
		"labels as values": {"- {from: {podSelector: {matchLabels: {a: 'true'}}}, reaches: b}", "pods(a=true) reaches b: ns=[] pods=[a=true] reaches ns=b[] pods=[] []"},
	} {
		t.Run(name, func(t *testing.T) {
			files, problems := read(t, c.item)
			if len(problems) > 0 || len(files) != 1 || len(files[0].Expectations) != 1 {
				t.Fatal(problems)
			}
			e := files[0].Expectations[0]
			got := e.Name + ": " + show(e)
			if e.AllowEmpty {
				got += " empty"
			}
			if got != c.want {
				t.Errorf("%s\n%s", got, c.want)
			}
		})
	}
}

func TestFilesThatAreRefused(t *testing.T) {
	const head = "apiVersion: weave-npc/v1alpha1\nkind: Expectations\n"
	for name, c := range map[string]struct{ text, want string }{
		"no YAML":             {head + "expectations: [a\n", "did not find expected ',' or ']'"},
		"another version":     {"apiVersion: weave-npc/v1\nkind: Expectations\n", `x.yaml:1: "weave-npc/v1" is no version of Expectations: it is weave-npc/v1alpha1`},
		"no version":          {"kind: Expectations\n", "x.yaml:1: apiVersion is missing: it is weave-npc/v1alpha1"},
		"none":                {head, "x.yaml:1: expectations are missing"},
		"no list":             {head + "expectations: a reaches b\n", "x.yaml:3: expectations must be a list"},
		"an unknown field":    {head + "expectation: []\nexpectations: []\n", `x.yaml:3: unknown field "expectation"`},
		"a field twice":       {head + "expectations: []\nexpectations: []\n", `x.yaml:4: field "expectations" is already there`},
		"no verb":             {head + "expectations:\n- from: a\n", "x.yaml:4: must have one of reaches, neverReaches and alwaysReaches"},
		"no source":           {head + "expectations:\n- reaches: a\n", "x.yaml:4: must have either from or noneOutside"},
		"two verbs":           {head + "expectations:\n- {from: a, reaches: a, neverReaches: b}\n", "x.yaml:4: must have one of reaches, neverReaches and alwaysReaches"},
		"none never":          {head + "expectations:\n- {noneOutside: a, neverReaches: b}\n", "x.yaml:4: noneOutside goes with reaches alone"},
		"a sentence and more": {head + "expectations:\n- {expect: a reaches b, on: [80]}\n", "x.yaml:4: only name and allowEmpty may be set alongside expect"},
		"a number":            {head + "expectations:\n- {from: a, reaches: b, allowEmpty: 1}\n", "x.yaml:4: must be true or false"},
		"both kinds of terms": {head + "expectations:\n- from: {cidr: 10.0.0.0/8, podSelector: {}}\n  reaches: b\n",
			"x.yaml:4: must have either cidr or domainName, or some of namespace, namespaceSelector and podSelector"},
		"except outside": {head + "expectations:\n- from: {cidr: 10.0.0.0/8, except: [11.0.0.0/16]}\n  reaches: b\n", "x.yaml:4: 11.0.0.0/16 is not within 10.0.0.0/8"},
		"a bad selector": {head + "expectations:\n- from: a\n  reaches:\n    podSelector: {matchlabels: {a: b}}\n", `x.yaml:6: podSelector: unknown field "matchlabels"`},
		"a bad operator": {head + "expectations:\n- from: a\n  reaches:\n    podSelector: {matchExpressions: [{key: a, operator: Is}]}\n",
			`x.yaml:6: podSelector: "Is" is not a valid label selector operator`},
		"an empty list":  {head + "expectations:\n- {from: [], reaches: b}\n", "x.yaml:4: the list is empty; for all pods and addresses write everyone"},
		"no ports":       {head + "expectations:\n- {from: a, reaches: b, on: []}\n", "x.yaml:4: on is empty; leave it out to select all ports"},
		"ranges of pods": {head + "podCIDRs: [10.0.0.0]\nexpectations: []\n", `x.yaml:3: "10.0.0.0" is no range of addresses such as 10.32.0.0/12`},
		"a second problem": {"a: b\n---\n" + head + "expectations:\n- a b\n- c d\n", `x.yaml:6: "a b": there is no verb: write reaches, never reaches or always ` +
			`reaches, as in: shop/web reaches shop/db on tcp/5432` + "\n" + `x.yaml:7: "c d": there is no verb: write reaches, never reaches or always reaches, ` +
			`as in: shop/web reaches shop/db on tcp/5432`},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := Parse("x.yaml", []byte(c.text))
			var lines []string
			for _, p := range problems {
				lines = append(lines, p.Error())
			}
			if got := strings.Join(lines, "\n"); got != c.want && (name != "no YAML" || !strings.HasSuffix(got, c.want)) {
				t.Error(cmp.Diff(c.want, got))
			}
		})
	}
}

// TestOtherDocumentsArePassedOver shows that expectations may be among manifests, and that each document has its own
// assumptions.
func TestOtherDocumentsArePassedOver(t *testing.T) {
	files, problems := Parse("x.yaml", []byte(`apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
# nothing
---
- a list
---
apiVersion: other.example/v1
kind: Expectations
---
apiVersion: weave-npc/v1alpha1
kind: Expectations
metadata: {name: first}
podCIDRs: 10.32.0.0/12
newNamespaces: true
expectations: [a reaches b]
---
apiVersion: weave-npc/v1alpha1
kind: Expectations
expectations: [c reaches d]
`))
	if len(problems) > 0 || len(files) != 2 {
		t.Fatal(files, problems)
	}
	if got := fmt.Sprint(files[0].PodCIDRs, files[0].NewNamespaces, files[0].Expectations[0].Line, files[1].PodCIDRs, files[1].NewNamespaces,
		files[1].Expectations[0].Line); got != "[10.32.0.0/12] true 17 [] false 21" {
		t.Error(got)
	}
}

// FuzzParse shows that no text makes the parser panic, and that problems have a line of the file.
func FuzzParse(f *testing.F) {
	f.Add("- a reaches b on 80")
	f.Add("- {from: {podSelector: {}}, neverReaches: [{cidr: 10.0.0.0/8}], on: [http]}")
	f.Add("- &a [*a]")
	f.Fuzz(func(t *testing.T, item string) {
		text := "apiVersion: weave-npc/v1alpha1\nkind: Expectations\nexpectations:\n" + item
		_, problems := Parse("x", []byte(text))
		for _, p := range problems {
			if p.Line < 1 || p.Line > strings.Count(text, "\n")+2 || p.Text == "" {
				t.Errorf("%+v", p)
			}
		}
	})
}
