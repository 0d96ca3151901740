package observe

import (
	"bytes"
	"context"
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

// rolloutPage shows how a default deny is rolled out. Each step has a heading, and manifests begin with their name in a
// comment.
const rolloutPage = "../../../docs/staged.md"

// rollout is a namespace that gets a default deny, as the page says.
type rollout struct {
	*e2e.Cluster
	dir       string
	manifests map[string]string // of the page, by name
	steps     []string          // of the page that are still to come
	known     []func(*testing.T)
}

func newRollout(t *testing.T, backend lab.Backend) *rollout {
	t.Helper()
	w := startRecording(t, backend, e2e.Do(e2e.Base(), e2e.Pod("shop/web", ofDeployment("web")),
		e2e.Pod("shop/db", e2e.Port("http", 80, ""))), "--staged", "namespaces")
	r := &rollout{Cluster: w, dir: flag(w.Daemons[0], "manifests"), manifests: map[string]string{}}
	text, err := os.ReadFile(rolloutPage)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range regexp.MustCompile(`(?m)^### \d+\. (.*)$`).FindAllStringSubmatch(string(text), -1) {
		r.steps = append(r.steps, step[1])
	}
	for _, code := range regexp.MustCompile(`(?m)^    # (\S+\.yaml)\n((?:    .*\n|\n)+)`).FindAllStringSubmatch(string(text), -1) {
		yaml, _, _ := strings.Cut(code[2], "\n    kubectl ")
		r.manifests[code[1]] = regexp.MustCompile(`(?m)^    `).ReplaceAllString(yaml, "")
	}
	db, web, api := w.Hosts["db"], w.Hosts["web"], w.Hosts["api"]
	probe := func(from string, p lab.Packet) func(*testing.T) {
		return func(t *testing.T) { t.Helper(); w.Probe(t, from, p, lab.Allowed) }
	}
	r.known = []func(*testing.T){probe("web", lab.Packet{Proto: "tcp", To: db.Addr4(), Port: 80}),
		probe("api", lab.Packet{Proto: "udp", To: db.Addr4(), Port: 53}),
		probe("out", lab.Packet{Proto: "tcp", To: web.Addr4(), Port: 80}), probe("db",
			lab.Packet{Proto: "tcp", To: api.Addr6(), Port: 80})}
	return r
}

// step begins the next step of the page, and sends what the namespace needs.
func (r *rollout) step(t *testing.T, name string) {
	t.Helper()
	if len(r.steps) == 0 || r.steps[0] != name {
		t.Fatalf("%s goes on with %q, the test with %s", rolloutPage, r.steps, name)
	}
	r.steps = r.steps[1:]
	r.needs(t)
}

func (r *rollout) needs(t *testing.T) {
	t.Helper()
	for _, probe := range r.known {
		probe(t)
	}
}

// apply has manifests of the page, or that were made, in force, and waits until as many policies are staged.
func (r *rollout) apply(t *testing.T, number int, texts ...string) {
	t.Helper()
	stage(t, r.Cluster, r.dir, strings.Join(texts, "---\n"), number)
}

// reported waits until certain connections are reported, as "Pod/mon to Pod/db tcp/80: 1 denied", and no others.
func (r *rollout) reported(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	await.Within(t, e2e.Timeout, func() bool {
		got = nil
		for _, d := range r.Daemons {
			for _, line := range stagedFlows(t, d, "--staged-group=rollout") {
				what, _, _ := strings.Cut(line, " in rollout")
				got = append(got, what)
			}
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	}, func() string { return strings.Join(got, "\n") + "\nis reported, and not\n" + strings.Join(want, "\n") })
}

// propose runs weave-npc propose on what both nodes have recorded.
func (r *rollout) propose(t *testing.T) string {
	t.Helper()
	var text bytes.Buffer
	for _, d := range r.Daemons {
		if err := flowlog.Write(&text, flowsOf(t, d)...); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "flows.jsonl")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Timeout)
	defer cancel()
	out, err := r.Nodes()[0].Command(ctx, e2e.Command(), "propose", "-n", "shop", "--flows", file, "--staged-group",
		"rollout").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestS100_ADefaultDenyIsRolledOut as the page says, step by step: what the namespace needs passes all the time, and
// nothing else at the end.
func TestS100_ADefaultDenyIsRolledOut(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		r := newRollout(t, backend)
		page := r.manifests
		db := r.Hosts["db"].Addr4()
		needed, unwanted := lab.Packet{Proto: "tcp", To: db, Port: 80}, lab.Packet{Proto: "udp", To: db, Port: 53}

		r.step(t, "Record")
		for _, d := range r.Daemons { // until replies are known, which propose asks for
			await.Within(t, e2e.Timeout, func() bool {
				r.needs(t) // again: the kernel may have lost what it reported on a busy node
				return !slices.ContainsFunc(flowsOf(t, d, "--verdict", "allowed"), func(f flowlog.Record) bool {
					return f.Replied == 0 && (f.From.Namespace == "shop" || f.To.Namespace == "shop")
				})
			}, d.Log.String)
		}
		r.step(t, "Propose")
		allow := r.propose(t)
		r.apply(t, 4, allow, page["deny.yaml"])
		r.step(t, "Watch")
		r.Probe(t, "mon", needed, lab.Allowed)
		r.Probe(t, "mon", unwanted, lab.Allowed)
		r.reported(t, "Pod/mon to Pod/db tcp/80: 1 denied", "Pod/mon to Pod/db udp/53: 1 denied")

		r.step(t, "Correct")
		r.apply(t, 5, allow, page["deny.yaml"], page["monitoring.yaml"])
		r.reported(t)
		r.known = append(r.known, func(t *testing.T) { t.Helper(); r.Probe(t, "mon", needed, lab.Allowed) })
		r.needs(t)
		r.Probe(t, "mon", unwanted, lab.Allowed)
		r.reported(t, "Pod/mon to Pod/db udp/53: 1 denied")

		r.step(t, "Hold the door open")
		r.apply(t, 6, allow, page["deny.yaml"], page["monitoring.yaml"], page["allow-all.yaml"])
		r.needs(t)
		r.step(t, "Enforce")
		unstaged := regexp.MustCompile(`(?m)^ +annotations:\n +weave-npc/staged: rollout\n`)
		enforced := []string{unstaged.ReplaceAllString(allow, ""), unstaged.ReplaceAllString(page["deny.yaml"], ""),
			unstaged.ReplaceAllString(page["monitoring.yaml"], "")}
		r.apply(t, 1, append(enforced, page["allow-all.yaml"])...)
		r.needs(t)
		r.Probe(t, "mon", unwanted, lab.Allowed)
		r.reported(t, "Pod/mon to Pod/db udp/53: 1 denied")

		r.step(t, "Close the door")
		open, _, _ := strings.Cut(page["allow-all.yaml"], "---\n")
		r.apply(t, 0, append(enforced, open)...)
		r.apply(t, 0, enforced...)
		closed := unwanted
		closed.Timeout = e2e.DeniedTimeout
		await.Within(t, e2e.Timeout, func() bool {
			seen, err := r.Hosts["mon"].Probe(t.Context(), closed)
			return err == nil && seen == lab.Dropped
		}, func() string { return "the door is open" })
		r.needs(t)
		r.step(t, "If something was forgotten")
		r.apply(t, 1, append(enforced, page["allow-all.yaml"])...)
		r.needs(t)
		r.Probe(t, "mon", unwanted, lab.Allowed)
		if len(r.steps) > 0 {
			t.Errorf("the page has the steps %q, too", r.steps)
		}
		for _, d := range r.Daemons {
			for line := range strings.Lines(d.Log.All()) {
				if strings.Contains(line, "msg=blocked") && !strings.Contains(line, `protocol=UDP from="ops/mon`) {
					t.Errorf("on %s: %s", d.Node, line)
				}
			}
		}
	})
}
