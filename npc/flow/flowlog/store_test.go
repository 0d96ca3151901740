package flowlog_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

// refmodel is a fake: pods by address, all of this node except those in remote.
type model struct {
	pods    map[netip.Addr]flowlog.End
	verdict flowlog.Verdict
	staged  []flowlog.Staged
	asked   int
	// by has the rules that decide about ports; nil for one that decides about all.
	by func(port uint16) []flowlog.Applied
}

func (j *model) rules(s flow.Service) []flowlog.Applied {
	if j.by != nil {
		return j.by(s.Port)
	}
	return []flowlog.Applied{{RuleRef: flowlog.RuleRef{Policy: "shop/p", Number: 1, Direction: "ingress"}, Content: "c"}}
}

func (j *model) Evaluate(src, dst netip.Addr, s flow.Service) (of flowlog.Evaluation, concerned bool) {
	j.asked++
	end := func(a netip.Addr) flowlog.End {
		e, ok := j.pods[a]
		if ok {
			concerned = true
		}
		e.Addr, e.Labels = a, maps.Clone(e.Labels)
		return e
	}
	of = flowlog.Evaluation{From: end(src), To: end(dst), PortNames: []string{"http"}, Verdict: j.verdict, By: j.rules(s), Staged: j.staged}
	return of, concerned
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

var (
	web1, web2, db, outside = addr("10.32.1.2"), addr("10.32.1.3"), addr("10.32.1.4"), addr("192.0.2.1")
	noon                    = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	http                    = flow.Service{Protocol: npc.TCP, Port: 80}
	sameAddr                = cmpopts.EquateComparable(netip.Addr{})
)

func newEvaluator() *model {
	pod := func(workload, name, app string) flowlog.End {
		return flowlog.End{Namespace: "shop", Workload: workload, Pod: name, Labels: map[string]string{"app": app}}
	}
	return &model{verdict: flowlog.Allowed, pods: map[netip.Addr]flowlog.End{web1: pod("Deployment/web", "web-1", "web"), web2: pod("Deployment/web", "web-2", "web"),
		db: pod("StatefulSet/db", "db-0", "db")}}
}

// TestNamesOfAnAddressAreKept while later connections to it have none.
func TestNamesOfAnAddressAreKept(t *testing.T) {
	s, j := flowlog.NewStore("node1", 10), newEvaluator()
	for _, c := range []struct{ names, want []string }{{nil, nil}, {[]string{"a.x", "b.x"}, []string{"a.x", "b.x"}},
		{nil, []string{"a.x", "b.x"}}, {[]string{"c.x"}, []string{"c.x"}}} {
		j.pods[outside] = flowlog.End{DomainNames: c.names}
		s.Add(noon, j, flowlog.Allowed, []flowlog.Connection{between(web1, outside)})
		if got, _ := s.Since(0); len(got) != 1 || !slices.Equal(got[0].To.DomainNames, c.want) {
			t.Errorf("with %v: %+v, want %v", c.names, got, c.want)
		}
	}
}

func between(src, dst netip.Addr) flowlog.Connection {
	return flowlog.Connection{Src: src, Dst: dst, Service: http}
}

// TestS99_WhateverAPodSaysOfItselfIsRecorded, since the API server takes any text for the owner of a pod, and labels of a
// megabyte. What is recorded is read again, and so is what others' connections are.
func TestS99_WhateverAPodSaysOfItselfIsRecorded(t *testing.T) {
	for _, owner := range []string{"Job/a\nb", "\x1b[2J/\u202e", "Job/a\tb  c", "\xff/\xfe", strings.Repeat("K", 1<<20) + "/x", "Job/" + strings.Repeat("ü", 1000)} {
		j, s := newEvaluator(), flowlog.NewStore("node1", 100)
		hostile := j.pods[web1]
		hostile.Workload, hostile.Labels = owner, map[string]string{}
		for i := range 4000 {
			hostile.Labels[fmt.Sprintf("%0250d/a", i)] = strings.Repeat("v", 63)
		}
		j.pods[web1] = hostile
		s.Add(noon, j, flowlog.Allowed, []flowlog.Connection{between(web1, db), between(web2, db), between(outside, web1)})
		recorded, _ := s.Since(0)
		var text bytes.Buffer
		if err := flowlog.Write(&text, recorded...); err != nil {
			t.Fatal(err)
		}
		if text.Len() > 6000 {
			t.Errorf("%.20q: 3 records have %d bytes", owner, text.Len())
		}
		read := 0
		skipped, err := flowlog.Read(&text, func(r flowlog.Record) error {
			if read++; strings.Contains(r.From.String(), " ") {
				t.Errorf("%.20q: a cell of a table has a blank: %s", owner, r.From)
			}
			return nil
		})
		if err != nil || read != 3 || skipped.Lines > 0 {
			t.Errorf("%.20q: %d records are read, %s, %v", owner, read, skipped, err)
		}
	}
}

// TestS99_RecordsAreByWorkload, by port and by verdict, and by the address of what is no pod.
func TestS99_RecordsAreByWorkload(t *testing.T) {
	s, j := flowlog.NewStore("node1", 10), newEvaluator()
	s.Add(noon, j, flowlog.Allowed, []flowlog.Connection{between(web1, db), between(web1, db), between(web2, db), between(outside, web1), between(outside, outside)})
	if j.asked != 4 {
		t.Errorf("the evaluator was asked %d times about 4 different connections", j.asked)
	}
	s.Add(noon.Add(time.Second), j, flowlog.Allowed, []flowlog.Connection{between(web2, db)})
	s.Add(noon.Add(2*time.Second), j, flowlog.Denied, []flowlog.Connection{between(web2, db)})
	got, _ := s.Since(0)
	for i := range got {
		got[i].Port, got[i].PortNames = flow.Service{}, nil
	}
	end := func(workload, pod, app string, a netip.Addr) flowlog.End {
		return flowlog.End{Namespace: "shop", Workload: workload, Pod: pod, Labels: map[string]string{"app": app}, Addr: a}
	}
	web, to := end("Deployment/web", "web-2", "web", web2), end("StatefulSet/db", "db-0", "db", db)
	by := &flowlog.RuleRef{Policy: "shop/p", Number: 1, Direction: "ingress"}
	want := []flowlog.Record{
		{First: noon, Last: noon, Count: 1, Node: "node1", From: flowlog.End{Addr: outside}, To: end("Deployment/web", "web-1", "web", web1), Verdict: flowlog.Allowed, By: by},
		{First: noon, Last: noon.Add(time.Second), Count: 4, Node: "node1", From: web, To: to, Verdict: flowlog.Allowed, By: by},
		// The evaluator has later policies than those that decided the packet: its rule is not what decided.
		{First: noon.Add(2 * time.Second), Last: noon.Add(2 * time.Second), Count: 1, Node: "node1", From: web, To: to, Verdict: flowlog.Denied},
	}
	if diff := cmp.Diff(want, got, sameAddr); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// TestS99_TheOldestRecordGoes when there are too many, and is counted.
func TestS99_TheOldestRecordGoes(t *testing.T) {
	s, j := flowlog.NewStore("node1", 100), newEvaluator()
	for i := range 150 {
		c := between(web1, db)
		c.Service.Port = uint16(1000 + i)
		s.Add(noon.Add(time.Duration(i)*time.Second), j, flowlog.Allowed, []flowlog.Connection{c})
		c.Service.Port = 1000
		s.Add(noon.Add(time.Duration(i)*time.Second), j, flowlog.Allowed, []flowlog.Connection{c})
	}
	got, _ := s.Since(0)
	if counts := s.Counts(); counts.Held != 100 || len(got) != 100 || counts.Evicted != 50 {
		t.Errorf("%+v, %d records", counts, len(got))
	}
	for i, r := range got[:99] {
		if want := uint16(1000 + 51 + i); r.Port.Port != want {
			t.Fatalf("record %d is of port %d, not %d", i, r.Port.Port, want)
		}
	}
	if r := got[99]; r.Port.Port != 1000 || r.Count != 151 {
		t.Errorf("%v", r)
	}
	if waiting := s.Unreplied(); len(waiting) != 100 {
		t.Errorf("%d wait for replies", len(waiting))
	}
}

// TestSince returns what was added after a version, and nothing twice.
func TestSince(t *testing.T) {
	s, j := flowlog.NewStore("node1", 3), newEvaluator()
	got, at := s.Since(0)
	if len(got) != 0 {
		t.Errorf("%v", got)
	}
	for i := range 5 {
		c := between(web1, db)
		c.Service.Port = uint16(1 + i)
		s.Add(noon, j, flowlog.Allowed, []flowlog.Connection{c})
		if got, at = s.Since(at); len(got) != 1 || got[0].Port.Port != uint16(1+i) {
			t.Errorf("%v", got)
		}
	}
	if got, _ := s.Since(at); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// TestReplies are known of the last connection of each record that was allowed, until one got a reply.
func TestReplies(t *testing.T) {
	s, j := flowlog.NewStore("node1", 10), newEvaluator()
	s.Add(noon, j, flowlog.Allowed, []flowlog.Connection{between(web1, db)})
	s.Add(noon, j, flowlog.Allowed, []flowlog.Connection{between(web2, db), between(outside, db)})
	s.Add(noon, j, flowlog.Denied, []flowlog.Connection{between(web1, db)})
	waiting := s.Unreplied()
	if diff := cmp.Diff(map[flowlog.Connection]uint64{between(web2, db): 0, between(outside, db): 0}, waiting, sameAddr); diff != "" {
		t.Fatal(diff)
	}
	waiting[between(web2, db)] = 7
	if n := s.SetReplied(waiting); n != 1 {
		t.Errorf("%d", n)
	}
	s.Add(noon, j, flowlog.Allowed, []flowlog.Connection{between(web1, db)})
	if waiting := s.Unreplied(); len(waiting) != 1 {
		t.Errorf("%v", waiting)
	}
	got, _ := s.Since(0)
	for _, r := range got {
		want := uint64(0)
		if r.Verdict == flowlog.Allowed && r.From.IsPod() {
			want = 2
		}
		if r.Replied != want {
			t.Errorf("%d of %d connections from %s, %s, have replies", r.Replied, r.Count, r.From.Addr, r.Verdict)
		}
	}
}

// TestS99_TenMillionConnections of the same pairs take no more memory than the first ones, and each is counted.
func TestS99_TenMillionConnections(t *testing.T) {
	s, j := flowlog.NewStore("node1", 1000), newEvaluator()
	var all []flowlog.Connection
	for i := range 1000 {
		a := netip.AddrFrom4([4]byte{10, 33, 0, byte(i % 40)})
		j.pods[a] = flowlog.End{Namespace: "many", Workload: fmt.Sprintf("Deployment/%d", i%20), Pod: fmt.Sprint(i % 40)}
		all = append(all, between(a, db))
	}
	const rounds = 10_000
	for range rounds {
		s.Add(noon, j, flowlog.Allowed, all)
	}
	got, _ := s.Since(0)
	sum := uint64(0)
	for _, r := range got {
		sum += r.Count
	}
	if len(got) != 20 || sum != rounds*1000 {
		t.Errorf("%d connections in %d records", sum, len(got))
	}
}
