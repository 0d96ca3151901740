package npc_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/walk"
)

// station is a live world whose log and reports are kept, and whose programs can be made to fail.
type station struct {
	*world
	dir     string
	log     *journal
	reports []npc.InvalidPolicy
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
	empty(t)
	for _, f := range before {
		f(t)
	}
	s := &station{world: newModelWorld(t), log: &journal{}}
	s.live = &live{backend: b, flowing: map[netip.Addr]bool{}}
	s.live.open(t)
	s.dir = programs(t)
	s.live.Syncer = s.syncer(b, s.log.logger(), func(p npc.InvalidPolicy) { s.reports = append(s.reports, p) })
	s.namespace("a", "team=a")
	s.pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
	s.pod("a/db", "10.32.1.3,fd32:1::3", "app=db")
	s.pod("a/client", "10.32.1.4,fd32:1::4", "app=client")
	s.policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 80}]}]}`)
	s.policy("a/db", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 5432}]}]}`)
	s.model.SetSynced()
	return s
}

const bothServed = "a/client > a/web tcp:80 = yes\n a/client > a/db tcp:5432 = yes\n a/web > a/db tcp:5432 = no\n outside > a/web tcp:80 = no"

// programs puts the programs of iptables, as ones that can be made to fail, first in the PATH, and returns their directory.
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

// programs makes programs fail: "iptables-nft-save:fail"; none mends all.
func (s *station) program(modes ...string) {
	s.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "mode"), []byte(strings.Join(modes, " ")), 0o600); err != nil {
		s.Fatal(err)
	}
}

// step syncs, with everything due that waits, until no trial is under way, and says what failed.
func (s *station) step() []error {
	s.Helper()
	s.live.RetryNow()
	errs := s.live.Sync(s.Context(), false)
	for s.live.Trying(npc.IPv4) || s.live.Trying(npc.IPv6) {
		time.Sleep(5 * time.Millisecond)
		errs = append(errs, s.live.Sync(s.Context(), false)...)
	}
	s.live.copy(s.world)
	return errs
}

// well syncs, which must not fail.
func (s *station) well() {
	s.Helper()
	if errs := s.step(); len(errs) > 0 {
		s.Fatalf("failed: %v", errs)
	}
	if why := s.live.Ready(); why != "" {
		s.Errorf("not ready: %s", why)
	}
}

// ill syncs, which must fail, and checks that readiness tells why.
func (s *station) ill(why string) {
	s.Helper()
	if errs := s.step(); len(errs) == 0 {
		s.Errorf("did not fail")
	}
	if ready := s.live.Ready(); !strings.Contains(ready, why) {
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

// agree checks that what the model believes of the kernel is so, that nothing is left to do, and that nothing is owned by nobody.
func (s *station) agree() {
	s.Helper()
	for range 6 {
		s.live.TidyNow()
		s.step()
	}
	listings, err := s.live.sets.List("weave-")
	if err != nil {
		s.Fatal(err)
	}
	for _, f := range families {
		seen, err := s.live.tables[f].Read(s.Context(), "WEAVE-NPC")
		if err != nil {
			s.Fatal(err)
		}
		s.model.Adopt(f, listings, seen)
	}
	for range 2 {
		for _, tx := range s.model.Plan(true) {
			if !tx.Empty() {
				s.Errorf("memory and kernel are apart:\n%s", tx)
			}
		}
	}
	if left := s.model.Leftovers(); len(left) > 0 {
		s.Errorf("left over: %v", left)
	}
}

func TestProgramsThatFail(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		for _, c := range []struct{ mode, says string }{
			{"restore:fail", "restore"},
			{"save:fail", "save"},
			{"save:garbage", "not understood"},
			{"save:short", "COMMIT"},
		} {
			t.Run(c.mode, func(t *testing.T) {
				s := newStation(t, b)
				s.well()
				s.expect(bothServed)
				s.program("ip6tables-" + string(b) + "-" + c.mode)
				if strings.HasPrefix(c.mode, "save") {
					command(t, "ip6tables-"+string(b), "-w", "-F", "WEAVE-NPC-INGRESS")
					s.live.Watch(t.Context()) // sees it by the fingerprint alone, and cannot read it
					s.live.Lose(npc.IPv6)
				}
				s.pod("a/first", "10.32.1.29,fd32:1::29", "app=new")
				s.policy("a/new", `{podSelector: {matchLabels: {app: new}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`)
				s.ill(c.says)
				// One pod after the other: sets are kept up to date, and the other family is enforced.
				for i := range 3 {
					s.pod(fmt.Sprintf("a/late%d", i), fmt.Sprintf("10.32.1.1%d,fd32:1::1%d", i, i), "app=client")
					s.pod(fmt.Sprintf("a/new%d", i), fmt.Sprintf("10.32.1.2%d,fd32:1::2%d", i, i), "app=new")
					s.ill(c.says)
				}
				s.expect("10.32.1.12 > 10.32.1.2 tcp:80 = yes\n 10.32.1.2 > 10.32.1.21 tcp:9 = yes\n 10.32.1.3 > 10.32.1.21 tcp:9 = no")
				if strings.HasPrefix(c.mode, "restore") {
					s.expect("fd32:1::12 > fd32:1::2 tcp:80 = yes\n fd32:1::3 > fd32:1::21 tcp:9 = no\n outside > fd32:1::21 tcp:9 = no")
				}
				s.logged(cannot, 1)
				if wait, _ := s.live.Waits(npc.IPv6); wait < 400_000_000 {
					t.Errorf("the wait between tries is only %s", wait)
				}
				if wait, _ := s.live.Waits(npc.IPv4); wait != 0 {
					t.Errorf("the family that works waits %s", wait)
				}
				s.program()
				s.step()
				s.live.RetryNow()
				s.live.Watch(t.Context())
				s.well()
				s.logged(again, 1)
				s.expect(bothServed + "\n a/web > a/new1 tcp:9 = yes\n a/db > a/new1 tcp:9 = no\n a/late1 > a/web tcp:80 = yes")
				s.agree()
			})
		}
	})
}

func TestAProgramThatIsMissingForAWhile(t *testing.T) {
	s := newStation(t, iptables.NFT)
	s.well()
	for _, family := range []string{"iptables", "ip6tables"} {
		path := filepath.Join(s.dir, family+"-nft-restore")
		if err := os.Rename(path, path+".away"); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.Rename(path+".away", path) }()
	}
	s.policy("a/new", `{podSelector: {}, ingress: [{}]}`)
	s.ill("no such file")
	s.expect("a/client > a/web tcp:80 = yes")
	for _, family := range []string{"iptables", "ip6tables"} {
		path := filepath.Join(s.dir, family+"-nft-restore")
		if err := os.Rename(path+".away", path); err != nil {
			t.Fatal(err)
		}
	}
	s.well()
	s.expect("outside > a/web tcp:80 = yes")
	s.agree()
}

// TestWhatFailedIsTriedAgain though nothing else happens.
func TestWhatFailedIsTriedAgain(t *testing.T) {
	s := newStation(t, iptables.NFT)
	s.well()
	s.program("iptables-nft-restore:fail")
	s.policy("a/new", `{podSelector: {}, ingress: [{}]}`)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.live.Run(ctx, false) }()
	eventually(t, "failing", func() bool { return s.log.count(cannot) > 0 })
	s.program()
	eventually(t, "being well again", func() bool { return s.log.count(again) > 0 && s.live.Ready() == "" })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	s.live.copy(s.world)
	s.expect("outside > a/web tcp:80 = yes")
}

func TestAProgramThatHangs(t *testing.T) {
	s := newStation(t, iptables.NFT)
	s.well()
	s.live.Hurry(500 * time.Millisecond)
	s.program("iptables-nft-restore:hang")
	s.policy("a/new", `{podSelector: {}, ingress: [{}]}`)
	s.ill("deadline")
	s.expect("2001:db8::7 > fd32:1::2 tcp:80 = yes\n 10.32.1.4 > 10.32.1.2 tcp:80 = yes")
	// While it is tried again, everything else goes on.
	s.live.Hurry(3 * time.Second)
	s.live.RetryNow()
	if errs := s.live.Sync(t.Context(), false); len(errs) > 0 {
		t.Error(errs)
	}
	s.pod("a/late", "10.32.1.9,fd32:1::9", "app=client")
	if errs := s.live.Sync(t.Context(), false); len(errs) > 0 {
		t.Error(errs)
	}
	s.live.copy(s.world)
	if !s.live.Trying(npc.IPv4) {
		t.Error("nothing hangs")
	}
	s.expect("10.32.1.9 > 10.32.1.2 tcp:80 = yes\n 10.32.1.9 > 10.32.1.2 tcp:81 = no")
	if ready := s.live.Ready(); !strings.Contains(ready, "deadline") {
		t.Errorf("readiness is %q", ready)
	}
	s.ill("deadline")
	s.program()
	s.well()
	s.expect("outside > a/web tcp:80 = yes")
	s.logged(cannot, 1)
	s.logged(again, 1)
	s.agree()
}

func TestTheLockIsHeld(t *testing.T) {
	s := newStation(t, iptables.Legacy)
	s.well()
	fd, err := unix.Open("/run/xtables.lock", unix.O_CREAT|unix.O_RDONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(fd, unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	s.policy("a/new", `{podSelector: {}, ingress: [{}]}`)
	s.ill("lock")
	s.pod("a/late", "10.32.1.9,fd32:1::9", "app=client")
	s.live.Sync(t.Context(), false) // between the tries, or with one that fails too
	s.live.copy(s.world)
	s.expect("a/late > a/web tcp:80 = yes\n a/late > a/web tcp:81 = no")
	unix.Close(fd)
	s.well()
	s.expect("outside > a/web tcp:80 = yes")
	s.logged(cannot, 2)
	s.logged(again, 2)
	s.agree()
}

func TestARuleThatTheKernelRefuses(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newStation(t, b)
		s.well()
		for i := range 40 {
			s.policy(fmt.Sprintf("a/more%d", i), fmt.Sprintf(`{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: %d}]}]}`, 1000+2*i))
		}
		s.model.Spoil("a/more7", true)
		s.step()
		s.expect(bothServed + "\n outside > a/web tcp:1000 = yes\n outside > a/web tcp:1014 = no\n outside > a/web tcp:1078 = yes")
		if ready := s.live.Ready(); !strings.Contains(ready, "a/more7") {
			t.Errorf("readiness is %q", ready)
		}
		if len(s.reports) != 1 || !s.reports[0].Refused || s.reports[0].Name != "more7" || s.reports[0].Reason == "" {
			t.Errorf("reported: %v", s.reports)
		}
		_, first := s.live.Waits(npc.IPv4)
		for range 3 { // tries again
			s.step()
		}
		s.logged(refuses, 1)
		if _, wait := s.live.Waits(npc.IPv4); wait < 4*first {
			t.Errorf("tries at what is refused wait %s, at first %s", wait, first)
		}
		for range 3 { // does not try
			if errs := s.live.Sync(t.Context(), false); len(errs) > 0 {
				t.Error(errs)
			}
		}
		s.model.Spoil("a/more7", false)
		s.well()
		s.expect(bothServed + "\n outside > a/web tcp:1014 = yes")
		s.logged(takes, 1)
		s.logged(cannot, 0)
		s.agree()
	})
}

// TestReportsThatTheKernelRefuses: a kernel without hashlimit or NFLOG drops as ever.
func TestReportsThatTheKernelRefuses(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newStation(t, b)
		s.model.SpoilReports(true)
		s.well()
		s.expect(bothServed)
		s.reported(0)
		s.well() // tries again
		s.reported(0)
		s.logged("dropped without a report", 1)
		s.model.SpoilReports(false)
		s.well()
		s.expect(bothServed)
		s.reported(86)
		s.logged("takes the rules that report", 1)
		s.logged(cannot, 0)
		s.agree()
	})
}

// reported checks by which NFLOG group a packet is reported that is blocked on ingress, 0 for none.
func (s *station) reported(group int) {
	s.Helper()
	for f, to := range s.addrs["a/web"] {
		v, err := s.kernels[f].Simulate(walk.Packet{Src: s.addrs["a/db"][f], Dst: to, Protocol: 6, DstPort: 80})
		if err != nil || v.Accepted || v.Logged != group {
			s.Errorf("to %s: %+v, %v, not dropped and reported to group %d", to, v, err, group)
		}
	}
}

// answer is a refusal of a create by the kernel.
func answer(op ipset.Op, code uint32) error {
	return &ipset.BatchError{Errors: []*ipset.OpError{{Kind: op.Kind, Set: op.Set.Name, Err: ipset.KernelError{Code: code}}}}
}

// refusing is a kernel that makes no such sets.
func refusing(code uint32, such func(ipset.Set) bool) func([]ipset.Op, func([]ipset.Op) error) error {
	return func(ops []ipset.Op, apply func([]ipset.Op) error) error {
		var pass []ipset.Op
		var at []int // in ops
		var failed []*ipset.OpError
		for i, op := range ops {
			if op.Kind == ipset.Create && such(op.Set) {
				e := answer(op, code).(*ipset.BatchError).Errors[0]
				e.Index = i
				failed = append(failed, e)
				continue
			}
			pass, at = append(pass, op), append(at, i)
		}
		err := apply(pass)
		if len(failed) == 0 {
			return err
		}
		if be, ok := err.(*ipset.BatchError); ok {
			for _, e := range be.Errors {
				e.Index = at[e.Index]
				failed = append(failed, e)
			}
		}
		return &ipset.BatchError{Errors: failed}
	}
}

// TestASetThatTheKernelRefuses: the kernel lacks the type of named ports' sets, or has no room for them.
func TestASetThatTheKernelRefuses(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		for name, code := range map[string]uint32{"type": nl.IPSET_ERR_FIND_TYPE, "too many": nl.IPSET_ERR_MAX_SETS} {
			t.Run(name, func(t *testing.T) {
				s := newStation(t, b)
				faults := s.live.MakeFaults(npc.IPv4)
				faults.Apply = refusing(code, func(set ipset.Set) bool { return set.Type == ipset.HashIPPort })
				s.setPod("a/web", "10.32.1.2,fd32:1::2", []string{"app=web"}, func(p *npc.Pod) {
					p.Ports = []npc.NamedPort{{Name: "http", Protocol: 6, Port: 80}}
				})
				s.policy("a/named", `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: http}]}]}`)
				s.step()
				s.step()
				s.expect("a/client > a/web tcp:80 = yes\n 198.51.100.7 > 10.32.1.2 tcp:80 = no\n 2001:db8::7 > fd32:1::2 tcp:80 = yes\n " +
					"a/client > a/db tcp:5432 = yes\n outside > a/db tcp:5432 = no")
				if ready := s.live.Ready(); !strings.Contains(ready, "a/named") {
					t.Errorf("readiness is %q", ready)
				}
				s.logged(refuses, 1)
				if len(s.reports) != 1 || s.reports[0].Name != "named" {
					t.Errorf("reported: %v", s.reports)
				}
				faults.Apply = nil
				s.well()
				s.expect("outside > a/web tcp:80 = yes")
				s.logged(takes, 1)
				s.agree()
			})
		}
	})
}

// TestTheSetOfIsolatedPodsIsRefused: they stay closed, and each policy that cannot let anybody in says so.
func TestTheSetOfIsolatedPodsIsRefused(t *testing.T) {
	s := newStation(t, iptables.NFT)
	faults := s.live.MakeFaults(npc.IPv4)
	faults.Apply = refusing(nl.IPSET_ERR_MAX_SETS, func(set ipset.Set) bool { return set.Name == npc.PartSet(npc.IPv4, npc.Ingress, "a") })
	s.step()
	s.step()
	s.expect("10.32.1.4 > 10.32.1.2 tcp:80 = no\n fd32:1::4 > fd32:1::2 tcp:80 = yes\n outside > a/web tcp:80 = no")
	if ready := s.live.Ready(); !strings.Contains(ready, "a/db") || !strings.Contains(ready, "a/web") {
		t.Errorf("readiness is %q", ready)
	}
	s.logged(refuses, 2)
	faults.Apply = nil
	s.well()
	s.expect(bothServed)
	s.logged(takes, 2)
	s.agree()
}

// TestAPodGoesToAnotherPartWhileRulesFail: where it is not known whether its rules are there, it stays with those that it had.
func TestAPodGoesToAnotherPartWhileRulesFail(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newStation(t, b)
		s.model.Crowd(2, 1)
		s.pod("a/x", "10.32.1.9,fd32:1::9", "app=web")
		s.policy("a/all", `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 7}]}]}`)
		s.well()
		s.expect(bothServed + "\n a/client > a/x tcp:7 = yes\n a/client > a/x tcp:80 = yes")
		s.program("iptables-"+string(b)+"-restore:fail", "ip6tables-"+string(b)+"-restore:fail")
		s.policy("a/new", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`)
		s.ill("restore")
		s.relabel("a/x", "app=db")
		for range 3 {
			s.ill("restore")
			s.expect(bothServed + "\n a/client > a/x tcp:7 = yes\n a/client > a/x tcp:80 = no\n outside > a/x tcp:7 = no")
		}
		s.program()
		s.well()
		s.expect("a/client > a/x tcp:7 = yes\n a/client > a/x tcp:80 = no\n a/client > a/x tcp:5432 = yes\n a/web > a/x tcp:5432 = yes")
		s.agree()
	})
}

// TestSetOperationsThatFail: what is said of a socket and what is said of a single set passes, and is made up for.
func TestSetOperationsThatFail(t *testing.T) {
	for name, err := range map[string]error{
		"in use":    ipset.KernelError{Code: nl.IPSET_ERR_BUSY},
		"EBUSY":     ipset.KernelError{Code: uint32(unix.EBUSY)},
		"ENOMEM":    ipset.KernelError{Code: uint32(unix.ENOMEM)},
		"ENOBUFS":   unix.ENOBUFS,
		"truncated": ipset.ErrorKind("answer from the kernel is truncated"),
	} {
		t.Run(name, func(t *testing.T) {
			s := newStation(t, iptables.NFT)
			s.well()
			faults := s.live.MakeFaults(npc.IPv4)
			faults.Apply = func(ops []ipset.Op, _ func([]ipset.Op) error) error {
				be := &ipset.BatchError{}
				for i, op := range ops {
					be.Errors = append(be.Errors, &ipset.OpError{Index: i, Kind: op.Kind, Set: op.Set.Name, Err: err})
				}
				return be
			}
			s.pod("a/late", "10.32.1.9,fd32:1::9", "app=client")
			s.policy("a/blocks", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{ipBlock: {cidr: 198.51.100.0/24}}, {ipBlock: {cidr: 2001::/16}}]}]}`)
			s.ill(err.Error())
			s.ill(err.Error())
			s.expect("fd32:1::9 > fd32:1::2 tcp:80 = yes\n 2001:db8::7 > fd32:1::3 tcp:9 = yes\n " +
				"10.32.1.4 > 10.32.1.2 tcp:80 = yes\n 198.51.100.7 > 10.32.1.2 tcp:80 = no")
			faults.Apply = nil
			faults.List = func() error { return err }
			s.ill("")
			faults.List = nil
			s.well()
			s.expect("a/late > a/web tcp:80 = yes\n outside > a/db tcp:9 = yes")
			s.logged(cannot, 1)
			s.logged(again, 1)
			s.agree()
		})
	}
}

// TestSetsThatAreNotOurs: somebody else's sets have our names, before we start or while we run.
func TestSetsThatAreNotOurs(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		for _, c := range []struct{ name, create string }{
			{"full", "hash:ip maxelem 1 comment"},
			{"of another type", "hash:net comment"},
			{"of another family", "hash:ip family inet6 comment"},
			{"a list", "list:set"},
			{"without comments", "hash:ip"},
			{"with a timeout", "hash:ip timeout 60 comment"},
		} {
			for _, referred := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, in use %t", c.name, referred), func(t *testing.T) {
					create := append([]string{"create", "weave-local-pods"}, strings.Fields(c.create)...)
					s := newStation(t, b, func(t *testing.T) {
						command(t, "ipset", create...)
						if program := "iptables-" + string(b); referred {
							if strings.Contains(c.create, "inet6") {
								program = "ip6tables-" + string(b)
							}
							command(t, program, "-w", "-N", "WEAVE-NPC-FORWARD")
							command(t, program, "-w", "-A", "WEAVE-NPC-FORWARD", "-m", "set", "--match-set", "weave-local-pods", "src", "-j", "RETURN")
							command(t, program, "-w", "-A", "FORWARD", "-j", "WEAVE-NPC-FORWARD")
						}
					})
					s.well()
					s.expect(bothServed)
					s.logged(notOurs, 1)
					s.agree()
					s.expect(bothServed)
					header, err := s.live.sets.Get("weave-local-pods")
					if err != nil || header.Type != ipset.HashIP || header.Size != 0 || header.Other != "" || len(header.Members) != 3 {
						t.Errorf("weave-local-pods is %v, %v", header, err)
					}
					s.logged(cannot, 0)
				})
			}
		}
	})
}

// TestASetOfOursIsExchanged: while we run, somebody swaps every set of ours for one that takes a single member.
func TestASetOfOursIsExchanged(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newStation(t, b)
		s.policy("a/all", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: a}}}], ports: [{port: 7}]}]}`)
		s.well()
		s.expect("a/db > a/web tcp:7 = yes")
		listings, err := s.live.sets.List("weave-")
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range listings {
			create := []string{"create", "small", string(l.Type)}
			if l.Type != ipset.ListSet {
				create = append(create, "family", l.Family.String(), "maxelem", "1")
			}
			command(t, "ipset", create...)
			command(t, "ipset", "swap", "small", l.Name)
			command(t, "ipset", "flush", "small")
			if l.Type == ipset.ListSet {
				command(t, "ipset", "destroy", "small")
				continue
			}
			eventually(t, "destroying", func() bool { return run("ipset", "destroy", "small") == nil })
		}
		if !s.live.Watch(t.Context()) {
			t.Fatal("nobody saw it")
		}
		for range 6 {
			s.live.TidyNow()
			s.step()
			s.expect(bothServed + "\n a/db > a/web tcp:7 = yes\n outside > a/web tcp:7 = no")
		}
		s.agree()
		after, err := s.live.sets.List("weave-")
		if err != nil {
			t.Fatal(err)
		}
		names := func(l []ipset.Listing) (out []string) {
			for _, x := range l {
				out = append(out, fmt.Sprint(x.Set, x.Other, len(x.Members)))
			}
			slices.Sort(out)
			return out
		}
		if x, y := names(listings), names(after); !slices.Equal(x, y) {
			t.Errorf("sets were\n%s\nand are\n%s", strings.Join(x, "\n"), strings.Join(y, "\n"))
		}
	})
}

// TestRulesOfNFTBesideOurs: somebody writes to the filter table what iptables cannot show.
func TestRulesOfNFTBesideOurs(t *testing.T) {
	for _, rule := range []string{"fib daddr type local accept", "ct state vmap { established : accept }", "tcp option maxseg size set rt mtu"} {
		t.Run(rule, func(t *testing.T) {
			s := newStation(t, iptables.NFT)
			s.well()
			command(t, "nft", append([]string{"insert", "rule", "ip", "filter", "FORWARD"}, strings.Fields(rule)...)...)
			s.live.Watch(t.Context())
			s.well()
			s.live.Watch(t.Context())
			s.well()
			s.logged("iptables cannot show", 1)
			first := strings.Split(command(t, "nft", "list", "chain", "ip", "filter", "FORWARD"), "\n")
			if ours := slices.IndexFunc(first, func(l string) bool { return strings.Contains(l, "WEAVE-NPC-FORWARD") }); strings.Contains(rule, "accept") &&
				ours != 3 && !strings.Contains(first[max(ours-1, 0)], "type filter") {
				t.Errorf("our jump is not first:\n%s", strings.Join(first, "\n"))
			}
			// What we write goes on, and so does repair.
			s.policy("a/more", `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 99}]}]}`)
			s.well()
			command(t, "iptables-nft", "-w", "-F", "WEAVE-NPC-INGRESS")
			if !s.live.Watch(t.Context()) {
				t.Error("nobody saw that a chain was emptied")
			}
			s.well()
			command(t, "nft", "flush", "chain", "ip", "filter", "FORWARD")
			if !s.live.Watch(t.Context()) {
				t.Error("nobody saw that FORWARD was emptied")
			}
			s.well()
			s.expect(bothServed + "\n outside > a/web tcp:99 = yes")
			s.logged(cannot, 0)
			s.live.Watch(t.Context())
			s.logged("no rules any more that iptables cannot show", 1)
			s.agree()
		})
	}
}

// TestASetIsDestroyedBeforeItsRuleComes: that is no refusal of the rule.
func TestASetIsDestroyedBeforeItsRuleComes(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newStation(t, b)
		s.well()
		faults := s.live.MakeFaults(npc.IPv4)
		faults.Apply = func(ops []ipset.Op, apply func([]ipset.Op) error) error {
			err := apply(ops)
			for _, op := range ops {
				if op.Kind == ipset.Create {
					command(t, "ipset", "destroy", op.Set.Name)
				}
			}
			return err
		}
		s.policy("a/more", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{ipBlock: {cidr: 198.51.100.0/24}}]}, {ports: [{port: 99}]}]}`)
		s.ill("doesn't exist")
		s.expect(bothServed)
		faults.Apply = nil
		s.well()
		s.expect("198.51.100.7 > 10.32.1.2 tcp:80 = yes\n outside > a/web tcp:99 = yes")
		s.logged(refuses, 0)
		s.agree()
	})
}
