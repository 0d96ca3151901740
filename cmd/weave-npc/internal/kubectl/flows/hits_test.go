package flows

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
	"github.com/weave-npc/weave-npc/npc/observe/flowsocket"
)

// counted are a node's hits of one rule.
func counted(node string, count uint64, minutes int) flowlog.Hits {
	at := noon.Add(time.Duration(minutes) * time.Minute)
	rule := flowlog.Applied{RuleRef: flowlog.RuleRef{Tier: "Admin", Policy: "pci", Number: 2, Direction: "egress"}, Content: "c"}
	return flowlog.Hits{Node: node, Since: noon, Complete: noon,
		Rules: []flowlog.Hit{{Applied: rule, Verdict: flowlog.Denied, Count: count, First: at, Last: at}}}
}

// served is a store with hits.
type served struct{ empty }

func (served) Hits() flowlog.Hits { return counted("node1", 3, 0) }

// TestHitsOfANode are those that its weave-npc reports.
func TestHitsOfANode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.sock")
	server, err := flowsocket.Listen(path, served{})
	if err != nil {
		t.Fatal(err)
	}
	go server.Run(t.Context(), slog.New(slog.DiscardHandler))
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		cmd := OfNode(flowsocket.Client{Path: path})
		cmd.SetOut(&out)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetArgs(args)
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	at := noon.Local().Format(time.DateTime)
	want := "LAST                 HITS  VERDICT  RULE\n" +
		at + "  3     denied   egress rule 2 of Admin policy pci\n\nHits are counted since " + at + ".\n"
	if out, err := run("--hits"); out != want || err != nil {
		t.Errorf("%v, %s", err, out)
	}
	for _, args := range [][]string{{"--hits", "-f"}, {"--hits", "--from=shop"}, {"--hits", "--since=1h"}} {
		if out, err := run(args...); out != "" || err == nil || !strings.HasPrefix(err.Error(), "--hits lists rules") {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
}

// TestHitsOfACluster are the sum of those of the nodes that answer, and it is said which did not.
func TestHitsOfACluster(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(fakeKubectl), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, h := range map[string]flowlog.Hits{"a": counted("a", 5, 9), "b": counted("b", 7, 3)} {
		var b bytes.Buffer
		if err := newPrinter(&b, outputJSON).printHits(&h); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("CALLS", filepath.Join(dir, "calls"))
	t.Setenv("ANSWERS", dir)
	var out, stderr bytes.Buffer
	cmd := OfCluster()
	cmd.SetOut(&out)
	cmd.SetErr(&stderr)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs([]string{"--hits", "-o", "json"})
	err := cmd.ExecuteContext(t.Context())
	if err == nil || err.Error() != "1 of 3 nodes did not report their connections" || !strings.Contains(stderr.String(), "node c: ") {
		t.Errorf("%v, %s", err, stderr.String())
	}
	got, err := flowlog.ReadHits(&out)
	want := counted("", 12, 9)
	want.Rules[0].First = noon.Add(3 * time.Minute)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
	calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
	asked := "exec --stdin --namespace=kube-system npc-a --container=weave-npc -- weave-npc flows --hits --output=json\n"
	if !strings.Contains(string(calls), asked) {
		t.Errorf("kubectl is not asked %s, but\n%s", asked, calls)
	}
}
