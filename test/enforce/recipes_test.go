package enforce

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/test/lab"
)

// recipesPage has the recipes: sections with manifests in their code.
const recipesPage = "../../docs/recipes.md"

// recipe is what the manifests of some sections of the page do together.
type recipe struct {
	name     string
	sections []string
	want     wants
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
		{"nothing", nil, wants{"tcp 80": base, "udp 53": base}, false},
		{"deny between pods", []string{between}, wants{"tcp 80": base + "-pods>pods", "icmp": base + "-pods>pods"}, false},
		{"deny between pods, open", []string{between, open}, wants{"tcp 80": base + "-pods>pods -*>web -api>* +api>web",
			"udp 53": base + "-pods>pods -*>web -api>*"}, false},
		{"DNS", []string{dns}, wants{"udp 53": base + "+pods>dns", "tcp 53": base + "+pods>dns", "tcp 80": base}, false},
		{"deny between pods, DNS", []string{between, dns}, wants{"udp 53": base + "-pods>pods +pods>dns", "tcp 80": base + "-pods>pods"}, false},
		{"tenant", []string{tenant}, wants{"tcp 80": ofTenant, "icmp": ofTenant}, false},
		{"tenant, DNS", []string{tenant, dns}, wants{"udp 53": ofTenant + "+pods>dns", "tcp 80": ofTenant}, false},
		{"metadata", []string{metadata}, wants{"tcp 80": base + "-pods>meta", "icmp": base + "-pods>meta"}, false},
		{"guard rails", []string{rails}, wants{"tcp 9100": base + "+mon>db -copy>pods", "tcp 80": base + "-copy>pods",
			"tcp 25": base + "-copy>pods -pods>*"}, true},
		{"no egress", []string{egress}, wants{"tcp 80": toNone}, true},
		{"no egress, DNS", []string{egress, dns}, wants{"tcp 80": toNone, "udp 53": toNone + "+pods>dns"}, true},
		{"no egress, open", []string{egress, open}, wants{"tcp 80": toNone + "-*>web +api>web,n2"}, true},
		{"all", []string{between, dns, tenant, metadata, rails, egress}, wants{"tcp 80": inAll, "udp 53": inAll + "+pods>dns",
			"tcp 9100": inAll + "+mon>db"}, true},
	}
}

// recipeObjects makes the cluster that recipes are tried in:
//
//	node1: shop/web, shop/db, monitoring/mon      node2: shop/api, lab/copy, kube-system/dns
func recipeObjects(w *harness) *objects {
	o := w.baseObjects()
	do(without("shop", "ops"), namespace("shop", "tenant=a"), namespace("monitoring", ""), namespace("lab", "tenant=b,trust=none"),
		namespace("kube-system", ""), pod("shop/web", labelled("app=web")),
		pod("shop/db", labelled("app=db"), port("metrics", 9100, corev1.ProtocolTCP)), pod("shop/api", labelled("app=api")),
		pod("monitoring/mon"), pod("lab/copy"), pod("kube-system/dns", labelled("k8s-app=kube-dns")),
		policy("shop/db", "{podSelector: {matchLabels: {app: db}}}"), policy("kube-system/dns", "{podSelector: {}}"))(w, o)
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
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := newHarness(t, backend, lab.Config{})
		w.addPod(t, "node2", "dns", lab.PodConfig{})
		metadata, err := w.AddHost("metadata", netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("fd00:ec2::254"))
		if err != nil {
			t.Fatal(err)
		}
		w.hosts["meta"] = metadata
		serve(t, w.hosts["dns"])
		serve(t, metadata)
		o := recipeObjects(w)
		m := newManifests(t, w)
		w.source = m
		m.write(t, o)
		w.startDaemons(t, "--manifests", m.dir)
		for _, r := range recipes() {
			t.Run(r.name, func(t *testing.T) {
				var all []string
				for _, s := range r.sections {
					all = append(all, sections[s])
				}
				w.tryRecipe(t, o, strings.Join(all, "---\n"), r)
			})
		}
		t.Run("an unknown pod", func(t *testing.T) {
			w.tryUnheard(t, o.clone(), sections["Deny between pods by default"], sections["Deny all egress by default"])
		})
		t.Run("translated metadata", func(t *testing.T) { w.translateMetadata(t, backend, o, sections["Forbid the metadata address"]) })
	})
}

// tryRecipe has a recipe's manifests enforced, and asks for the matrices.
func (w *harness) tryRecipe(t *testing.T, o *objects, text string, r recipe) {
	t.Helper()
	writeFile(t, filepath.Join(w.source.(*manifests).dir, "recipe.yaml"), text)
	w.apply(t, o)
	var all []question
	for about, verdicts := range r.want {
		for _, q := range w.questions(t, wants{about: verdicts}) {
			if r.ownNode {
				w.evaluateOwnNode(t, q, verdicts)
			}
			all = append(all, q)
		}
	}
	w.expectAll(t, all)
}

// evaluateOwnNode has verdicts decide which pods reach their own node, which they always do else.
func (w *harness) evaluateOwnNode(t *testing.T, q question, verdicts string) {
	t.Helper()
	for row, from := range q.want.From {
		for column, to := range q.want.To {
			if n := w.nodeOf(w.hosts[from]); n == nil || n.Host != w.hosts[to] {
				continue
			}
			for _, v := range strings.Fields(verdicts) {
				if left, right, _ := strings.Cut(v[1:], ">"); w.named(t, left, from) && w.named(t, right, to) {
					q.want.Reached[row][column] = v[0] == '+'
				}
			}
		}
	}
}

// translateMetadata has node1 translate the metadata address to a port of its own, as some agents do: the recipe misses
// that, and what denies the port does not.
func (w *harness) translateMetadata(t *testing.T, backend lab.Backend, o *objects, text string) {
	rule := []string{"PREROUTING", "-d", "169.254.169.254", "-p", "tcp", "--dport", "80", "-j", "DNAT", "--to-destination",
		w.hosts["n1"].Addr4().String() + ":8080"}
	program := "iptables-" + string(backend)
	if err := w.hosts["n1"].Serve("tcp", 8080); err != nil {
		t.Fatal(err)
	}
	run(t, w.hosts["n1"], program, append([]string{"-w", "-t", "nat", "-A"}, rule...)...)
	const base = "-*>db,dns -pods>meta "
	w.tryRecipe(t, o, text, recipe{want: wants{"tcp 80 /4": base + "+web,db,mon>meta", "tcp 81 /4": base}})
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
	w.tryRecipe(t, o, text+"---"+w.replacer().Replace(agent), recipe{want: wants{"tcp 80 /4": base, "tcp 8080 /4": base + "-pods>n1"},
		ownNode: true})
	run(t, w.hosts["n1"], program, append([]string{"-w", "-t", "nat", "-D"}, rule...)...)
}

// tryUnheard has a pod that has no object yet: rules that name pods do not hold for it, and those that name networks
// do.
func (w *harness) tryUnheard(t *testing.T, o *objects, between, egress string) {
	late := w.addPod(t, "node2", "late", lab.PodConfig{})
	serve(t, late.Host)
	const base, others = "-*>db,dns ", "web,db,api,mon,copy"
	w.tryRecipe(t, o, between, recipe{want: wants{"tcp 80": base + "-" + others + ",dns>" + others + ",dns"}})
	w.tryRecipe(t, o, egress, recipe{want: wants{"tcp 80": base + "-" + others + ">*"}, ownNode: true})
	pod("lab/late")(w, o)
	w.tryRecipe(t, o, between, recipe{want: wants{"tcp 80": base + "-pods>pods"}})
	without("lab/late")(w, o)
	w.apply(t, o)
	w.closePod(t, late)
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
			blocks = append(blocks, regexp.MustCompile(`(?m)^    `).ReplaceAllString(strings.Trim(block, "\n"), "")+"\n")
		}
		if len(blocks) > 0 {
			found[title] = strings.Join(blocks, "---\n")
		}
	}
	return found
}
