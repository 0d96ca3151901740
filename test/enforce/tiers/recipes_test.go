package tiers

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// recipesPage has the recipes: sections with manifests in their code.
const recipesPage = "../../../docs/recipes.md"

// recipe is what the manifests of some sections of the page do together.
type recipe struct {
	name     string
	sections []string
	want     e2e.Wants
	// ownNode is set if want also says which pods reach their own node.
	ownNode bool
}

// recipes are tried in the cluster of recipeObjects, where db and dns are isolated for ingress by NetworkPolicies.
func recipes() []recipe {
	const (
		between, open, dns = "Deny between pods by default", "Open what a namespace needs", "Always allow DNS"
		tenant, metadata   = "Isolate a tenant", "Forbid the metadata address"
		rails, egress      = "Guard rails", "Deny all egress by default"

		base     = "-*>db,dns "
		ofTenant = base + "-web,api,db>mon,copy,dns -mon,copy,dns>web,api,db "
		toNone   = base + "-web,db,api,mon,copy>* "
		inAll    = base + "-pods>* +dns>out,nodes "
	)
	return []recipe{
		{"nothing", nil, e2e.Wants{"tcp 80": base, "udp 53": base}, false},
		{"deny between pods", []string{between}, e2e.Wants{"tcp 80": base + "-pods>pods", "icmp": base + "-pods>pods"},
			false},
		{"deny between pods, open", []string{between, open},
			e2e.Wants{"tcp 80": base + "-pods>pods -*>web -api>* +api>web",
				"udp 53": base + "-pods>pods -*>web -api>*"}, false},
		{"DNS", []string{dns}, e2e.Wants{"udp 53": base + "+pods>dns", "tcp 53": base + "+pods>dns", "tcp 80": base},
			false},
		{"deny between pods, DNS", []string{between, dns}, e2e.Wants{"udp 53": base + "-pods>pods +pods>dns",
			"tcp 80": base + "-pods>pods"}, false},
		{"tenant", []string{tenant}, e2e.Wants{"tcp 80": ofTenant, "icmp": ofTenant}, false},
		{"tenant, DNS", []string{tenant, dns}, e2e.Wants{"udp 53": ofTenant + "+pods>dns", "tcp 80": ofTenant}, false},
		{"metadata", []string{metadata}, e2e.Wants{"tcp 80": base + "-pods>meta", "icmp": base + "-pods>meta"}, false},
		{"guard rails", []string{rails}, e2e.Wants{"tcp 9100": base + "+mon>db -copy>pods", "tcp 80": base +
			"-copy>pods",
			"tcp 25": base + "-copy>pods -pods>*"}, true},
		{"no egress", []string{egress}, e2e.Wants{"tcp 80": toNone}, true},
		{"no egress, DNS", []string{egress, dns}, e2e.Wants{"tcp 80": toNone, "udp 53": toNone + "+pods>dns"}, true},
		{"no egress, open", []string{egress, open}, e2e.Wants{"tcp 80": toNone + "-*>web +api>web,n2"}, true},
		{"all", []string{between, dns, tenant, metadata, rails, egress}, e2e.Wants{"tcp 80": inAll, "udp 53": inAll +
			"+pods>dns",
			"tcp 9100": inAll + "+mon>db"}, true},
	}
}

// recipeObjects makes the cluster that recipes are tried in:
//
//	node1: shop/web, shop/db, monitoring/mon      node2: shop/api, lab/copy, kube-system/dns
func recipeObjects(w *e2e.Cluster) *e2e.Objects {
	o := w.BaseObjects()
	e2e.Do(e2e.Without("shop", "ops"), e2e.Namespace("shop", "tenant=a"), e2e.Namespace("monitoring", ""),
		e2e.Namespace("lab", "tenant=b,trust=none"),
		e2e.Namespace("kube-system", ""), e2e.Pod("shop/web", e2e.Labelled("app=web")),
		e2e.Pod("shop/db", e2e.Labelled("app=db"), e2e.Port("metrics", 9100, corev1.ProtocolTCP)), e2e.Pod("shop/api",
			e2e.Labelled("app=api")),
		e2e.Pod("monitoring/mon"), e2e.Pod("lab/copy"), e2e.Pod("kube-system/dns", e2e.Labelled("k8s-app=kube-dns")),
		e2e.Policy("shop/db", "{podSelector: {matchLabels: {app: db}}}"), e2e.Policy("kube-system/dns",
			"{podSelector: {}}"))(w, o)
	return o
}

// TestRecipes tries the manifests of docs/recipes.md, alone and together.
func TestRecipes(t *testing.T) {
	sections := readRecipes(t)
	tried := map[string]bool{}
	for _, r := range recipes() {
		for _, s := range r.sections {
			if tried[s] = true; sections[s] == "" {
				t.Fatalf("%s has no section %q with manifests", recipesPage, s)
			}
		}
	}
	for s := range sections {
		if !tried[s] {
			t.Errorf("%s: no test tries %q", recipesPage, s)
		}
	}
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.New(t, backend, lab.Config{})
		w.AddPod(t, "node2", "dns", lab.PodConfig{})
		metadata, err := w.AddHost("metadata", netip.MustParseAddr("169.254.169.254"),
			netip.MustParseAddr("fd00:ec2::254"))
		if err != nil {
			t.Fatal(err)
		}
		w.Hosts["meta"] = metadata
		e2e.Serve(t, w.Hosts["dns"])
		e2e.Serve(t, metadata)
		o := recipeObjects(w)
		m := e2e.NewManifests(t, w)
		w.Source = m
		m.Write(t, o)
		w.StartDaemons(t, "--manifests", m.Dir)
		for _, r := range recipes() {
			t.Run(r.name, func(t *testing.T) {
				var all []string
				for _, s := range r.sections {
					all = append(all, sections[s])
				}
				tryRecipe(t, w, o, strings.Join(all, "---\n"), r)
			})
		}
		t.Run("an unknown pod", func(t *testing.T) {
			tryUnheard(t, w, o.Clone(), sections["Deny between pods by default"],
				sections["Deny all egress by default"])
		})
		t.Run("translated metadata", func(t *testing.T) {
			translateMetadata(t, w, backend, o,
				sections["Forbid the metadata address"])
		})
	})
}

// tryRecipe has a recipe's manifests enforced, and asks for the matrices.
func tryRecipe(t *testing.T, w *e2e.Cluster, o *e2e.Objects, text string, r recipe) {
	t.Helper()
	e2e.WriteFile(t, filepath.Join(w.Source.(*e2e.Manifests).Dir, "recipe.yaml"), text)
	w.Apply(t, o)
	var all []e2e.Question
	for about, verdicts := range r.want {
		for _, q := range w.Questions(t, e2e.Wants{about: verdicts}) {
			if r.ownNode {
				evaluateOwnNode(t, w, q, verdicts)
			}
			all = append(all, q)
		}
	}
	w.ExpectAll(t, all)
}

// evaluateOwnNode has verdicts decide which pods reach their own node, which they always do else.
func evaluateOwnNode(t *testing.T, w *e2e.Cluster, q e2e.Question, verdicts string) {
	t.Helper()
	for row, from := range q.Want.From {
		for column, to := range q.Want.To {
			if n := w.NodeOf(w.Hosts[from]); n == nil || n.Host != w.Hosts[to] {
				continue
			}
			for _, v := range strings.Fields(verdicts) {
				if left, right, _ := strings.Cut(v[1:], ">"); w.Named(t, left, from) && w.Named(t, right, to) {
					q.Want.Reached[row][column] = v[0] == '+'
				}
			}
		}
	}
}

// translateMetadata has node1 translate the metadata address to a port of its own, as some agents do: the recipe misses
// that, and what denies the port does not.
func translateMetadata(t *testing.T, w *e2e.Cluster, backend lab.Backend, o *e2e.Objects, text string) {
	rule := []string{"PREROUTING", "-d", "169.254.169.254", "-p", "tcp", "--dport", "80", "-j", "DNAT",
		"--to-destination",
		w.Hosts["n1"].Addr4().String() + ":8080"}
	program := "iptables-" + string(backend)
	if err := w.Hosts["n1"].Serve("tcp", 8080); err != nil {
		t.Fatal(err)
	}
	e2e.Run(t, w.Hosts["n1"], program, append([]string{"-w", "-t", "nat", "-A"}, rule...)...)
	const base = "-*>db,dns -pods>meta "
	tryRecipe(t, w, o, text, recipe{want: e2e.Wants{"tcp 80 /4": base + "+web,db,mon>meta", "tcp 81 /4": base}})
	agent := `
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: no-agent}
spec:
  tier: Admin
  priority: 21
  subject: {namespaces: {}}
  egress: [{action: Deny, to: [{networks: [$n14/32]}], protocols: [{tcp: {destinationPort: {number: 8080}}}]}]
`
	tryRecipe(t, w, o, text+"---"+w.Replacer().Replace(agent),
		recipe{want: e2e.Wants{"tcp 80 /4": base, "tcp 8080 /4": base + "-pods>n1"},
			ownNode: true})
	e2e.Run(t, w.Hosts["n1"], program, append([]string{"-w", "-t", "nat", "-D"}, rule...)...)
}

// tryUnheard has a pod that has no object yet: rules that name pods do not hold for it, and those that name networks
// do.
func tryUnheard(t *testing.T, w *e2e.Cluster, o *e2e.Objects, between, egress string) {
	late := w.AddPod(t, "node2", "late", lab.PodConfig{})
	e2e.Serve(t, late.Host)
	const base, others = "-*>db,dns ", "web,db,api,mon,copy"
	tryRecipe(t, w, o, between, recipe{want: e2e.Wants{"tcp 80": base + "-" + others + ",dns>" + others + ",dns"}})
	tryRecipe(t, w, o, egress, recipe{want: e2e.Wants{"tcp 80": base + "-" + others + ">*"}, ownNode: true})
	e2e.Pod("lab/late")(w, o)
	tryRecipe(t, w, o, between, recipe{want: e2e.Wants{"tcp 80": base + "-pods>pods"}})
	e2e.Without("lab/late")(w, o)
	w.Apply(t, o)
	w.ClosePod(t, late)
}

// readRecipes returns the manifests in the code of each section of the page.
func readRecipes(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(recipesPage)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	manifest := regexp.MustCompile(`(?m)(?:^    .*\n|^\n)*^    kind: .*\n(?:^    .*\n|^\n)*`)
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		var blocks []string
		for _, block := range manifest.FindAllString(body, -1) {
			blocks = append(blocks, regexp.MustCompile(`(?m)^    `).ReplaceAllString(strings.Trim(block, "\n"),
				"")+"\n")
		}
		if len(blocks) > 0 {
			found[title] = strings.Join(blocks, "---\n")
		}
	}
	return found
}
