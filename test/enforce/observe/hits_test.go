package observe

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// awaitHits waits until a node shows certain hits, and returns all of its hits.
func awaitHits(t *testing.T, d *e2e.Daemon, want ...string) (h flowlog.Hits) {
	t.Helper()
	var got []string
	await.Within(t, e2e.Timeout, func() bool {
		out, stderr, status := e2e.Execute(t, d.Node, nil, "flows", "--hits", "-o", "json", "--flows-socket",
			flag(d, "flows-socket"))
		var err error
		if h, err = flowlog.ReadHits(strings.NewReader(out)); status != 0 || err != nil {
			t.Fatalf("flows --hits ends with %d, %v\n%s%s", status, err, out, stderr)
		}
		got = nil
		for _, r := range h.Rules {
			got = append(got, fmt.Sprintf("%d %s by %s", r.Count, r.Verdict, r.RuleRef))
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	}, func() string {
		return fmt.Sprintf("%s shows\n  %s\nnot\n  %s", d.Node, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	})
	return h
}

// TestHitsOfRules are those of the rules that decided, in both directions, over a kill and an edit, and show has them.
func TestHitsOfRules(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		const out = `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [%s{to: [{podSelector: {matchLabels: {app: db}}}]}]}`
		w := startRecording(t, backend, e2e.Do(recorded(), e2e.Policy("shop/out", fmt.Sprintf(out, ""))))
		d := w.Daemons[0]
		connect := func() {
			t.Helper()
			w.Probe(t, "web", lab.Packet{Proto: "tcp", To: w.Hosts["db"].Addr4(), Port: 80}, lab.Allowed)
		}
		connect()
		connect()
		w.Probe(t, "mon", lab.Packet{Proto: "udp", To: w.Hosts["db"].Addr4(), Port: 53}, lab.Dropped) // no rule allows it
		began := awaitHits(t, d, "2 allowed by egress rule 1 of policy shop/out",
			"2 allowed by ingress rule 1 of policy shop/db").Since
		shows := func(what, line string, args ...string) {
			t.Helper()
			stdout, stderr, status := e2e.Execute(t, d.Node, nil,
				append([]string{"show", what, "--manifests", w.Source.(*e2e.Manifests).Dir}, args...)...)
			if status != 0 || !regexp.MustCompile(line).MatchString(stdout) {
				t.Errorf("show %s ends with %d, and does not say %q:\n%s%s", what, status, line, stderr, stdout)
			}
		}
		kernel := []string{"--node-name", d.Node.Name(), "--iptables-backend", string(backend), "--flows-socket",
			flag(d, "flows-socket")}
		shows("rules", `shop/out rule 1 +2 +20\d\d-`, kernel...)
		file := filepath.Join(flag(d, "flows-dir"), "hits.json")
		await.Within(t, e2e.Timeout, func() bool {
			text, _ := os.ReadFile(file)
			return bytes.Count(text, []byte(`"count":2`)) == 2
		}, func() string { return "nothing is kept in " + file })
		d.Kill(t)
		d.Start(t)
		d.AwaitReady(t)
		w.Apply(t, w.Objects(e2e.Do(recorded(), e2e.Policy("shop/out", fmt.Sprintf(out, "{ports: [{port: 443}]}, ")))))
		connect()
		h := awaitHits(t, d, "3 allowed by egress rule 2 of policy shop/out",
			"3 allowed by ingress rule 1 of policy shop/db")
		if !h.Since.Equal(began) {
			t.Errorf("it counts since %s, not %s", h.Since, began)
		}
		shows("rules", `shop/out rule 1 +0 +never `, kernel...)
		shows("rules", `shop/out rule 2 +3 +20\d\d-`, kernel...)
		kept, _, _ := e2e.Execute(t, d.Node, nil, "flows", "--hits", "-o", "json", "--flows-socket",
			flag(d, "flows-socket"))
		e2e.WriteFile(t, file+".copy", kept)
		shows("policies", `shop/out .* 0 +never +egress 1: tcp/443 .*\n +3 +20\d\d-.* egress 2: everything`,
			"--hits="+file+".copy")
	})
}
