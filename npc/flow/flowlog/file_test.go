package flowlog_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

// writerVariable has a test process write the file in a directory until it is killed.
const writerVariable = "WEAVE_NPC_TEST_FLOWS_WRITER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerVariable); dir != "" {
		writeForEver(dir)
	}
	os.Exit(m.Run())
}

// fill records a number of ports, all at the same time.
func fill(s *flowlog.Store, ports int, now time.Time) {
	var all []flowlog.Connection
	for i := range ports {
		c := between(web1, db)
		c.Service.Port = uint16(1 + i)
		all = append(all, c)
	}
	s.Add(now, newEvaluator(), flowlog.Allowed, all)
}

func newFile(t testing.TB, dir string, s *flowlog.Store) *flowlog.File {
	t.Helper()
	f, err := flowlog.NewFile(dir, s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// load returns the records of a directory's file, and the number of lines that are none.
func load(t testing.TB, dir string, limit int) (*flowlog.Store, int) {
	t.Helper()
	s := flowlog.NewStore("node1", limit)
	skipped, err := newFile(t, dir, s).Load()
	if err != nil {
		t.Fatal(err)
	}
	return s, skipped
}

// TestS99_RecordsOutliveARestart as they were, and connections are added to them.
func TestS99_RecordsOutliveARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "directory")
	s, j := flowlog.NewStore("node1", 10), newEvaluator()
	f := newFile(t, dir, s)
	if skipped, err := f.Load(); skipped != 0 || err != nil {
		t.Fatal(skipped, err)
	}
	ping6 := flowlog.Connection{Src: addr("fd32::1"), Dst: addr("fd32::2"), Service: flow.Service{Protocol: npc.ICMPv6}}
	j.pods[ping6.Src] = flowlog.End{Namespace: "shop", Workload: "Pod/six", Pod: "six"}
	gre := between(web1, outside)
	gre.Service = flow.Service{Protocol: 47}
	for i, c := range []flowlog.Connection{between(web1, db), ping6, gre, between(outside, web1)} {
		s.Add(noon.Add(time.Duration(i)*time.Minute), j, flowlog.Allowed, []flowlog.Connection{c})
	}
	s.SetReplied(map[flowlog.Connection]uint64{between(web1, db): 1})
	if omitted, err := f.Save(); omitted != 0 || err != nil {
		t.Fatal(omitted, err)
	}
	want, _ := s.Since(0)
	again, skipped := load(t, dir, 10)
	got, _ := again.Since(0)
	if diff := cmp.Diff(want, got, sameAddr); diff != "" || skipped != 0 {
		t.Errorf("%d skipped, records (-want +got):\n%s", skipped, diff)
	}
	again.Add(noon.Add(time.Hour), j, flowlog.Allowed, []flowlog.Connection{between(web1, db)})
	got, _ = again.Since(0)
	if last := got[len(got)-1]; len(got) != 4 || last.Count != 2 || !last.First.Equal(noon) || last.Replied != 1 {
		t.Errorf("%+v", got)
	}
}

// TestForeignLinesAreSkipped, and counted, whatever they are.
func TestForeignLinesAreSkipped(t *testing.T) {
	dir := t.TempDir()
	s := flowlog.NewStore("node1", 10)
	f := newFile(t, dir, s)
	fill(s, 3, noon)
	if _, err := f.Save(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "flows.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	foreign := []string{"not a record\n", "{}\n", `{"count":1,"verdict":"allowed"}` + "\n", "\n", strings.Repeat("x", 3<<20) + "\n", lines[1][:len(lines[1])/2]}
	if err := os.WriteFile(path, []byte(lines[0]+strings.Join(foreign[:5], "")+lines[1]+lines[2]+foreign[5]), 0o600); err != nil {
		t.Fatal(err)
	}
	again, skipped := load(t, dir, 10)
	if counts := again.Counts(); counts.Held != 3 || skipped != len(foreign)-1 { // the empty one does not count
		t.Errorf("%+v, %d are skipped", counts, skipped)
	}
}

// TestTheFileIsBounded by what the store may hold, and keeps the newest records.
func TestTheFileIsBounded(t *testing.T) {
	dir := t.TempDir()
	s, j := flowlog.NewStore("node1", 20), newEvaluator()
	f := newFile(t, dir, s)
	many := map[string]string{}
	for i := range 60 {
		many[fmt.Sprintf("a.label.with.a.long.name.%d", i)] = strings.Repeat("x", 50)
	}
	for i := range 20 {
		a := web1
		e := j.pods[a]
		e.Workload, e.Labels = fmt.Sprintf("Deployment/%d", i), many
		j.pods[a] = e
		s.Add(noon.Add(time.Duration(i)*time.Second), j, flowlog.Allowed, []flowlog.Connection{between(a, db)})
	}
	omitted, err := f.Save()
	if err != nil || omitted == 0 {
		t.Fatal(omitted, err)
	}
	info, err := os.Stat(filepath.Join(dir, "flows.json"))
	if err != nil || info.Size() > 20*2048 || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	again, _ := load(t, dir, 20)
	got, _ := again.Since(0)
	if len(got) != 20-omitted || got[len(got)-1].From.Workload != "Deployment/19" {
		t.Errorf("%d are left out, and %d are there", omitted, len(got))
	}
	if again, _ := load(t, dir, 3); again.Counts().Held != 3 {
		t.Errorf("%+v of at most 3", again.Counts())
	}
}

// TestSaveWritesWhatChanged alone.
func TestSaveWritesWhatChanged(t *testing.T) {
	dir := t.TempDir()
	s := flowlog.NewStore("node1", 10)
	f := newFile(t, dir, s)
	saved := func() bool {
		path := filepath.Join(dir, "flows.json")
		_ = os.Remove(path)
		if _, err := f.Save(); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(path)
		return err == nil
	}
	if saved() {
		t.Error("an empty store is written")
	}
	fill(s, 1, noon)
	if !saved() || saved() {
		t.Error("a record is not written, or twice")
	}
	s.SetReplied(map[flowlog.Connection]uint64{{Src: web1, Dst: db, Service: flow.Service{Protocol: npc.TCP, Port: 1}}: 1})
	if !saved() {
		t.Error("a reply is not written")
	}
}

// TestS99_TheFileOutlivesKills at any time: it has all records of one state.
func TestS99_TheFileOutlivesKills(t *testing.T) {
	dir := t.TempDir()
	counts := map[uint64]bool{}
	for kill := range 40 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), writerVariable+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // it has written once
			t.Fatal(err)
		}
		time.Sleep(time.Duration(kill*137%20_000) * time.Microsecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		s, skipped := load(t, dir, written)
		records, _ := s.Since(0)
		if skipped != 0 || len(records) != written {
			t.Fatalf("after %d kills, %d records are there, and %d lines that are none", kill+1, len(records), skipped)
		}
		for _, r := range records {
			if r.Count != records[0].Count {
				t.Fatalf("after %d kills, records of several states are there", kill+1)
			}
		}
		counts[records[0].Count] = true
	}
	if len(counts) < 20 {
		t.Errorf("the kills met only %d states", len(counts))
	}
}

// written is how many records writeForEver has.
const written = 300

func writeForEver(dir string) {
	s := flowlog.NewStore("node1", written)
	f, err := flowlog.NewFile(dir, s)
	if err == nil {
		_, err = f.Load()
	}
	for first := true; err == nil; first = false {
		fill(s, written, noon)
		if _, err = f.Save(); first {
			fmt.Println("written")
		}
	}
	fmt.Println(err)
	os.Exit(1)
}
