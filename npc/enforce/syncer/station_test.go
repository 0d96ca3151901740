package syncer_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/test/cluster"
)

// station is a cluster with a syncer on a real kernel, whose log and reports are kept, and whose programs can be made
// to fail.
type station struct {
	*cluster.Cluster
	// dir has the programs of iptables.
	dir     string
	log     *journal
	reports []enforce.InvalidPolicy
}

// journal keeps log lines.
type journal struct {
	mu sync.Mutex
	bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.Buffer.Write(p)
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// count is the number of lines with a text.
func (j *journal) count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for line := range strings.Lines(j.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

const (
	cannot  = "cannot bring the kernel up to date"
	again   = "the kernel is up to date again"
	refuses = "the kernel refuses what a policy needs"
	takes   = "the kernel refuses nothing of a policy any more"
	notOurs = "sets by our names are not ours"
)

// newStation has two isolated pods, each with a policy of its own that lets a client in, and enforces that.
func newStation(t *testing.T, b iptables.Backend, before ...func(t *testing.T)) *station {
	t.Helper()
	cluster.Empty(t)
	for _, f := range before {
		f(t)
	}
	s := &station{Cluster: cluster.NewUnsynced(t), log: &journal{}}
	s.OpenKernel(b) // with the real programs
	s.dir = programs(t)
	s.Live.Syncer = s.NewSyncer(b, s.log.logger(), func(p enforce.InvalidPolicy) { s.reports = append(s.reports, p) })
	s.Namespace("a", "team=a")
	s.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
	s.Pod("a/db", "10.32.1.3,fd32:1::3", "app=db")
	s.Pod("a/client", "10.32.1.4,fd32:1::4", "app=client")
	s.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 80}]}]}`)
	s.Policy("a/db", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 5432}]}]}`)
	s.Model.SetSynced()
	return s
}

const bothServed = "a/client > a/web tcp:80 = yes\n a/client > a/db tcp:5432 = yes\n a/web > a/db tcp:5432 = no\n outside > a/web tcp:80 = no"

// programs puts the programs of iptables, as ones that can be made to fail, first in the PATH, and returns their
// directory.
func programs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, backend := range []string{"nft", "legacy"} {
			for _, what := range []string{"-save", "-restore"} {
				name := family + "-" + backend + what
				script := fmt.Sprintf(`#!/bin/sh
echo %[2]s >> %[1]s/calls
mode="$(cat %[1]s/mode 2>/dev/null)"
case "$mode" in
*%[2]s:refuses-*)
	text="${mode##*%[2]s:refuses-}" text="$(echo "${text%%%% *}" | tr '~' ' ')" input="$(cat; echo .)"
	if printf '%%s' "$input" | grep -qE -e "$text"; then echo "%[2]s: no" >&2; exit 1; fi
	printf '%%s' "${input%%.}" | exec /usr/sbin/%[2]s "$@"; exit;;
*%[2]s:chokes-*)
	text="${mode##*%[2]s:chokes-}" text="$(echo "${text%%%% *}" | tr '~' ' ')" input="$(cat; echo .)"
	if printf '%%s' "$input" | grep -qE -e "$text"; then exec sleep 600; fi
	printf '%%s' "${input%%.}" | exec /usr/sbin/%[2]s "$@"; exit;;
*%[2]s:spoils-*)
	text="${mode##*%[2]s:spoils-}" text="$(echo "${text%%%% *}" | tr '~' ' ')"
	sed -E "\\|^-[AI].*$text| s# -([jg]) # -m bpf --bytecode \"1,255 255 255 255\" -\1 #" | exec /usr/sbin/%[2]s "$@"; exit;;
esac
case "$mode" in
*%[2]s:fail*) echo "%[2]s: no" >&2; exit 1;;
*%[2]s:hang*) exec sleep 600;;
*%[2]s:garbage*) echo "*filter"; echo "what is this"; exit 0;;
*%[2]s:short*) echo "*filter"; echo ":FORWARD ACCEPT [0:0]"; exit 0;;
esac
exec /usr/sbin/%[2]s "$@"
`, dir, name)
				if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return dir
}

// program makes programs fail: "iptables-nft-save:fail". Without modes all work again.
func (s *station) program(modes ...string) {
	s.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "mode"), []byte(strings.Join(modes, " ")), 0o600); err != nil {
		s.Fatal(err)
	}
}

// spoil makes the kernel reject the rules that a pattern matches, in the input of iptables-restore with ~ for spaces.
func (s *station) spoil(pattern string) {
	s.Helper()
	s.program("iptables-"+string(s.Live.Backend)+"-restore:spoils-"+pattern, "ip6tables-"+string(s.Live.Backend)+"-restore:spoils-"+pattern)
}

// step syncs, with everything due that waits, until no trial runs, and returns what failed.
func (s *station) step() []error {
	s.Helper()
	s.Live.RetryNow()
	errs := s.Live.Sync(s.Context(), false)
	for s.Live.Trying(npc.IPv4) || s.Live.Trying(npc.IPv6) {
		time.Sleep(5 * time.Millisecond)
		errs = append(errs, s.Live.Sync(s.Context(), false)...)
	}
	s.Live.Copy(s.Cluster)
	return errs
}

// well syncs, which must not fail.
func (s *station) well() {
	s.Helper()
	if errs := s.step(); len(errs) > 0 {
		s.Fatalf("failed: %v", errs)
	}
	if why := s.Live.Ready(); why != "" {
		s.Errorf("not ready: %s", why)
	}
}

// ill syncs, which must fail, and checks that readiness reports why.
func (s *station) ill(why string) {
	s.Helper()
	if errs := s.step(); len(errs) == 0 {
		s.Errorf("did not fail")
	}
	if ready := s.Live.Ready(); !strings.Contains(ready, why) {
		s.Errorf("readiness does not say %q: %q", why, ready)
	}
}

// logged checks how many lines of the log have a text.
func (s *station) logged(text string, want int) {
	s.Helper()
	if n := s.log.count(text); n != want {
		s.Errorf("%d lines with %q, not %d:\n%s", n, text, want, s.log.String())
	}
}

// agree checks that what the model believes of the kernel is so, and that nothing is left to do or left over.
func (s *station) agree() {
	s.Helper()
	for range 6 {
		s.Live.CollectGarbageNow()
		s.step()
	}
	listings, err := s.Live.Sets.List("weave-")
	if err != nil {
		s.Fatal(err)
	}
	for _, f := range npc.Families {
		seen, err := s.Live.Tables[f].Read(s.Context(), "WEAVE-NPC")
		if err != nil {
			s.Fatal(err)
		}
		s.Model.LoadChains(f, seen)
		s.Model.LoadSets(f, listings)
	}
	for range 2 {
		for _, tx := range s.Plan(true) {
			if !tx.Empty() {
				s.Errorf("memory and kernel are apart:\n%s", tx)
			}
		}
	}
	if s.Model.HasGarbage() {
		s.Error("something is left over")
	}
}
