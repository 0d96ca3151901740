// Package alerts asks which alerts of prod fire, and whether its dashboard shows metrics that there are. It is a module
// of its own, so that Prometheus is none of the product's dependencies.
package alerts

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

const (
	alerts    = "../../prod/alerts.yaml"
	dashboard = "../../prod/dashboard.json"
	metrics   = "../../docs/metrics.md"
	relay     = "../../docs/relay.md"
	operating = "../../docs/operating.md"
)

// rules returns the alert rules, by name.
func rules(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(alerts, false)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	all := map[string]rulefmt.Rule{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			all[r.Alert] = r
		}
	}
	return all
}

// page returns the metrics that docs/metrics.md and docs/relay.md list -> their labels.
func page(t *testing.T) map[string][]string {
	t.Helper()
	var text []byte
	for _, name := range []string{metrics, relay} {
		part, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, part...)
	}
	all := map[string][]string{"up": nil, "process_cpu_seconds_total": nil, "process_resident_memory_bytes": nil}
	for _, f := range regexp.MustCompile(`(?m)^\| (weavenpc(?:relay)?_\w+) \| (\w+) \| (?:([\w, ]*) )?\|`).FindAllStringSubmatch(string(text), -1) {
		labels := strings.FieldsFunc(f[3], func(r rune) bool { return r == ',' || r == ' ' })
		if all[f[1]] = labels; f[2] == "histogram" {
			all[f[1]+"_bucket"] = append(slices.Clone(labels), "le")
			all[f[1]+"_sum"], all[f[1]+"_count"] = labels, labels
		}
	}
	return all
}

// target are the labels that a scrape adds, the last one if its configuration says so.
var target = []string{"instance", "job", "cluster"}

// check checks that an expression is one, of metrics and labels that there are.
func check(t *testing.T, about, text string, known map[string][]string) {
	t.Helper()
	expr, err := parser.ParseExpr(text)
	if err != nil {
		t.Errorf("%s: %v", about, err)
		return
	}
	labels := slices.Clone(target)
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		s, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		own, there := known[s.Name]
		if !there {
			t.Errorf("%s: there is no metric %s", about, s.Name)
		}
		labels = append(labels, own...)
		for _, m := range s.LabelMatchers {
			if m.Name != "__name__" && !slices.Contains(append(slices.Clone(target), own...), m.Name) {
				t.Errorf("%s: %s has no label %s", about, s.Name, m.Name)
			}
		}
		return nil
	})
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok {
			for _, l := range a.Grouping {
				if !slices.Contains(labels, l) {
					t.Errorf("%s: no metric of it has the label %s", about, l)
				}
			}
		}
		return nil
	})
}

func TestAlertsAreOfMetricsThatThereAre(t *testing.T) {
	for name, r := range rules(t) {
		check(t, name, r.Expr, page(t))
		if r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.For == 0 {
			t.Errorf("%s lacks a severity, a summary, a description or a time", name)
		}
	}
}

// TestEveryAlertIsExplained in docs/operating.md, where its runbook_url leads.
func TestEveryAlertIsExplained(t *testing.T) {
	text, err := os.ReadFile(operating)
	if err != nil {
		t.Fatal(err)
	}
	all := rules(t)
	for name, r := range all {
		if !strings.Contains(string(text), "\n### "+name+"\n\n") {
			t.Errorf("%s has no heading %s", operating, name)
		}
		if want := strings.TrimPrefix(operating, "../../") + "#" + strings.ToLower(name); r.Annotations["runbook_url"] != want {
			t.Errorf("%s leads to %q, not to %s", name, r.Annotations["runbook_url"], want)
		}
	}
	for _, h := range regexp.MustCompile(`(?m)^### (WeaveNPC\w+)$`).FindAllStringSubmatch(string(text), -1) {
		if _, there := all[h[1]]; !there {
			t.Errorf("%s explains %s, which is no alert", operating, h[1])
		}
	}
}

// TestAlertsFire gives each alert what it is for, and what is well. The series have a sample a minute.
func TestAlertsFire(t *testing.T) {
	const latency = `weavenpc_event_latency_seconds_bucket{instance="n1",le="%s"} 0+%dx60` + "\n"
	slow := fmt.Sprintf(latency, "1", 1) + fmt.Sprintf(latency, "16", 10) + fmt.Sprintf(latency, "+Inf", 10)
	fast := fmt.Sprintf(latency, "1", 99) + fmt.Sprintf(latency, "16", 100) + fmt.Sprintf(latency, "+Inf", 100)
	cases := []struct{ alert, fires, quiet string }{
		{"WeaveNPCDown", `up{job="weave-npc",instance="n1"} 0x60`, "up{job=\"weave-npc\",instance=\"n1\"} 1x60\nup{job=\"other\"} 0x60"},
		{"WeaveNPCNotReady", `weavenpc_ready{instance="n1"} 0x60`, `weavenpc_ready{instance="n1"} 0x3 1x57`},
		{"WeaveNPCRelayNotReady", `weavenpcrelay_ready{instance="n1"} 0x60`, `weavenpcrelay_ready{instance="n1"} 0x5 1x55`},
		{"WeaveNPCRelayAlone", `weavenpcrelay_ready{instance="n1"} 1x60`, "weavenpcrelay_ready{instance=\"n1\"} 1x60\nweavenpcrelay_ready{instance=\"n2\"} 1x60"},
		{"WeaveNPCRelayRejects", `weavenpcrelay_rejected_tokens_total{instance="n1",reason="account"} 0+5x60`,
			`weavenpcrelay_rejected_tokens_total{instance="n1",reason="absent"} 0+5x60`},
		{"WeaveNPCFailing", `weavenpc_failing{instance="n1",family="IPv6"} 1x60`, `weavenpc_failing{instance="n1",family="IPv6"} 0x28 1 0x31`},
		{"WeaveNPCStale", `weavenpc_last_sync_timestamp_seconds{instance="n1"} 0x60`, `weavenpc_last_sync_timestamp_seconds{instance="n1"} 0+60x60`},
		{"WeaveNPCSlow", slow, fast},
		{"WeaveNPCErrors", `weavenpc_policy_enforcement_errors{instance="n1"} 0+1x60`, `weavenpc_policy_enforcement_errors{instance="n1"} 0x20 3x40`},
		{"WeaveNPCDrift", `weavenpc_drift_total{instance="n1",family="IPv4",kind="chain"} 0+6x60`,
			`weavenpc_drift_total{instance="n1",family="IPv4",kind="chain"} 0x20 1x40`},
		{"WeaveNPCFailClosed", `weavenpc_fail_closed{instance="n1",direction="ingress"} 1x60`,
			`weavenpc_fail_closed{instance="n1",direction="ingress"} 0x25 1x35`},
		{"WeaveNPCInvalidPolicy", "weavenpc_invalid_policies{instance=\"n1\"} 0x60\nweavenpc_invalid_policies{instance=\"n2\"} 2x60",
			`weavenpc_invalid_policies{instance="n1"} 0x60`},
		{"WeaveNPCInvalidClusterPolicy", "weavenpc_invalid_cluster_policies{instance=\"n1\"} 0x60\n" +
			`weavenpc_invalid_cluster_policies{instance="n2"} 2x60`,
			"weavenpc_invalid_cluster_policies{instance=\"n1\"} 0x60\nweavenpc_cluster_policies{instance=\"n1\"} 3x60"},
		{"WeaveNPCRejectedPolicy", `weavenpc_rejected_policies{instance="n1"} 1x60`, `weavenpc_rejected_policies{instance="n1"} 0x60`},
		{"WeaveNPCNoReports", `weavenpc_ulogd_running{instance="n1"} 0x60`, `weavenpc_ulogd_running{instance="n1"} 1x25 0x35`},
		{"WeaveNPCUlogdRestarts", `weavenpc_ulogd_restarts_total{instance="n1"} 0+1x60`, `weavenpc_ulogd_restarts_total{instance="n1"} 0x25 2x35`},
		{"WeaveNPCReportsLost", `weavenpc_nflog_lost_packets_total{instance="n1"} 0+100x60`, `weavenpc_nflog_lost_packets_total{instance="n1"} 5x60`},
		{"WeaveNPCManyBlocked", "weavenpc_blocked_connections_total{instance=\"n1\",protocol=\"tcp\",dport=\"80\"} 0+2000x60\n" +
			`weavenpc_blocked_connections_total{instance="n1",protocol="udp",dport="other"} 0+2000x60`,
			`weavenpc_blocked_connections_total{instance="n1",protocol="tcp",dport="80"} 0+2000x60`},
		{"WeaveNPCTerminationFails", `weavenpc_termination_failures_total{instance="n1"} 0+1x60`, `weavenpc_termination_failures_total{instance="n1"} 0x20 3x40`},
		{"WeaveNPCNotRecording", `weavenpc_flows_recording{instance="n1"} 0x60`, `weavenpc_flows_recording{instance="n1"} 1x25 0x35`},
		{"WeaveNPCStagedWouldDrop", `weavenpc_staged_connections_total{instance="n1",group="true",policy="shop/deny",outcome="would_drop"} 0+1x60`,
			`weavenpc_staged_connections_total{instance="n1",group="true",policy="shop/deny",outcome="would_allow"} 0+1x60`},
		{"WeaveNPCStagedRejected", `weavenpc_staged_rejected_policies{instance="n1"} 1x60`, `weavenpc_staged_rejected_policies{instance="n1"} 0x60`},
		{"WeaveNPCRelayNotUsed", `weavenpc_relay_watches{instance="n1",through="api"} 4x60`,
			"weavenpc_relay_watches{instance=\"n1\",through=\"api\"} 0x25 4x35\nweavenpc_relay_watches{instance=\"n1\",through=\"relay\"} 4x60"},
		{"WeaveNPCDomainAnswersDropped", `weavenpc_domain_dropped_answers_total{instance="n1",reason="lost"} 0+30x60`,
			`weavenpc_domain_dropped_answers_total{instance="n1",reason="lost"} 0+3x60`},
		{"WeaveNPCFlowsLost", `weavenpc_flows_lost_events_total{instance="n1"} 0+120x60`, `weavenpc_flows_lost_events_total{instance="n1"} 0+30x60`},
	}
	all := rules(t)
	for _, c := range cases {
		t.Run(c.alert, func(t *testing.T) {
			r, ok := all[c.alert]
			if !ok {
				t.Fatal("there is no such alert")
			}
			delete(all, c.alert)
			if !fires(t, r, c.fires) {
				t.Errorf("it is quiet with\n%s", c.fires)
			}
			if fires(t, r, c.quiet) {
				t.Errorf("it fires with\n%s", c.quiet)
			}
			checkKeepsCluster(t, r, c.fires)
		})
	}
	for name := range all {
		t.Errorf("%s is not tested", name)
	}
}

// checkKeepsCluster gives an alert what it fires for in two clusters at once: it fires for each of them, and says
// which.
func checkKeepsCluster(t *testing.T, r rulefmt.Rule, series string) {
	t.Helper()
	one := strings.ReplaceAll(strings.TrimSpace(series), `instance=`, `cluster="one",instance=`)
	got := map[string]bool{}
	for _, s := range firing(t, r, one+"\n"+strings.ReplaceAll(one, `"one"`, `"two"`)) {
		got[s.Metric.Get("cluster")] = true
	}
	if len(got) != 2 || !got["one"] || !got["two"] {
		t.Errorf("it fires in clusters one and two, and says %v", got)
	}
}

// fires reports whether an alert fires after half an hour, that is, whether its condition has held for long enough.
func fires(t *testing.T, r rulefmt.Rule, series string) bool {
	t.Helper()
	return len(firing(t, r, series)) > 0
}

// firing returns for what an alert fires after half an hour.
func firing(t *testing.T, r rulefmt.Rule, series string) promql.Vector {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load 1m\n  "+strings.ReplaceAll(strings.TrimSpace(series), "\n", "\n  "))
	defer storage.Close()
	engine := promqltest.NewTestEngine(t, false, 5*time.Minute, 1e6)
	end := time.Unix(0, 0).Add(30 * time.Minute)
	var v promql.Vector
	for at := end.Add(-time.Duration(r.For)); !at.After(end); at = at.Add(time.Minute) {
		q, err := engine.NewInstantQuery(t.Context(), storage, promql.NewPrometheusQueryOpts(false, 0), r.Expr, at)
		if err != nil {
			t.Fatal(err)
		}
		result := q.Exec(t.Context())
		if result.Err != nil {
			t.Fatal(result.Err)
		}
		if v, err = result.Vector(); err != nil {
			t.Fatal(err)
		}
		if len(v) == 0 {
			return nil
		}
	}
	return v
}

// panel is what a test wants to know of a dashboard's panel.
type panel struct {
	ID      int
	Type    string
	Title   string
	GridPos struct{ H, W, X, Y int }
	Targets []struct{ Expr string }
}

// variable is what a dashboard lets its reader choose.
type variable struct{ Name, Definition, AllValue string }

// TestDashboard loads the dashboard as Grafana would: unique numbers, no panel above another, and expressions of
// metrics that there are.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile(dashboard)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Title, UID string
		Panels     []panel
		Templating struct {
			List []variable
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.Title == "" || d.UID == "" || len(d.Panels) == 0 {
		t.Error("no title, no uid or no panel")
	}
	want := []variable{{"datasource", "", ""}, {"cluster", "label_values(weavenpc_ready, cluster)", ".*"}, // .* is also what has no such label
		{"instance", `label_values(weavenpc_ready{cluster=~"$cluster"}, instance)`, ".*"}}
	if !slices.Equal(d.Templating.List, want) {
		t.Errorf("the variables are %q", d.Templating.List)
	}
	variables := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*", "$cluster", ".*")
	seen, taken, shown := map[int]bool{}, map[[2]int]string{}, map[string]bool{}
	known, series := page(t), regexp.MustCompile(`_(bucket|sum|count)$`) // of a histogram
	for _, p := range d.Panels {
		if seen[p.ID] {
			t.Errorf("two panels have the number %d", p.ID)
		}
		seen[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%q is where %q is, or outside", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			if n := strings.Count(target.Expr, `instance=~"$instance"`); n == 0 || n != strings.Count(target.Expr, `cluster=~"$cluster",instance`) {
				t.Errorf("%q shows other nodes or clusters than the selected ones: %s", p.Title, target.Expr)
			}
			expr := variables.Replace(target.Expr)
			check(t, p.Title, expr, known)
			for name := range known {
				if regexp.MustCompile(`\b` + name + `\b`).MatchString(expr) {
					shown[series.ReplaceAllString(name, "")] = true
				}
			}
		}
	}
	for name := range known {
		if !shown[series.ReplaceAllString(name, "")] && name != "up" {
			t.Errorf("no panel shows %s", name)
		}
	}
}
