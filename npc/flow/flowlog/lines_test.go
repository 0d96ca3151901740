package flowlog

import (
	"bytes"
	"cmp"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
)

func records() []Record {
	at := time.Date(2026, 11, 20, 10, 0, 0, 5, time.UTC)
	web := End{Namespace: "shop", Workload: "Deployment/web", Pod: "web-7d4-x", Labels: map[string]string{"app": "web", "pod-template-hash": "7d4"},
		Addr: netip.MustParseAddr("10.32.1.2")}
	return []Record{
		{First: at, Last: at.Add(time.Hour), Count: 7, Replied: 6, Node: "node1", From: web,
			To: End{Addr: netip.MustParseAddr("192.0.2.1"), NodeAddr: true}, Port: flow.Service{Protocol: npc.TCP, Port: 443}, Verdict: Allowed,
			By: &RuleRef{Policy: "shop/web", Number: 1, Direction: "egress"}},
		{First: at, Last: at, Count: 1, From: web, To: End{Addr: netip.MustParseAddr("203.0.113.7"), DomainNames: []string{"api.example.com", "_x.example.org"}},
			Port: flow.Service{Protocol: npc.TCP, Port: 443}, Verdict: Denied},
		{First: at, Last: at, Count: 1, From: End{Addr: netip.MustParseAddr("2001:db8::1")}, To: End{Namespace: "shop", Workload: "Pod/x",
			Addr: netip.MustParseAddr("fd32::2")}, Port: flow.Service{Protocol: npc.ICMPv6}, PortNames: []string{"http"}, Verdict: Denied},
	}
}

var sameAddr = gocmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func read(in io.Reader) (all []Record, err error) {
	skipped, err := Read(in, func(r Record) error { all = append(all, r); return nil })
	return all, cmp.Or(err, skipped.First)
}

// TestRecordsAreReadAsWritten shows the round trip through lines of JSON.
func TestRecordsAreReadAsWritten(t *testing.T) {
	var text bytes.Buffer
	if err := Write(&text, records()...); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(text.String(), "\n"); n != 3 {
		t.Errorf("3 records have %d lines", n)
	}
	got, err := read(strings.NewReader("\n" + strings.ReplaceAll(text.String(), "\n", "\r\n\n")))
	if diff := gocmp.Diff(records(), got, sameAddr); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
}

// TestSkippedLinesAreNamed shows which lines are no records, that the first is named, and that the others count.
func TestSkippedLinesAreNamed(t *testing.T) {
	const good = `{"from":{"address":"192.0.2.1"},"to":{"namespace":"a","workload":"Pod/x","address":"10.0.0.1"},"port":"tcp/80","verdict":"allowed"}`
	for _, c := range []struct{ name, old, new, want string }{
		{"half_a_line", `"verdict":"allowed"}`, "", "line 3: it is no record of connections, as flows -o json prints one a line"},
		{"a_list", good, "[]", "line 3: it is no record of connections, as flows -o json prints one a line"},
		{"a_list_for_text", `"allowed"`, "[]", "line 3: it is no record of connections: verdict cannot be array"},
		{"no_verdict", "allowed", "maybe", `line 3: verdict: it is "maybe", neither allowed nor denied`},
		{"no_port", `"port":"tcp/80",`, "", "line 3: port: it is missing"},
		{"an_odd_port", "tcp/80", "tcp/0", "0 is none"},
		{"no_address", `"address":"192.0.2.1"`, "", "line 3: from: address: it is missing"},
		{"a_zone", "192.0.2.1", "fe80::1%eth0", "line 3: from: address: fe80::1%eth0 has a zone"},
		{"another_family", "192.0.2.1", "2001:db8::1", "line 3: 2001:db8::1 and 10.0.0.1 are of different families"},
		{"no_pod", `"workload":"Pod/x",`, "", "line 3: neither end is a pod"},
		{"no_namespace", `"namespace":"a"`, `"namespace":"a b"`, `line 3: to: namespace: "a b": `},
		{"a_bad_label", `"namespace":"a"`, `"namespace":"a","labels":{"a":"x\ny"}`, `line 3: to: labels: a: "x\ny": `},
		{"a_bad_key", `"namespace":"a"`, `"namespace":"a","labels":{"a b":""}`, `line 3: to: labels: "a b": `},
		{"a_bad_port_name", `"port"`, `"port_names":["a\nb"],"port"`, `line 3: port_names: "a\nb": `},
		{"a_bad_domain_name", `"address":"192.0.2.1"`, `"address":"192.0.2.1","domain_names":["a.x","a x"]`, `line 3: from: domain_names: "a x" is none`},
		{"too_many_domain_names", `"address":"192.0.2.1"`, `"address":"192.0.2.1","domain_names":["a` + strings.Repeat(`","a`, 16) + `"]`,
			"line 3: from: domain_names: they are 17, more than 16"},
		{"a_workload_of_two_lines", "Pod/x", `Pod/x\nkind: Secret`, "line 3: to: workload or pod: it has characters that cannot be printed"},
		{"a_rule_of_two_lines", `"port"`, `"by":{"policy":"a\u2028b"},"port"`, "line 3: by: it has characters that cannot be printed"},
		{"a_line_without_end", good, strings.Repeat(" ", longestLine+1), "line 3: it has more than 1048576 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bad := strings.Replace(good, c.old, c.new, 1)
			got, err := read(strings.NewReader(good + "\n\n" + bad + "\n" + good))
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || len(got) != 2 {
				t.Errorf("%d records, %v, want %s", len(got), err, c.want)
			}
		})
	}
}

// TestSkippedLinesAreCounted, whatever is wrong with them, with and without an end of the last one.
func TestSkippedLinesAreCounted(t *testing.T) {
	var text bytes.Buffer
	if err := Write(&text, records()...); err != nil {
		t.Fatal(err)
	}
	for _, long := range []int{longestLine, longestLine + 4096, 3 * longestLine} {
		in := "{}\n" + text.String() + strings.Repeat("x", long+1) + "\r\n" + text.String() + "[\x1b]"
		got := 0
		skipped, err := Read(strings.NewReader(in), func(Record) error { got++; return nil })
		want := "3 lines skipped, which are no records of connections, such as line 1: verdict: it is \"\", neither allowed nor denied"
		if err != nil || got != 6 || skipped.String() != want {
			t.Errorf("%d records, %v, %s", got, err, skipped)
		}
	}
}

// TestReadingEnds with the error of the function that gets the records, or of the reader.
func TestReadingEnds(t *testing.T) {
	var text bytes.Buffer
	if err := Write(&text, records()...); err != nil {
		t.Fatal(err)
	}
	full := errors.New("full")
	if _, err := Read(&text, func(Record) error { return full }); !errors.Is(err, full) || err.Error() != "line 1: full" {
		t.Errorf("%v", err)
	}
	broken, w := io.Pipe()
	w.CloseWithError(full)
	if _, err := read(broken); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
}

// FuzzRead shows that whatever is read is written and read again as the same.
func FuzzRead(f *testing.F) {
	var text bytes.Buffer
	if err := Write(&text, records()...); err != nil {
		f.Fatal(err)
	}
	f.Add(text.Bytes())
	f.Add([]byte(`{"from":{"address":"::ffff:192.0.2.1"},"port":"protocol 47","verdict":"denied",` +
		`"to":{"namespace":"a","workload":"x","address":"10.0.0.1"}}`))
	f.Add([]byte("\n{}\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		first, _ := read(bytes.NewReader(in))
		var out bytes.Buffer
		if err := Write(&out, first...); err != nil {
			t.Fatal(err)
		}
		second, err := read(&out)
		if diff := gocmp.Diff(first, second, sameAddr, cmpopts.EquateEmpty()); diff != "" || err != nil {
			t.Errorf("%v, -first +second:\n%s", err, diff)
		}
	})
}

// TestLastingLabels shows which labels a pod's successors have too.
func TestLastingLabels(t *testing.T) {
	got := Lasting(map[string]string{"app": "web", "pod-template-hash": "7d4", "controller-revision-hash": "x",
		"statefulset.kubernetes.io/pod-name": "x-0",
		"batch.kubernetes.io/job-name":       "x", "job-name": "x", "helm.sh/chart": "x-1", "topology.kubernetes.io/zone": "a", "version": "2"})
	if diff := gocmp.Diff(map[string]string{"app": "web", "version": "2"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
