package syncer_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/syncer"
	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/cluster"
)

var (
	repeats = flag.Int("drift.repeats", 0, "how often each kind of drift is made to measure its repair")
	cpuFor  = flag.Duration("drift.cpu", 0, "how long the cost of watching is measured")
)

// meddling is a change of sets and chains by another process, for one family.
type meddling struct {
	name string
	// nftOnly is set if it cannot be done on legacy.
	nftOnly bool
	// commands have $iptables for the family's program, $v6 for the end of its sets' names, and $web for a pod's
	// address.
	commands string
	// input is fed to the commands.
	input string
	// finds is what the log names.
	finds string
}

func meddlings() []meddling {
	return []meddling{
		{name: "our jump deleted", commands: "$iptables -w -D FORWARD 1", finds: "FORWARD has 0 jumps"},
		{name: "a chain flushed", commands: "$iptables -w -F WEAVE-NPC-INGRESS", finds: "WEAVE-NPC-INGRESS"},
		{name: "a chain deleted", commands: "$iptables -w -D FORWARD 1\n$iptables -w -F WEAVE-NPC-FORWARD\n$iptables -w -X WEAVE-NPC-FORWARD",
			finds: "WEAVE-NPC-FORWARD"},
		{name: "a rule deleted", commands: "$iptables -w -D WEAVE-NPC-INGRESS 1", finds: "WEAVE-NPC-INGRESS"},
		{name: "a rule added", commands: "$iptables -w -I WEAVE-NPC 1 -j ACCEPT", finds: "WEAVE-NPC ("},
		{name: "a set destroyed", commands: "ipset destroy weave-pod-range$v6", finds: "weave-pod-range"},
		{name: "a set flushed", commands: "ipset flush weave-local-pods$v6", finds: "weave-local-pods"},
		{name: "an entry deleted", commands: "ipset del weave-local-pods$v6 $web", finds: "weave-local-pods"},
		{name: "all sets flushed", commands: "ipset flush", finds: "weave-local-pods"},
		{name: "all chains flushed", commands: "$iptables -w -F", finds: "has other rules"},
		{name: "the table restored", commands: "$iptables-restore", finds: "is gone",
			input: "*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\nCOMMIT\n"},
		{name: "the ruleset flushed", nftOnly: true, commands: "nft flush ruleset", finds: "is gone"},
		{name: "an ACCEPT above ours", commands: "$iptables -w -I FORWARD -p udp -j ACCEPT", finds: "accepts before us"},
	}
}

// meddle does it to both families.
func (s *station) meddle(m meddling) {
	s.Helper()
	for f, words := range [...][3]string{{"iptables-", "", "10.32.1.2"}, {"ip6tables-", "-v6", "fd32:1::2"}} {
		if f == 1 && (m.name == "all sets flushed" || m.nftOnly) {
			return // that was for both
		}
		text := strings.NewReplacer("$iptables", words[0]+string(s.Live.Backend), "$v6", words[1], "$web", words[2]).Replace(m.commands)
		for line := range strings.Lines(text) {
			c := strings.Fields(line)
			cluster.Feed(s, m.input, c[0], c[1:]...)
		}
	}
}

// shape returns what the kernel holds, as it was last copied, without what is in FORWARD behind the jump to
// WEAVE-NPC-FORWARD.
func (s *station) shape() []any {
	var out []any
	for _, k := range s.Kernels {
		chains := maps.Clone(k.Chains)
		if f := chains["FORWARD"]; len(f) > 0 {
			chains["FORWARD"] = f[:1]
		}
		members := map[string]map[ipset.Entry]ipset.Attr{}
		for name, set := range k.Sets {
			members[name] = maps.Clone(set.Members)
		}
		out = append(out, chains, members)
	}
	return out
}

func (s *station) copied() []any {
	s.Live.Copy(s.Cluster)
	return s.shape()
}

// newWatched is a station that has come to rest.
func newWatched(t *testing.T, b iptables.Backend) *station {
	s := newStation(t, b)
	s.well()
	s.agree()
	s.Live.WatchAll(t.Context())
	s.well()
	if s.Live.Watch(t.Context()) {
		t.Fatalf("found drift where there is none:\n%s", s.log.String())
	}
	return s
}

// TestS65_WhatOthersChangeIsFoundAndPutBack at the next look, without reading everything.
func TestS65_WhatOthersChangeIsFoundAndPutBack(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		for _, m := range meddlings() {
			if m.nftOnly && b != iptables.NFT {
				continue
			}
			t.Run(m.name, func(t *testing.T) {
				s := newWatched(t, b)
				before := s.copied()
				s.meddle(m)
				for try := 0; try < 3 && s.Live.Watch(t.Context()); try++ { // what is done to several is found at once, or right after
					s.well()
				}
				if s.log.count(m.finds) == 0 {
					t.Errorf("the log does not say %q:\n%s", m.finds, s.log.String())
				}
				if s.log.count("family=IPv4 found") == 0 || s.log.count("family=IPv6 found") == 0 {
					t.Errorf("it was not found in both families:\n%s", s.log.String())
				}
				if after := s.copied(); !reflect.DeepEqual(before, after) {
					t.Errorf("was\n%v\nand is\n%v", before, after)
				}
				if s.Live.Watch(t.Context()) {
					t.Error("found again after the repair")
				}
				s.Expect(bothServed)
			})
		}
	})
}

// TestS65_WhatLooksTheSameIsFoundByReading: neither a count nor, on legacy, a size changes.
func TestS65_WhatLooksTheSameIsFoundByReading(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newWatched(t, b)
		before := s.copied()
		cluster.Command(t, "ipset", "del", "weave-local-pods", "10.32.1.2")
		cluster.Command(t, "ipset", "add", "weave-local-pods", "198.51.100.1")
		program := "iptables-" + string(b)
		rules := strings.Split(cluster.Command(t, program, "-w", "-S", "WEAVE-NPC-DROP-INGRESS"), "\n")
		_, comment, _ := strings.Cut(rules[3], `--comment "`)
		comment, _, _ = strings.Cut(comment, `"`)
		cluster.Command(t, program, "-w", "-R", "WEAVE-NPC-DROP-INGRESS", "3", "-m", "comment", "--comment", comment, "-j", "RETURN")
		if !s.Live.WatchAll(t.Context()) {
			t.Fatal("it was not noticed")
		}
		s.well()
		after := s.copied()
		// An address that no pod has leaves the set once its connections are deleted.
		for end := time.Now().Add(2 * time.Minute); !reflect.DeepEqual(before, after) && time.Now().Before(end); after = s.copied() {
			time.Sleep(10 * time.Millisecond)
			s.well()
		}
		if !reflect.DeepEqual(before, after) {
			t.Errorf("was\n%v\nand is\n%v", before, after)
		}
		for _, finds := range []string{"weave-local-pods", "WEAVE-NPC-DROP-INGRESS"} {
			if s.log.count(finds) == 0 {
				t.Errorf("the log does not name %s:\n%s", finds, s.log.String())
			}
		}
	})
}

// TestReadingChainsHoldsUpNoSync: while the chains are read for a look at drift, a policy is enforced.
func TestReadingChainsHoldsUpNoSync(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newWatched(t, b)
		cluster.Command(t, "iptables-"+string(b), "-w", "-D", "WEAVE-NPC-DROP-INGRESS", "1")
		s.Live.Hurry(3 * time.Second)
		s.program("iptables-" + string(b) + "-save:hang")
		if s.Live.Look(t.Context()) {
			t.Fatal("the look has ended")
		}
		s.Policy("a/new", `{podSelector: {}, ingress: [{}]}`)
		s.well()
		s.Expect("outside > a/web tcp:80 = yes")
		s.program()
		if _, ended := s.Live.Conclude(t.Context()); ended {
			t.Error("what was read before the policy was written is compared with the present rules")
		}
		if drift, ended := s.Live.Conclude(t.Context()); !drift || !ended {
			t.Errorf("drift = %t, ended = %t", drift, ended)
		}
		s.well()
		s.logged("cannot look for drift", 0)
		s.agree()
	})
}

// TestS65_ASetIsDeletedWhileChainsAreRead: iptables cannot print a rule then that it has read before. They are read
// again, and nothing is reported.
func TestS65_ASetIsDeletedWhileChainsAreRead(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newWatched(t, b)
		s.Policy("a/new", `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {none: has}}}]}]}`)
		s.well()
		s.DeletePolicy("a/new")
		s.well()
		s.Live.CollectGarbageNow()
		s.well() // the chain goes before the set
		cluster.Command(t, "iptables-"+string(b), "-w", "-D", "WEAVE-NPC-DROP-INGRESS", "1")
		s.program("iptables-" + string(b) + "-save:fail")
		s.Live.Look(t.Context())
		before, err := s.Live.Sets.List("weave-")
		if err != nil {
			t.Fatal(err)
		}
		s.Live.CollectGarbageNow()
		s.well()
		if after, err := s.Live.Sets.List("weave-"); err != nil || len(after) >= len(before) {
			t.Fatalf("no set was deleted; %v", err)
		}
		s.program()
		if _, ended := s.Live.Conclude(t.Context()); ended {
			t.Error("what was read before the set was deleted counts")
		}
		if drift, ended := s.Live.Conclude(t.Context()); !drift || !ended {
			t.Errorf("drift = %t, ended = %t", drift, ended)
		}
		s.logged("cannot look for drift", 0)
		s.well()
		s.agree()
	})
}

// TestS65_DriftIsFoundWhateverIsWritten in the meantime, as often as the chains are read.
func TestS65_DriftIsFoundWhateverIsWritten(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newWatched(t, b)
		cluster.Command(t, "iptables-"+string(b), "-w", "-D", "WEAVE-NPC-DROP-INGRESS", "1")
		s.Live.Look(t.Context())
		drift, ended := false, false
		for i := 0; !ended; i++ {
			if i == 6 {
				t.Fatal("the look does not end")
			}
			s.Policy("a/new", fmt.Sprintf(`{podSelector: {}, ingress: [{ports: [{port: %d}]}]}`, 1000+i))
			s.well()
			drift, ended = s.Live.Conclude(t.Context())
		}
		if !drift {
			t.Error("it was not noticed")
		}
		s.well()
		s.agree()
	})
}

// TestContentionIsReportedAndNoStorm: another process undoes every repair at once.
func TestContentionIsReportedAndNoStorm(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newWatched(t, b)
		contended := meddlings()[12]
		repaired := 0
		for range 40 {
			s.meddle(contended)
			if s.Live.Watch(t.Context()) {
				repaired++
				s.well2()
			}
		}
		if repaired > 5 {
			t.Errorf("%d repairs in a moment", repaired)
		}
		s.Live.Later(11 * time.Second)
		s.meddle(contended)
		if !s.Live.Watch(t.Context()) {
			t.Error("no repair after the pause")
		}
		s.well2()
		s.meddle(contended)
		if s.Live.Watch(t.Context()) {
			t.Error("another repair right after")
		}
		s.logged("is found again and again: it is repaired less often", 1)
		if ready := s.Live.Ready(); !strings.Contains(ready, "another weave-npc") || !strings.Contains(ready, "accepts before us") {
			t.Errorf("readiness is %q", ready)
		}
		s.Live.Later(2 * time.Minute)
		s.Live.Watch(t.Context())
		s.well()
		s.logged("no longer found again and again", 1)
	})
}

// well2 syncs, which must not fail; it may be unready.
func (s *station) well2() {
	s.Helper()
	if errs := s.step(); len(errs) > 0 {
		s.Fatalf("failed: %v", errs)
	}
}

// TestHowLongARepairTakes prints, for each kind of drift, how long it lasts.
func TestHowLongARepairTakes(t *testing.T) {
	if *repeats == 0 {
		t.Skip("measures only with -drift.repeats")
	}
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newWatched(t, b)
		before := s.copied()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.Live.RunWithoutPause(ctx) }()
		defer func() { cancel(); <-done }()
		for _, m := range meddlings() {
			if m.nftOnly && b != iptables.NFT {
				continue
			}
			var took []time.Duration
			for i := range *repeats {
				time.Sleep(time.Second + time.Duration(i%10)*50*time.Millisecond)
				s.meddle(m)
				start := time.Now()
				cluster.Eventually(t, m.name, func() bool {
					time.Sleep(30 * time.Millisecond) // looking costs more than what is looked for
					return reflect.DeepEqual(before, s.copied())
				})
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			t.Logf("%-8s %-24s p50 %4d ms  p99 %4d ms  (%d times)", b, m.name, took[len(took)/2].Milliseconds(),
				took[(len(took)*99)/100].Milliseconds(), len(took))
		}
	})
}

// TestHowMuchWatchingCosts prints the share of a core that watching a thousand sets takes.
func TestHowMuchWatchingCosts(t *testing.T) {
	if *cpuFor == 0 {
		t.Skip("measures only with -drift.cpu")
	}
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newStation(t, b)
		for i := range 250 {
			s.Pod(fmt.Sprintf("a/p%d", i), fmt.Sprintf("10.32.1.%d,fd32:1::1:%d", i%200+10, i), fmt.Sprintf("number=n%d", i))
			s.Policy(fmt.Sprintf("a/p%d", i), fmt.Sprintf("{podSelector: {matchLabels: {number: n%d}}, ingress: [{from: [{podSelector: {matchLabels: {number: n%d}}}]}]}", i, i+1))
		}
		s.well()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Live.Run(ctx, false) }()
		time.Sleep(3 * time.Second)
		used := func() (d time.Duration) {
			for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
				var u syscall.Rusage
				if err := syscall.Getrusage(who, &u); err != nil {
					t.Fatal(err)
				}
				d += time.Duration(u.Utime.Nano() + u.Stime.Nano())
			}
			return d
		}
		before, start := used(), time.Now()
		time.Sleep(*cpuFor)
		share := 100 * float64(used()-before) / float64(time.Since(start))
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.Live.Copy(s.Cluster)
		t.Logf("%s: watching %d sets takes %.2f %% of a core", b, len(s.Kernels[0].Sets), share)
	})
}

// TestTwoOnOneNode counts what two syncers of different nodes write.
func TestTwoOnOneNode(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newWatched(t, b)
		other := cluster.NewUnsynced(t, func(c *enforce.Config) { c.NodeName = "node2" })
		other.Pod("a/elsewhere", "10.32.9.9,fd32:9::9")
		other.SetPod("a/mine", "10.32.9.10,fd32:9::10", nil, func(p *npc.Pod) { p.Node = "node2" })
		other.Model.SetSynced()
		log := &journal{}
		second := other.NewSyncer(b, log.logger(), nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		began, done := time.Now(), make(chan error, 2)
		for _, each := range []*syncer.Syncer{s.Live.Syncer, second} {
			go func() { done <- each.Run(ctx, false) }()
		}
		await.That(t, "finding each other", func() bool {
			return time.Since(began) > 8*time.Second && s.log.count("drift found") > 0 && log.count("drift found") > 0 &&
				strings.Contains(s.Live.Ready()+second.Ready(), "another weave-npc")
		})
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		fought := time.Since(began)
		ours, theirs := s.log.count("drift found"), log.count("drift found")
		t.Logf("within %s: %d and %d reports", fought, ours, theirs)
		// Of chains and sets, and both families, for five repairs, one more, and one every ten seconds.
		if most := 4 * (6 + int(fought/(10*time.Second))); ours > most || theirs > most {
			t.Errorf("%d and %d reports within %s:\n%s", ours, theirs, fought, s.log.String())
		}
	})
}

// TestMembersAreReadInTurns: each set once in every readEvery, and no more at once than the time that went by asks for.
func TestMembersAreReadInTurns(t *testing.T) {
	var headers []ipset.Header
	for i, elements := range []uint32{99, 0, 99, 49, 49} {
		headers = append(headers, ipset.Header{Set: ipset.Set{Name: "weave-" + string(rune('a'+i))}, Elements: elements})
	}
	for _, c := range []struct {
		name  string
		after []time.Duration
		want  string
	}{
		{"each at least once", slices.Repeat([]time.Duration{time.Second}, 5), "a b,c d e a"},
		{"a part by the time", []time.Duration{5 * time.Second, 10 * time.Second, 10 * time.Second}, "a b,c,d e,a"},
		{"all at once after long", []time.Duration{time.Hour, time.Second}, "a,b,c,d,e a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Now()
			members := syncer.NewTurns(now)
			var got []string
			for _, d := range c.after {
				now = now.Add(d)
				got = append(got, strings.ReplaceAll(strings.Join(members(headers, now), ","), "weave-", ""))
			}
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("read %q, want %q", text, c.want)
			}
		})
	}
	if names := syncer.NewTurns(time.Now())(nil, time.Now().Add(time.Hour)); len(names) != 0 {
		t.Errorf("read %q where there is no set", names)
	}
}
