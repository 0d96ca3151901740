package flows

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
	"github.com/weave-npc/weave-npc/npc/observe/flowsocket"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// end makes an end of "shop Deployment/web web-1 10.32.1.2", or of an address, after "node" for a node's.
func end(text string) flowlog.End {
	words := strings.Fields(text)
	addr := netip.MustParseAddr(words[len(words)-1])
	if len(words) < 4 {
		return flowlog.End{Addr: addr, NodeAddr: len(words) == 2}
	}
	return flowlog.End{Namespace: words[0], Workload: words[1], Pod: words[2], Addr: addr}
}

const (
	web     = "shop Deployment/web web-1 10.32.1.2"
	db      = "data StatefulSet/db db-0 10.32.2.2"
	outside = "192.0.2.1"
)

func record(node string, v flowlog.Verdict, from, to string, count, replied uint64) flowlog.Record {
	return flowlog.Record{First: noon, Last: noon.Add(time.Duration(count) * time.Second), Count: count, Replied: replied, Node: node, From: end(from), To: end(to),
		Port: flow.Service{Protocol: 6, Port: 5432}, PortNames: []string{"pg"}, Verdict: v}
}

func TestFilters(t *testing.T) {
	r := record("node1", flowlog.Allowed, web, db, 60, 1)
	r.Staged = []flowlog.Staged{{Group: "true", Verdict: flowlog.Denied, Policy: "data/p"}}
	for _, test := range []struct {
		name  string
		query query
		want  bool
	}{
		{"everything", query{}, true},
		{"namespace", query{from: "shop", to: "data"}, true},
		{"another namespace", query{from: "sho"}, false},
		{"workload", query{from: "shop/web", to: "data/StatefulSet/db"}, true},
		{"pod", query{from: "shop/web-1"}, true},
		{"workload by a kind of kubectl", query{from: "shop/deploy/web", to: "data/sts/db"}, true},
		{"workload of another kind", query{from: "shop/job/web"}, false},
		{"pod by its kind", query{from: "shop/pod/web-1"}, true},
		{"a workload is no pod", query{from: "shop/pod/web"}, false},
		{"another workload", query{from: "shop/we"}, false},
		{"address", query{from: "10.32.1.2", to: "::ffff:10.32.2.2"}, true},
		{"another address", query{from: "10.32.2.2"}, false},
		{"CIDR", query{to: "10.32.2.0/24"}, true},
		{"another CIDR", query{to: "10.32.1.0/24"}, false},
		{"port", query{port: "tcp/5432"}, true},
		{"port of another protocol", query{port: "udp/5432"}, false},
		{"named port", query{port: "pg"}, true},
		{"named port of another protocol", query{port: "udp/pg"}, false},
		{"verdict", query{verdict: "allowed"}, true},
		{"another verdict", query{verdict: "denied"}, false},
		{"lately", query{since: 10 * time.Minute}, true},
		{"not lately", query{since: time.Minute}, false},
		{"any group", query{group: anyGroup}, true},
		{"a group", query{group: "true"}, true},
		{"another group", query{group: "w"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, err := test.query.parse(noon.Add(5 * time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			if got := f.matches(&r); got != test.want {
				t.Errorf("%t", got)
			}
		})
	}
	r.To = flowlog.End{Addr: netip.MustParseAddr(outside), DomainNames: []string{"a.example.com", "b.example.com"}}
	for to, want := range map[string]bool{"B.example.com": true, "example.com": false, outside: true, "data": false} {
		if f, err := (&query{to: to}).parse(noon); err != nil || f.matches(&r) != want {
			t.Errorf("to %s: %v, want %t", to, err, want)
		}
	}
	var text bytes.Buffer
	if err := table(&text, []flowlog.Record{r}); err != nil || !strings.Contains(text.String(), "  192.0.2.1 (a.example.com,b.example.com)  tcp/5432 (pg)") {
		t.Errorf("%v, the table is\n%s", err, text.String())
	}
	for want, q := range map[string]query{"--from": {from: "/web"}, `--from: "deploy/web" has no namespace: write NAMESPACE/deploy/web`: {from: "deploy/web"},
		`--to: "svc/db.data" is a Service`: {to: "svc/db.data"}, `--from: "10.0.0.0/33"`: {from: "10.0.0.0/33"}, "--to": {to: "shop/"}, "--port": {port: "tpc/80"}, "--verdict": {verdict: "deny"}, "--since": {since: -1}} {
		if _, err := q.parse(noon); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// TestMerge shows what several nodes' records say together.
func TestMerge(t *testing.T) {
	const allowed, denied = flowlog.Allowed, flowlog.Denied
	for _, test := range []struct {
		name string
		all  []flowlog.Record
		want []string
	}{
		{"the same connections, seen twice", []flowlog.Record{record("a", allowed, web, db, 5, 1), record("b", allowed, web, db, 5, 2)}, []string{"allowed 5 2"}},
		{"many nodes' connections to one", []flowlog.Record{record("a", allowed, web, db, 5, 0), record("b", allowed, web, db, 5, 0), record("c", allowed, web, db, 10, 3)},
			[]string{"allowed 10 3"}},
		{"many nodes' connections to many", []flowlog.Record{record("a", allowed, web, db, 6, 0), record("b", allowed, web, db, 6, 0), record("c", allowed, web, db, 6, 0)},
			[]string{"allowed 9 0"}},
		{"from outside", []flowlog.Record{record("a", allowed, outside, db, 5, 1), record("b", allowed, outside, db, 6, 0)}, []string{"allowed 11 1"}},
		{"denied where it goes", []flowlog.Record{record("a", allowed, web, db, 5, 0), record("b", denied, web, db, 2, 0)}, []string{"denied 2 0"}},
		{"denied for a while", []flowlog.Record{record("a", allowed, web, db, 5, 1), record("b", allowed, web, db, 3, 1), record("b", denied, web, db, 2, 0)},
			[]string{"denied 2 0", "allowed 5 1"}},
		{"others", []flowlog.Record{record("a", allowed, web, db, 1, 0), record("a", allowed, db, web, 1, 0)}, []string{"allowed 1 0", "allowed 1 0"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, r := range merge(test.all) {
				got = append(got, fmt.Sprintf("%s %d %d", r.Verdict, r.Count, r.Replied))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	early, late := record("a", allowed, web, db, 1, 0), record("b", allowed, web, db, 9, 0)
	early.First, late.To.Pod = noon.Add(-time.Hour), "db-1"
	for _, all := range [][]flowlog.Record{{early, late}, {late, early}} {
		all[0].To.DomainNames = []string{"a.example.com"}
		if got := merge(all)[0]; len(got.To.DomainNames) != 1 || !got.First.Equal(early.First) || !got.Last.Equal(late.Last) || got.To.Pod != "db-1" || got.Node != "" {
			t.Errorf("%+v", got)
		}
	}
}

// TestS100_MergedGroups says of connections what groups would do with them on all nodes together.
func TestS100_MergedGroups(t *testing.T) {
	in := func(r flowlog.Record, groups ...flowlog.Staged) flowlog.Record {
		r.Staged = groups
		return r
	}
	would := func(group string, v flowlog.Verdict, count uint64, policy string) flowlog.Staged {
		return flowlog.Staged{Group: group, Verdict: v, Count: count, Policy: policy, First: noon, Last: noon.Add(time.Duration(count) * time.Second)}
	}
	const allowed, denied = flowlog.Allowed, flowlog.Denied
	for _, test := range []struct {
		name string
		all  []flowlog.Record
		want []string
	}{
		{"one_node_would_drop", []flowlog.Record{in(record("a", allowed, web, db, 5, 1), would("w", denied, 3, "data/p")), record("b", allowed, web, db, 5, 1)},
			[]string{"allowed w: 3 denied by data/p"}},
		{"both_would", []flowlog.Record{in(record("a", allowed, web, db, 5, 1), would("w", denied, 3, "shop/p")),
			in(record("b", allowed, web, db, 5, 1), would("w", denied, 5, "data/p"), would("x", denied, 1, "data/q"))},
			[]string{"allowed w: 5 denied by data/p; x: 1 denied by data/q"}},
		{"denied_where_it_goes_and_would_not_be", []flowlog.Record{record("a", allowed, web, db, 5, 0), in(record("b", denied, web, db, 2, 0), would("w", allowed, 2, "data/p"))},
			[]string{"denied w: 2 allowed by data/p"}},
		{"but_would_be_where_it_comes_from", []flowlog.Record{in(record("a", allowed, web, db, 5, 0), would("w", denied, 5, "shop/p")),
			in(record("b", denied, web, db, 2, 0), would("w", allowed, 2, "data/p"))}, []string{"denied "}},
		{"denied_where_it_goes_as_before", []flowlog.Record{in(record("a", allowed, web, db, 5, 0), would("w", denied, 5, "shop/p")), record("b", denied, web, db, 2, 0)},
			[]string{"denied "}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, r := range merge(test.all) {
				var groups []string
				for _, s := range r.Staged {
					groups = append(groups, fmt.Sprintf("%s: %d %s by %s", s.Group, s.Count, s.Verdict, s.Policy))
				}
				got = append(got, fmt.Sprintf("%s %s", r.Verdict, strings.Join(groups, "; ")))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestTable is what an operator reads.
func TestTable(t *testing.T) {
	by := record("a", flowlog.Denied, outside, db, 3, 0)
	by.By = &flowlog.RuleRef{Policy: "data/p", Direction: "ingress", Number: 2}
	byTier := record("a", flowlog.Allowed, "node 172.31.0.11", db, 2, 2)
	byTier.By = &flowlog.RuleRef{Tier: "Admin", Policy: "pci", Direction: "egress"}
	byTier.PortNames = nil
	var b strings.Builder
	if err := newPrinter(&b, outputText).print([]flowlog.Record{by, byTier, record("a", flowlog.Allowed, web, db, 1, 0)}); err != nil {
		t.Fatal(err)
	}
	at := func(seconds int) string {
		return noon.Add(time.Duration(seconds) * time.Second).Local().Format(time.DateTime)
	}
	want := "LAST                 VERDICT  FROM                 TO                   PORT           COUNT  REPLIED  BY\n" +
		at(1) + "  allowed  shop/Deployment/web  data/StatefulSet/db  tcp/5432 (pg)  1      no       -\n" +
		at(2) + "  allowed  node 172.31.0.11     data/StatefulSet/db  tcp/5432       2      yes      no egress rule of Admin policy pci\n" +
		at(3) + "  denied   192.0.2.1            data/StatefulSet/db  tcp/5432 (pg)  3      -        ingress rule 2 of policy data/p\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	b.Reset()
	staged := record("a", flowlog.Allowed, web, db, 7, 1)
	staged.Staged = []flowlog.Staged{{Group: "true", Verdict: flowlog.Denied, Count: 2, Policy: "data/deny"}, {Group: "w", Verdict: flowlog.Denied, Count: 7, Policy: "pci"}}
	if err := newPrinter(&b, outputText).print([]flowlog.Record{record("a", flowlog.Allowed, web, db, 1, 0), staged}); err != nil {
		t.Fatal(err)
	}
	want = "LAST                 VERDICT  FROM                 TO                   PORT           COUNT  REPLIED  BY  STAGED\n" +
		at(1) + "  allowed  shop/Deployment/web  data/StatefulSet/db  tcp/5432 (pg)  1      no       -\n" +
		at(7) + "  allowed  shop/Deployment/web  data/StatefulSet/db  tcp/5432 (pg)  7      yes      -  true: 2 denied by data/deny; w: 7 denied by pci\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// empty is a store without records.
type empty struct{}

func (empty) Since(uint64) ([]flowlog.Record, uint64) { return nil, 0 }

func (empty) Hits() flowlog.Hits { return flowlog.Hits{} }

// TestFollowingEndsWithItsInput, so that nothing runs on in a container when its caller has gone.
func TestFollowingEndsWithItsInput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.sock")
	server, err := flowsocket.Listen(path, empty{})
	if err != nil {
		t.Fatal(err)
	}
	go server.Run(t.Context(), slog.New(slog.DiscardHandler))
	in, caller := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		cmd := OfNode(flowsocket.Client{Path: path})
		cmd.SetArgs([]string{"-f", "--end-with-input"})
		cmd.SetIn(in)
		ended <- cmd.ExecuteContext(t.Context())
	}()
	select {
	case err := <-ended:
		t.Fatalf("it ends at once: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	_ = caller.Close()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it runs on")
	}
}

// fakeKubectl answers as a cluster with three nodes. One of them does not record. It writes down what it was asked.
const fakeKubectl = `#!/bin/sh
echo "$@" >>"$CALLS"
case "$*" in
*"get pods"*) echo '{"items": [
  {"metadata": {"namespace": "kube-system", "name": "npc-a"}, "spec": {"nodeName": "a"}, "status": {"phase": "Running"}},
  {"metadata": {"namespace": "kube-system", "name": "npc-b"}, "spec": {"nodeName": "b"}, "status": {"phase": "Running"}},
  {"metadata": {"namespace": "kube-system", "name": "npc-c"}, "spec": {"nodeName": "c"}, "status": {"phase": "Running"}},
  {"metadata": {"namespace": "kube-system", "name": "npc-d"}, "spec": {"nodeName": "d"}, "status": {"phase": "Pending"}}]}' ;;
*npc-a*) cat "$ANSWERS/a" ;;
*npc-b*) cat "$ANSWERS/b" ;;
*) echo "weave-npc: nothing is recorded" >&2; echo "command terminated with exit code 1" >&2; exit 1 ;;
esac
`

// TestComplaintsOfKubectl are without what kubectl logs while it tries again.
func TestComplaintsOfKubectl(t *testing.T) {
	const refused = "The connection to the server localhost:8080 was refused - did you specify the right host or port?\n"
	for _, c := range []struct{ name, complaint, want string }{
		{"logged", "E1129 15:23:48.006931    9281 memcache.go:265] \"Unhandled Error\" err=\"dial tcp\"\n" + refused, "asking: " + strings.TrimSpace(refused)},
		{"several_lines", "error: a\n  b\n", "asking: error: a b"},
		{"only_logged", "W1129 15:23:48.006931    9281 a.go:1] b\n", "asking: exit status 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := failure("asking", errors.New("exit status 1"), bytes.NewBufferString(c.complaint)); got.Error() != c.want {
				t.Errorf("%v, want %s", got, c.want)
			}
		})
	}
}

// TestFlowsOfACluster asks each node's pod, merges what they say, and says which did not answer.
func TestFlowsOfACluster(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(fakeKubectl), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]flowlog.Record{"a": record("a", flowlog.Allowed, web, db, 5, 0), "b": record("b", flowlog.Denied, web, db, 2, 0)} {
		var b bytes.Buffer
		if err := newPrinter(&b, outputJSON).print([]flowlog.Record{r}); err != nil {
			t.Fatal(err)
		}
		b.WriteString("{\"from\": {\"workload\": \"a\\u001b\"}}\n") // no record
		if err := os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	calls := filepath.Join(dir, "calls")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("CALLS", calls)
	t.Setenv("ANSWERS", dir)
	run := func(args ...string) (out, stderr string, err error) {
		var o, e bytes.Buffer
		cmd := OfCluster()
		cmd.SetOut(&o)
		cmd.SetErr(&e)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetArgs(args)
		err = cmd.ExecuteContext(t.Context())
		return o.String(), e.String(), err
	}
	out, stderr, err := run("--context", "prod", "--from", "shop", "--since", "1h", "-o", "json")
	if err == nil || err.Error() != "1 of 3 nodes did not report their connections" || !strings.Contains(stderr, "node c: asking pod kube-system/npc-c: weave-npc: nothing is recorded") {
		t.Errorf("%v, %s", err, stderr)
	}
	if !strings.Contains(stderr, "weave-npc: 2 lines skipped, which are no records of connections, such as line 2: ") {
		t.Errorf("what is no record is not noted: %s", stderr)
	}
	if strings.Count(out, "\n") != 1 || !strings.Contains(out, `"verdict":"denied"`) || !strings.Contains(out, `"count":2`) {
		t.Error(out)
	}
	asked, _ := os.ReadFile(calls)
	for _, want := range []string{"--context=prod get pods --all-namespaces --selector=network-policy-controller=weave-npc --output=json",
		"--context=prod exec --stdin --namespace=kube-system npc-a --container=weave-npc -- weave-npc flows --output=json --from=shop --since=1h0m0s"} {
		if !strings.Contains(string(asked), want+"\n") {
			t.Errorf("kubectl is not asked %s, but\n%s", want, asked)
		}
	}
	if out, _, _ := run("--follow", "-o", "json"); strings.Count(out, "\n") != 2 {
		t.Errorf("followed nodes' records are not printed as they come: %s", out)
	}
}
