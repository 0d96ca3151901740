package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/pkg/errors"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/input"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/rootcmd"
	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
	"github.com/weave-npc/weave-npc/test/golden"
)

// execute runs weave-npc in this process, and returns its output, with its notes on stderr, and its exit status.
func execute(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	return executeOn(t, nil, args...)
}

// executeOn runs weave-npc as execute does, with a standard input.
func executeOn(t *testing.T, stdin io.Reader, args ...string) (out string, code int) {
	t.Helper()
	var all, stdout, stderr bytes.Buffer
	root := rootcmd.Command()
	root.SetIn(stdin)
	root.SetArgs(args)
	root.SetOut(io.MultiWriter(&all, &stdout))
	root.SetErr(io.MultiWriter(&all, &stderr))
	ran, err := root.ExecuteContextC(t.Context())
	if err != nil {
		code = cli.Status(ran, err)
	}
	const note = "weave-npc:"
	if strings.HasPrefix(stdout.String(), note) || strings.Contains(stdout.String(), "\n"+note) {
		t.Errorf("%v: a note is on stdout:\n%s", args, &stdout)
	}
	if text := stderr.String(); text != "" && !strings.HasPrefix(text, note) && args[0] != "__complete" {
		t.Errorf("%v: an answer is on stderr:\n%s", args, text)
	}
	if err != nil && !errors.Is(err, cli.ErrNo) {
		fmt.Fprintln(spelling.NewWriter(&all), note, err) // as main does
	}
	return all.String(), code
}

// checkTranscript runs the commands of a transcript in testdata, which are the lines that begin with "$ ", and compares
// their output with the lines below. A status other than 0 is on the last line. "< FILE" at the end of a command is its
// standard input.
func checkTranscript(t *testing.T, path string) {
	t.Helper()
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, line := range strings.Split(string(want), "\n") {
		text, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			continue
		}
		fmt.Fprintln(&got, line)
		text, input, _ := strings.Cut(text, " < ")
		stdin := []byte{}
		if input != "" {
			if stdin, err = os.ReadFile(input); err != nil {
				t.Fatal(err)
			}
		}
		out, code := executeOn(t, bytes.NewReader(stdin), strings.Fields(text)...)
		got.WriteString(out)
		if code != 0 {
			fmt.Fprintf(&got, "(status %d)\n", code)
		}
		got.WriteString("\n")
	}
	golden.Compare(t, path, got.String())
}

func TestExplain(t *testing.T) { checkTranscript(t, "testdata/explain.txt") }

// TestExplainAsJSON shows the fields that scripts may rely on.
func TestExplainAsJSON(t *testing.T) {
	out, code := execute(t, "explain", "--manifests", "testdata/shop", "--from", "shop/web", "--to", "shop/db", "--port", "tcp/5432",
		"-o", "json")
	if code != 1 {
		t.Errorf("status %d, not 1", code)
	}
	var got struct {
		Allowed  bool
		Verdicts []struct {
			Flow struct {
				From, To struct{ Pod, Address string }
				Port     string
			}
			Ingress struct {
				Because  string
				Policies []struct {
					Policy string
					Rules  []struct {
						Rule  int
						Peers []struct{ Text, Miss, Wants, Has string }
					}
				}
			}
		}
		Nearest []struct {
			Text, Apply   string
			Opens, Closes int
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got.Allowed || len(got.Verdicts) != 2 || len(got.Nearest) != 2 || got.Nearest[0].Apply == "" || got.Nearest[1].Opens != 4 {
		t.Fatalf("%s", out)
	}
	v := got.Verdicts[0]
	want := "{{shop/web 10.32.1.2} {shop/db 10.32.1.4} tcp/5432} by shop/db: no rule allows it: " +
		"{1 [{peer wants role=api, shop/web has role=web pod labels role=api role=web}]}"
	p := v.Ingress.Policies[0]
	if got := fmt.Sprintf("%v by %s: %s: %v", v.Flow, p.Policy, v.Ingress.Because, p.Rules[0]); got != want {
		t.Errorf("got  %s,\nwant %s", got, want)
	}
}

// TestServiceAsJSON shows what a Service is resolved to, and that doubts are there too.
func TestServiceAsJSON(t *testing.T) {
	var got struct {
		Service struct {
			Service   string
			Endpoints []struct{ Pod, Address, Port string }
		}
		Verdicts []struct{ Allowed bool }
		Warnings []string
	}
	out, code := execute(t, "explain", "--manifests", "testdata/shop", "--from", "shop/api", "--to", "10.96.0.20", "--port", "80", "-o", "json")
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if want := "{shop/db [{shop/db 10.32.1.4 tcp/5432}]} [{true}] [] 0"; fmt.Sprint(got.Service, got.Verdicts, got.Warnings, " ", code) != want {
		t.Errorf("got  %v %v %v %d,\nwant %s", got.Service, got.Verdicts, got.Warnings, code, want)
	}
	out, code = execute(t, "explain", "--manifests", "testdata/shop", "--from", "shop/api", "--to", "10.32.1.99", "--port", "80", "-o", "json")
	if code != 2 || !strings.Contains(out, `"warnings": [`) {
		t.Errorf("of an address that no pod has, status %d and\n%s", code, out)
	}
}

func TestShow(t *testing.T) { checkTranscript(t, "testdata/show.txt") }

// TestTiers shows what explain, the matrix and the lists show of cluster network policies.
func TestTiers(t *testing.T) { checkTranscript(t, "testdata/tiers.txt") }

// TestUnreadableClusterPoliciesAreNoted shows that an answer without policies that could not be read says so.
func TestUnreadableClusterPoliciesAreNoted(t *testing.T) {
	for unreadable, want := range map[string]string{
		"":          "",
		"forbidden": "weave-npc: ClusterNetworkPolicies are not considered, and whether there are any is not known: forbidden\n",
	} {
		var stderr bytes.Buffer
		input.NoteClusterPolicies(&stderr, snapshot.Objects{ClusterPoliciesUnreadable: unreadable, ClusterPolicies: []*v1alpha2.ClusterNetworkPolicy{{}}})
		if got := stderr.String(); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

// TestOtherFiles has manifests among files that are none, policies of kinds that are not enforced, and objects that name
// no namespace.
func TestOtherFiles(t *testing.T) { checkTranscript(t, "testdata/other.txt") }

// TestRepository has what a repository has besides manifests, and what operators mistype.
func TestRepository(t *testing.T) { checkTranscript(t, "testdata/repository.txt") }

// TestWorkloadsAreAskedAbout shows what the commands make of workloads without pods, of those that have some, and of
// standard input.
func TestWorkloadsAreAskedAbout(t *testing.T) { checkTranscript(t, "testdata/workloads.txt") }

// TestS102_StagedPoliciesAreAskedAbout shows what the commands make of staged policies, and of those that only ask to
// be staged.
func TestS102_StagedPoliciesAreAskedAbout(t *testing.T) { checkTranscript(t, "testdata/staged.txt") }

func TestReplay(t *testing.T) { checkTranscript(t, "testdata/replay.txt") }

// TestConvert converts policies of the kinds that came before ClusterNetworkPolicy, and refuses those that it cannot.
func TestConvert(t *testing.T) { checkTranscript(t, "testdata/convert.txt") }

func TestPropose(t *testing.T) { checkTranscript(t, "testdata/propose.txt") }

// TestProposalsPassReplay proposes policies, and replays the recording against them.
func TestProposalsPassReplay(t *testing.T) {
	const recorded = "testdata/recording/flows.jsonl"
	text, code := execute(t, "propose", "-n", "shop", "--flows", recorded)
	if code != 0 {
		t.Fatalf("status %d\n%s", code, text)
	}
	folder := t.TempDir()
	if err := os.WriteFile(folder+"/proposed.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// What got no reply may be denied, and what was denied stays so.
	got, code := execute(t, "replay", "--flows", recorded, "--manifests", folder)
	want := "shop/Deployment/api -> 198.51.100.4, tcp/443: allowed, would be denied"
	if code != 1 || !strings.HasPrefix(got, want) || !strings.Contains(got, "1 change of 11 records") {
		t.Errorf("status %d\n%s", code, got)
	}
}

// TestLinesThatAreNoRecordsAreSkipped, and counted: one of a thousand is no reason not to answer about the others.
func TestLinesThatAreNoRecordsAreSkipped(t *testing.T) {
	recorded, err := os.ReadFile("testdata/recording/flows.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	const bad = `{"from":{"namespace":"a","workload":"Job/\u001b[2J","address":"10.0.0.1"},"to":{"address":"10.0.0.2"},"port":"tcp/1","verdict":"allowed"}`
	for _, args := range [][]string{{"propose", "-n", "shop"}, {"replay", "--manifests", "testdata/shop"}, {"diff", "testdata/shop", "testdata/shop"}} {
		args = append(args, "--flows", "-")
		want, code := executeOn(t, bytes.NewReader(recorded), args...)
		got, again := executeOn(t, strings.NewReader(bad+"\n"+string(recorded)+bad), args...)
		note := "weave-npc: --flows -: 2 lines skipped, which are no records of connections, such as line 1: from: workload or pod: "
		if rest, is := strings.CutPrefix(got, note); again != code || !is || !strings.HasSuffix(rest, "\n"+want) {
			t.Errorf("%s: status %d and %d:\n%s", args[0], code, again, got)
		}
		if got, code := executeOn(t, strings.NewReader(bad), args...); code != 2 || !strings.Contains(got, "--flows -: line 1: from: ") {
			t.Errorf("%s: of a recording without records, status %d: %s", args[0], code, got)
		}
	}
}

// TestMatrixPage shows that the page needs no port, and that the other formats do.
func TestMatrixPage(t *testing.T) {
	for _, c := range []struct {
		name, args, want string
		code             int
	}{
		{"every port", "-o html", `"port":""`, 0},
		{"one port", "-o html --port udp/53", `"port":"udp/53"`, 0},
		{"a table", "", "--port: the port is missing", 2},
		{"no port", "-o html --port tcp/0", "--port: ", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, code := execute(t, append([]string{"show", "matrix", "--manifests", "testdata/shop"}, strings.Fields(c.args)...)...)
			if code != c.code || !strings.Contains(out, c.want) {
				t.Errorf("exits %d without %q: %.300s", code, c.want, out)
			}
		})
	}
}

// TestExplainOfDomainNames shows that what a domain name decides is not known without what resolvers answer, and that
// no change is advised then.
func TestExplainOfDomainNames(t *testing.T) {
	const manifests = `{apiVersion: v1, kind: Pod, metadata: {name: agent}, status: {podIP: 10.1.0.1}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: none}, spec: {podSelector: {}, policyTypes: [Egress]}}
---
{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: names}, spec: {tier: Admin, priority: 1,
 subject: {namespaces: {}}, egress: [{action: Accept, to: [{domainNames: [example.com]}]}]}}`
	for _, test := range []struct {
		name, resolve string
		want, without string
		code          int
	}{
		{"not_known", "", "give what resolvers answer with --resolve NAME=ADDRESS", "nearest change", 2},
		{"of_the_name", "--resolve=example.com=203.0.113.7", "203.0.113.7 is an address of example.com", "not known", 0},
		{"of_none", "--resolve=example.com=203.0.113.8", "nearest change: add policy", "not known", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := []string{"explain", "-f", "-", "--from", "pod/agent", "--to", "203.0.113.7", "--port", "443"}
			if test.resolve != "" {
				args = append(args, test.resolve)
			}
			out, code := executeOn(t, strings.NewReader(manifests), args...)
			if code != test.code || !strings.Contains(out, test.want) || strings.Contains(out, test.without) {
				t.Errorf("status %d, want %d and %q, without %q:\n%s", code, test.code, test.want, test.without, out)
			}
		})
	}
}

// TestQuickstartPage shows that the page has the answer about its example, without the proposed policy.
func TestQuickstartPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/quickstart.md")
	if err != nil {
		t.Fatal(err)
	}
	answer, _ := execute(t, "explain", "--manifests", "../../docs/quickstart.yaml", "--from", "shop/web", "--to", "shop/db", "--port", "tcp/80")
	start, policy, _ := strings.Cut(answer, "\n    apiVersion:")
	lines := strings.Split(strings.TrimSpace(policy), "\n")
	for _, text := range []string{start, lines[len(lines)-1]} {
		if want := "    " + strings.ReplaceAll(text, "\n", "\n    ") + "\n"; !strings.Contains(string(page), want) {
			t.Errorf("docs/quickstart.md does not have:\n%s", want)
		}
	}
}
