package page

import (
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/analysis/matrix"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/nightly"
	"github.com/weave-npc/weave-npc/test/random"
)

// asking makes the page's script answer for each service and for each pair of its pods and addresses: a letter, and on
// one of the services the reasons. Of the letters of all services the page makes one for every port.
const asking = `((seed) => {
	const data = readData(), engine = newEngine(data), services = data.services.map(g => ({...g, port: g.r ? g.r[0][0] : 0}));
	const ends = [];
	for (const [number, row] of data.rows.entries()) for (let pod = 0; pod < (row.d || [""]).length; pod++) {
		ends.push({row: number, pod, name: row.d ? podName(row, pod) : row.n, ends: endsOf(data, row, pod)});
	}
	const cells = services.map(s => newCells(data, engine.relation([s]))), every = newCells(data, engine.relation(services));
	const item = e => ({key: e.name, rows: [e.row], pod: e.pod});
	const letters = of => ends.map(a => ends.map(b => of.letter(item(a), item(b))).join(""));
	const shown = services[seed % services.length];
	const domains = Object.fromEntries(data.classes.filter(c => c.d).map(c => [c.d, c.a[0]]));
	return JSON.stringify({domains, names: ends.map(e => e.name), services: services.map(s => s.a), shown: shown.a,
		letters: cells.map(letters), every: letters(every),
		reasons: ends.map(a => ends.map(b => explainPair(data, a.ends, b.ends, shown).join("\n")))});
})`

// answers is what the page answers.
type answers struct {
	// Domains are the addresses that stand for domain names.
	Domains         map[string]string
	Names, Services []string
	Shown           string
	Letters         [][]string
	Every           []string
	Reasons         [][]string
}

// endsOf returns the ends of a pod or an address.
func endsOf(t *testing.T, v *cluster.View, text string) []flow.End {
	t.Helper()
	if strings.Contains(text, "/") {
		return v.OwnedEnds(text)
	}
	ends, err := v.Find(text)
	if err != nil {
		t.Fatal(err)
	}
	return ends
}

// verdicts returns what explain answers about two pods or addresses.
func verdicts(t *testing.T, v *cluster.View, from, to string, s flow.Service) (out []explain.Verdict) {
	t.Helper()
	for _, f := range flow.Between(endsOf(t, v, from), endsOf(t, v, to), s) {
		out = append(out, explain.Explain(v, f))
	}
	return out
}

// letterOf returns the letter of a cell for the verdicts of one or several services.
func letterOf(all []explain.Verdict) byte {
	allowed, unknown := 0, 0
	for _, v := range all {
		if v.Allowed {
			allowed++
		}
		if v.Unknown {
			unknown++
		}
	}
	switch {
	case len(all) == 0:
		return 'n'
	case allowed == 0 && unknown > 0:
		return 'u'
	case allowed == 0:
		return 'd'
	case allowed == len(all):
		return 'a'
	}
	return 'p'
}

// TestThePageAnswersAsExplainDoes compares cells and reasons of random clusters.
func TestThePageAnswersAsExplainDoes(t *testing.T) {
	b := newBrowser(t, 1000, 800)
	alone, tiers, open, byName, states := 0, 0, 0, 0, nightly.Times(20, 80)
	for seed := range uint64(states) {
		c := random.Cluster(t, rand.New(rand.NewPCG(seed, 2)))
		if seed%3 == 0 {
			c.SetClusterPolicy(fixture.ClusterPolicy(t, "names", `{tier: Admin, priority: 10, subject: {namespaces: {matchLabels: {team: x}}}, egress: [
				{action: Accept, to: [{domainNames: [api.example.com, "*.example.org"]}], protocols: [{tcp: {destinationPort: {number: 443}}}]},
				{action: Accept, to: [{domainNames: ["*.example.com"]}]}, {action: Deny, to: [{networks: [0.0.0.0/0]}]}]}`))
		}
		c.SetLearned(nil) // the page knows no answers of resolvers
		v := c.View()
		file := written(t, v, matrix.PageOptions{AllPorts: true, Options: matrix.Options{
			Addresses: []string{"172.31.0.1", "10.32.0.9", "224.0.0.1", "fd99::1", "192.0.2.9"}}})
		b.open(file, "")
		var got answers
		if err := json.Unmarshal([]byte(b.text(asking+"("+string(rune('0'+seed%10))+")")), &got); err != nil {
			t.Fatal(err)
		}
		shown, err := flow.ParseService(got.Shown)
		if err != nil {
			t.Fatal(err)
		}
		for i, from := range got.Names {
			if got.Domains[from] != "" {
				continue // domain names are columns
			}
			for j, to := range got.Names {
				v, to, name := v, to, ""
				if addr := got.Domains[to]; addr != "" {
					v, to, name = cluster.WithLearned(v, map[netip.Addr][]string{netip.MustParseAddr(addr): {to}}), addr, to
				}
				var all []explain.Verdict
				for k, text := range got.Services {
					s, err := flow.ParseService(text)
					if err != nil {
						t.Fatal(err)
					}
					asked := verdicts(t, v, from, to, s)
					all = append(all, asked...)
					if want := letterOf(asked); i != j && got.Letters[k][i][j] != want {
						t.Fatalf("seed %d: %s -> %s, %s: the page says %c, not %c\n%s", seed, from, to, s, got.Letters[k][i][j], want, explain.Text(asked))
					}
				}
				if want := letterOf(all); i != j && got.Every[i][j] != want {
					t.Fatalf("seed %d: %s -> %s, every port: the page says %c, not %c", seed, from, to, got.Every[i][j], want)
				}
				want := strings.TrimSpace(explain.Text(verdicts(t, v, from, to, shown)))
				if name != "" {
					want = strings.ReplaceAll(want, ": "+to+" is an address of "+name, " the domain name")
					want = strings.ReplaceAll(want, to, name)
				}
				if got := got.Reasons[i][j]; got != want {
					t.Fatalf("seed %d: the page says\n%s\nand explain\n%s", seed, got, want)
				}
				if strings.Contains(want, "conflict:") {
					alone++
				}
				if strings.Contains(want, "without it:") {
					tiers++
				}
				if strings.Contains(want, ": unknown") {
					open++
				}
				if strings.Contains(want, "matches the domain name") {
					byName++
				}
			}
		}
	}
	t.Logf("%d reasons name conflicts, %d name cluster network policies that decide, %d are not known, %d name a domain name",
		alone, tiers, open, byName)
	if min(alone, tiers) < 4*states || min(open, byName) < states {
		t.Error("too few of them")
	}
}
