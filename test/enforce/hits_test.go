package enforce

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
	"github.com/weave-npc/weave-npc/test/lab"
)

// awaitHits waits until a node shows certain hits, and returns all of its hits.
func (d *daemon) awaitHits(t *testing.T, want ...string) (h flowlog.Hits) {
	t.Helper()
	var got []string
	await.Within(t, timeout, func() bool {
		out, stderr, status := execute(t, d.node, nil, "flows", "--hits", "-o", "json", "--flows-socket", d.flag("flows-socket"))
		var err error
		if h, err = flowlog.ReadHits(strings.NewReader(out)); status != 0 || err != nil {
			t.Fatalf("flows --hits ends with %d, %v\n%s%s", status, err, out, stderr)
		}
		got = nil
		for _, r := range h.Rules {
			got = append(got, fmt.Sprintf("%d %s by %s", r.Count, r.Verdict, r.Rule))
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	}, func() string {
		return fmt.Sprintf("%s shows\n  %s\nnot\n  %s", d.node, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	})
	return h
}

// TestHitsOfRules are those of the rules that decided, in both directions, over a kill and an edit, and show has them.
func TestHitsOfRules(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		const out = `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [%s{to: [{podSelector: {matchLabels: {app: db}}}]}]}`
		w := startRecording(t, backend, do(recorded(), policy("shop/out", fmt.Sprintf(out, ""))))
		d := w.daemons[0]
		connect := func() {
			t.Helper()
			w.probe(t, "web", lab.Packet{Proto: "tcp", To: w.hosts["db"].Addr4(), Port: 80}, lab.Allowed)
		}
		connect()
		connect()
		w.probe(t, "mon", lab.Packet{Proto: "udp", To: w.hosts["db"].Addr4(), Port: 53}, lab.Dropped) // no rule allows it
		began := d.awaitHits(t, "2 allowed by egress rule 1 of policy shop/out", "2 allowed by ingress rule 1 of policy shop/db").Since
		shows := func(what, line string, args ...string) {
			t.Helper()
			stdout, stderr, status := execute(t, d.node, nil, append([]string{"show", what, "--manifests", w.source.(*manifests).dir}, args...)...)
			if status != 0 || !regexp.MustCompile(line).MatchString(stdout) {
				t.Errorf("show %s ends with %d, and does not say %q:\n%s%s", what, status, line, stderr, stdout)
			}
		}
		kernel := []string{"--node-name", d.node.Name(), "--iptables-backend", string(backend), "--flows-socket", d.flag("flows-socket")}
		shows("rules", `shop/out rule 1 +2 +20\d\d-`, kernel...)
		file := filepath.Join(d.flag("flows-dir"), "hits.json")
		await.Within(t, timeout, func() bool {
			text, _ := os.ReadFile(file)
			return bytes.Count(text, []byte(`"count":2`)) == 2
		}, func() string { return "nothing is kept in " + file })
		d.kill(t)
		d.start(t)
		d.awaitReady(t)
		w.apply(t, w.objects(do(recorded(), policy("shop/out", fmt.Sprintf(out, "{ports: [{port: 443}]}, ")))))
		connect()
		h := d.awaitHits(t, "3 allowed by egress rule 2 of policy shop/out", "3 allowed by ingress rule 1 of policy shop/db")
		if !h.Since.Equal(began) {
			t.Errorf("it counts since %s, not %s", h.Since, began)
		}
		shows("rules", `shop/out rule 1 +0 +never `, kernel...)
		shows("rules", `shop/out rule 2 +3 +20\d\d-`, kernel...)
		kept, _, _ := execute(t, d.node, nil, "flows", "--hits", "-o", "json", "--flows-socket", d.flag("flows-socket"))
		writeFile(t, file+".copy", kept)
		shows("policies", `shop/out .* 0 +never +egress 1: tcp/443 .*\n +3 +20\d\d-.* egress 2: everything`, "--hits="+file+".copy")
	})
}
