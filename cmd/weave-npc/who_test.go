package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestWhoCanReach(t *testing.T) { checkTranscript(t, "testdata/who.txt") }

// TestWhoCanReachAsJSON shows the fields that scripts may rely on.
func TestWhoCanReachAsJSON(t *testing.T) {
	out, code := execute(t, "who-can-reach", "shop/db", "-f", "testdata/shop", "-o", "json", "--port", "tcp/5432", "--all")
	_, out, _ = strings.Cut(out, "\n") // the note about a pod that is left out
	var got []struct {
		Asked, Direction string
		Neighbours       []struct {
			Kind, Name, Namespace  string
			Pods, Nodes, Addresses []string
			OwnNode                bool `json:"own_node"`
			Ports                  []struct{ Ports, Verdict, By string }
		}
		Refused struct {
			Pods, Nodes int
			Outside     bool
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || len(got) != 1 {
		t.Fatalf("%v, status %d\n%s", err, code, out)
	}
	verdicts := map[string]string{}
	for _, n := range got[0].Neighbours {
		for _, p := range n.Ports {
			verdicts[n.Kind+" "+n.Name+strings.Join(append(n.Nodes, n.Addresses...), " ")] = p.Ports + " " + p.Verdict + " by " + p.By
		}
	}
	for who, want := range map[string]string{
		"pods shop/api":         "tcp/5432 allowed by ingress: policy shop/db/rule 1",
		"pods shop/web":         "tcp/5432 denied by ingress: no rule of policy shop/db",
		"node node1 172.31.0.1": "tcp/5432 allowed by ingress: a pod and its own node always reach each other",
		"outside addresses outside198.51.100.0/29 198.51.100.16-198.51.100.255": "tcp/5432 allowed by ingress: policy shop/db/rule 3",
	} {
		if verdicts[who] != want {
			t.Errorf("%s: %q, want %q", who, verdicts[who], want)
		}
	}
	if r := got[0].Refused; got[0].Asked != "shop/db" || got[0].Direction != "ingress" || r.Pods != 4 || r.Nodes != 1 || !r.Outside {
		t.Errorf("%+v", got[0])
	}
}

// TestExplainTakesLines of the log, as they are printed, in place of flags.
func TestExplainTakesLines(t *testing.T) {
	want, _ := execute(t, "explain", "-f", "testdata/shop", "--from", "shop/web", "--to", "shop/db", "--port", "tcp/5432")
	for name, args := range map[string][]string{
		"a line of the log": {`time=1 level=INFO msg=blocked direction=ingress protocol=TCP from="shop/web (10.32.1.2:41234)" to="shop/db (10.32.1.4:5432)"`},
		"values of fields":  {"--from", "shop/web (10.32.1.2:41234)", "--to", "shop/db (10.32.1.4:5432)", "--port", "TCP"},
		"a line and a flag": {`msg=blocked protocol=UDP from=192.0.2.1:7 to="shop/db (10.32.1.4:53)"`, "--from", "shop/web", "--port", "tcp/5432"},
	} {
		if out, code := execute(t, append([]string{"explain", "-f", "testdata/shop"}, args...)...); out != want || code != 1 {
			t.Errorf("%s: status %d\n%s", name, code, out)
		}
	}
	for _, args := range [][]string{{"hello"}, {"msg=blocked", "from=shop/web"}} {
		if out, code := execute(t, append([]string{"explain", "-f", "testdata/shop"}, args...)...); code != 2 || strings.Count(out, "\n") != 1 {
			t.Errorf("%v: status %d\n%s", args, code, out)
		}
	}
}
