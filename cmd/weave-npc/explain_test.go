package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/test/golden"
)

// execute runs weave-npc in this process, and returns its output and exit status.
func execute(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	var stdout bytes.Buffer
	root := command()
	root.SetArgs(args)
	root.SetOut(&stdout)
	ran, err := root.ExecuteContextC(t.Context())
	if err == nil {
		return stdout.String(), 0
	}
	if !errors.Is(err, errDenied) {
		fmt.Fprintln(&stdout, "weave-npc:", err)
	}
	return stdout.String(), status(ran, err)
}

// checkTranscript runs the commands of a transcript in testdata, which are the lines that begin with "$ ", and compares their output with the
// lines below. A status other than 0 is on the last line.
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
		out, code := execute(t, strings.Fields(text)...)
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
		t.Errorf("of an address that nobody has, status %d and\n%s", code, out)
	}
}

func TestShow(t *testing.T) { checkTranscript(t, "testdata/show.txt") }

// TestClusterPoliciesAreNoted checks that explain, the matrix and the lists note on stderr what they do not consider.
func TestClusterPoliciesAreNoted(t *testing.T) {
	dir := t.TempDir()
	policy := func(name string) string {
		return "---\napiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: " + name + "}\n" +
			"spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}\n"
	}
	pods := "---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: b}\n"
	for _, c := range []struct{ name, policies, note string }{
		{"none", "", ""},
		{"two", policy("deny") + policy("pass"),
			"weave-npc: this version does not consider ClusterNetworkPolicies, of which there are 2: deny, pass\n"},
		{"many", policy("p1") + policy("p2") + policy("p3") + policy("p4") + policy("p5") + policy("p6"),
			"weave-npc: this version does not consider ClusterNetworkPolicies, of which there are 6: p1, p2, p3, p4, p5, ...\n"},
	} {
		if err := os.WriteFile(dir+"/all.yaml", []byte(pods+c.policies), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, args := range []string{"explain --from default/a --to default/b --port tcp/80", "show matrix --port tcp/80", "show pods", "show policies"} {
			var stdout, stderr bytes.Buffer
			root := command()
			root.SetArgs(append(strings.Fields(args), "--manifests", dir))
			root.SetOut(&stdout)
			root.SetErr(&stderr)
			if err := root.ExecuteContext(t.Context()); err != nil {
				t.Errorf("%s, %s: %v", c.name, args, err)
			}
			if stderr.String() != c.note {
				t.Errorf("%s, %s: %q", c.name, args, stderr.String())
			}
		}
	}
}
