package syncer_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/observe/kernel/simulate"
	"github.com/weave-npc/weave-npc/test/cluster"
)

func TestProgramsThatFail(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		for _, c := range []struct{ mode, says string }{
			{"restore:fail", "restore"},
			{"save:fail", "save"},
			{"save:garbage", "not understood"},
			{"save:short", "COMMIT"},
		} {
			t.Run(c.mode, func(t *testing.T) {
				s := newStation(t, b)
				s.well()
				s.Expect(bothServed)
				s.program("ip6tables-" + string(b) + "-" + c.mode)
				if strings.HasPrefix(c.mode, "save") {
					cluster.Command(t, "ip6tables-"+string(b), "-w", "-F", "WEAVE-NPC-INGRESS")
					s.Live.Watch(t.Context()) // sees it by the fingerprint alone, and cannot read it
					s.Live.Lose(npc.IPv6)
				}
				s.Pod("a/first", "10.32.1.29,fd32:1::29", "app=new")
				s.Policy("a/new", `{podSelector: {matchLabels: {app: new}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`)
				s.ill(c.says)
				// One pod after the other: sets are kept up to date, and the other family is enforced.
				for i := range 3 {
					s.Pod(fmt.Sprintf("a/late%d", i), fmt.Sprintf("10.32.1.1%d,fd32:1::1%d", i, i), "app=client")
					s.Pod(fmt.Sprintf("a/new%d", i), fmt.Sprintf("10.32.1.2%d,fd32:1::2%d", i, i), "app=new")
					s.ill(c.says)
				}
				s.Expect("10.32.1.12 > 10.32.1.2 tcp:80 = yes\n 10.32.1.2 > 10.32.1.21 tcp:9 = yes\n 10.32.1.3 > 10.32.1.21 tcp:9 = no")
				if strings.HasPrefix(c.mode, "restore") {
					s.Expect("fd32:1::12 > fd32:1::2 tcp:80 = yes\n fd32:1::3 > fd32:1::21 tcp:9 = no\n outside > fd32:1::21 tcp:9 = no")
				}
				s.logged(cannot, 1)
				if wait, _ := s.Live.Waits(npc.IPv6); wait < 400_000_000 {
					t.Errorf("the wait between tries is only %s", wait)
				}
				if wait, _ := s.Live.Waits(npc.IPv4); wait != 0 {
					t.Errorf("the family that works waits %s", wait)
				}
				s.program()
				s.step()
				s.Live.RetryNow()
				s.Live.Watch(t.Context())
				s.well()
				s.logged(again, 1)
				s.Expect(bothServed + "\n a/web > a/new1 tcp:9 = yes\n a/db > a/new1 tcp:9 = no\n a/late1 > a/web tcp:80 = yes")
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
	s.Policy("a/new", `{podSelector: {}, ingress: [{}]}`)
	s.ill("no such file")
	s.Expect("a/client > a/web tcp:80 = yes")
	for _, family := range []string{"iptables", "ip6tables"} {
		path := filepath.Join(s.dir, family+"-nft-restore")
		if err := os.Rename(path+".away", path); err != nil {
			t.Fatal(err)
		}
	}
	s.well()
	s.Expect("outside > a/web tcp:80 = yes")
	s.agree()
}

// TestWhatFailedIsTriedAgain though nothing else happens.
func TestWhatFailedIsTriedAgain(t *testing.T) {
	s := newStation(t, iptables.NFT)
	s.well()
	s.program("iptables-nft-restore:fail")
	s.Policy("a/new", `{podSelector: {}, ingress: [{}]}`)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Live.Run(ctx, false) }()
	cluster.Eventually(t, "failing", func() bool { return s.log.count(cannot) > 0 })
	s.program()
	cluster.Eventually(t, "being well again", func() bool { return s.log.count(again) > 0 && s.Live.Ready() == "" })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	s.Live.Copy(s.Cluster)
	s.Expect("outside > a/web tcp:80 = yes")
}

func TestAProgramThatHangs(t *testing.T) {
	s := newStation(t, iptables.NFT)
	s.well()
	s.Live.Hurry(500*time.Millisecond, npc.IPv4)
	s.program("iptables-nft-restore:hang")
	s.Policy("a/new", `{podSelector: {}, ingress: [{}]}`)
	s.ill("deadline")
	s.Expect("2001:db8::7 > fd32:1::2 tcp:80 = yes\n 10.32.1.4 > 10.32.1.2 tcp:80 = yes")
	// While it is tried again, everything else goes on.
	s.Live.Hurry(8*time.Second, npc.IPv4) // longer than what goes on takes on a busy machine
	s.Live.RetryNow()
	if errs := s.Live.Sync(t.Context(), false); len(errs) > 0 {
		t.Error(errs)
	}
	s.Pod("a/late", "10.32.1.9,fd32:1::9", "app=client")
	if errs := s.Live.Sync(t.Context(), false); len(errs) > 0 {
		t.Error(errs)
	}
	s.Live.Copy(s.Cluster)
	if !s.Live.Trying(npc.IPv4) {
		t.Error("nothing hangs")
	}
	s.Expect("10.32.1.9 > 10.32.1.2 tcp:80 = yes\n 10.32.1.9 > 10.32.1.2 tcp:81 = no")
	if ready := s.Live.Ready(); !strings.Contains(ready, "deadline") {
		t.Errorf("readiness is %q", ready)
	}
	s.ill("deadline")
	s.program()
	s.well()
	s.Expect("outside > a/web tcp:80 = yes")
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
	s.Policy("a/new", `{podSelector: {}, ingress: [{}]}`)
	s.well() // a lock that is held for a moment is no error
	s.Pod("a/late", "10.32.1.9,fd32:1::9", "app=client")
	s.well()
	s.Expect("a/late > a/web tcp:80 = yes\n a/late > a/web tcp:81 = no\n outside > a/web tcp:80 = no")
	s.Live.LockHeldFor(5 * time.Second)
	s.ill("another process holds the xtables lock")
	s.Pod("a/later", "10.32.1.10,fd32:1::10", "app=client")
	s.ill("another process holds the xtables lock")
	s.Expect("a/later > a/web tcp:80 = yes\n a/later > a/web tcp:81 = no")
	unix.Close(fd)
	cluster.Eventually(t, "being well again", func() bool { return len(s.step()) == 0 })
	s.well()
	s.Expect("outside > a/web tcp:80 = yes\n a/later > a/web tcp:81 = yes")
	s.logged(cannot, 2)
	s.logged(again, 2)
	s.agree()
}

func TestARuleThatTheKernelRefuses(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newStation(t, b)
		s.well()
		for i := range 40 {
			s.Policy(fmt.Sprintf("a/more%d", i), fmt.Sprintf(`{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: %d}]}]}`, 1000+2*i))
		}
		s.spoil("~a/more7~rule")
		s.step()
		s.Expect(bothServed + "\n outside > a/web tcp:1000 = yes\n outside > a/web tcp:1014 = no\n outside > a/web tcp:1078 = yes")
		if ready := s.Live.Ready(); !strings.Contains(ready, "a/more7") {
			t.Errorf("readiness is %q", ready)
		}
		if len(s.reports) != 1 || !s.reports[0].Refused || s.reports[0].Name != "more7" || s.reports[0].Reason == "" {
			t.Errorf("reported: %v", s.reports)
		}
		_, first := s.Live.Waits(npc.IPv4)
		for range 3 { // tries again
			s.step()
		}
		s.logged(refuses, 1)
		if _, wait := s.Live.Waits(npc.IPv4); wait < 4*first {
			t.Errorf("tries at what is refused wait %s, at first %s", wait, first)
		}
		for range 3 { // does not try
			if errs := s.Live.Sync(t.Context(), false); len(errs) > 0 {
				t.Error(errs)
			}
		}
		s.program()
		s.well()
		s.Expect(bothServed + "\n outside > a/web tcp:1014 = yes")
		s.logged(takes, 1)
		s.logged(cannot, 0)
		s.agree()
	})
}

// TestReportsThatTheKernelRefuses: a kernel without hashlimit or NFLOG drops as ever.
func TestReportsThatTheKernelRefuses(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newStation(t, b)
		s.spoil("~-j~NFLOG~")
		s.well()
		s.Expect(bothServed)
		s.reported(0)
		s.well() // tries again
		s.reported(0)
		s.logged("dropped without a report", 1)
		s.program()
		s.well()
		s.Expect(bothServed)
		s.reported(86)
		s.logged("takes the rules that report", 1)
		s.logged(cannot, 0)
		s.agree()
	})
}

// reported checks by which NFLOG group a packet is reported that is blocked on ingress, 0 for none.
func (s *station) reported(group int) {
	s.Helper()
	for f, to := range s.Addrs["a/web"] {
		v, err := s.Kernels[f].Simulate(simulate.Packet{Src: s.Addrs["a/db"][f], Dst: to, Protocol: 6, DstPort: 80})
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
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		for name, code := range map[string]uint32{"type": nl.IPSET_ERR_FIND_TYPE, "too many": nl.IPSET_ERR_MAX_SETS} {
			t.Run(name, func(t *testing.T) {
				s := newStation(t, b)
				faults := s.Live.MakeFaults(npc.IPv4)
				faults.Apply = refusing(code, func(set ipset.Set) bool { return set.Type == ipset.HashIPPort })
				s.SetPod("a/web", "10.32.1.2,fd32:1::2", []string{"app=web"}, func(p *npc.Pod) {
					p.Ports = []npc.NamedPort{{Name: "http", Protocol: 6, Port: 80}}
				})
				s.Policy("a/named", `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: http}]}]}`)
				s.step()
				s.step()
				s.Expect("a/client > a/web tcp:80 = yes\n 198.51.100.7 > 10.32.1.2 tcp:80 = no\n 2001:db8::7 > fd32:1::2 tcp:80 = yes\n " +
					"a/client > a/db tcp:5432 = yes\n outside > a/db tcp:5432 = no")
				if ready := s.Live.Ready(); !strings.Contains(ready, "a/named") {
					t.Errorf("readiness is %q", ready)
				}
				s.logged(refuses, 1)
				if len(s.reports) != 1 || s.reports[0].Name != "named" {
					t.Errorf("reported: %v", s.reports)
				}
				faults.Apply = nil
				s.well()
				s.Expect("outside > a/web tcp:80 = yes")
				s.logged(takes, 1)
				s.agree()
			})
		}
	})
}

// TestARefusedClusterPolicyIsCalledByItsName: it has no namespace that would come before.
func TestARefusedClusterPolicyIsCalledByItsName(t *testing.T) {
	s := newStation(t, iptables.NFT)
	s.Live.MakeFaults(npc.IPv4).Apply = refusing(nl.IPSET_ERR_FIND_TYPE, func(set ipset.Set) bool { return set.Type == ipset.HashIPPort })
	s.ClusterPolicy("web-only", `{tier: Admin, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}],
		protocols: [{destinationNamedPort: http}]}]}`)
	s.step()
	s.step()
	s.logged(refuses+": it denies everything where it does not accept, and is tried again later\" policy=web-only reason=", 1)
	if ready := s.Live.Ready(); !strings.HasSuffix(ready, "the kernel refuses what these policies need: web-only") {
		t.Errorf("readiness is %q", ready)
	}
}

// TestTheSetOfIsolatedPodsIsRefused: they stay closed, and each policy that cannot let anybody in says so.
func TestTheSetOfIsolatedPodsIsRefused(t *testing.T) {
	s := newStation(t, iptables.NFT)
	faults := s.Live.MakeFaults(npc.IPv4)
	faults.Apply = refusing(nl.IPSET_ERR_MAX_SETS, func(set ipset.Set) bool { return set.Name == naming.ShardSet(npc.IPv4, npc.Ingress, "a", "") })
	s.step()
	s.step()
	s.Expect("10.32.1.4 > 10.32.1.2 tcp:80 = no\n fd32:1::4 > fd32:1::2 tcp:80 = yes\n outside > a/web tcp:80 = no")
	if ready := s.Live.Ready(); !strings.Contains(ready, "a/db") || !strings.Contains(ready, "a/web") {
		t.Errorf("readiness is %q", ready)
	}
	s.logged(refuses, 2)
	faults.Apply = nil
	s.well()
	s.Expect(bothServed)
	s.logged(takes, 2)
	s.agree()
}

// divided gives namespace a so many targets that its pods and rules are divided among parts.
func divided(s *station) {
	labels := []string{"app=many"}
	for i := range 14 {
		labels = append(labels, fmt.Sprintf("n%d=", i))
		s.Policy(fmt.Sprintf("a/many%d", i), fmt.Sprintf(`{podSelector: {matchExpressions: [{key: n%d, operator: Exists}]}, ingress: [{ports: [{port: 9}]}]}`, i))
	}
	s.Pod("a/many", "10.32.1.90,fd32:1::90", labels...)
}

// TestAPodGoesToAnotherPartWhileRulesFail: where it is not known whether its rules are there, it stays with those that
// it had.
func TestAPodGoesToAnotherPartWhileRulesFail(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newStation(t, b)
		divided(s)
		s.Pod("a/x", "10.32.1.9,fd32:1::9", "app=web")
		s.Policy("a/all", `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 7}]}]}`)
		s.well()
		s.Expect(bothServed + "\n a/client > a/x tcp:7 = yes\n a/client > a/x tcp:80 = yes")
		s.program("iptables-"+string(b)+"-restore:fail", "ip6tables-"+string(b)+"-restore:fail")
		s.Policy("a/new", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`)
		s.ill("restore")
		s.Relabel("a/x", "app=db")
		for range 3 {
			s.ill("restore")
			s.Expect(bothServed + "\n a/client > a/x tcp:7 = yes\n a/client > a/x tcp:80 = no\n outside > a/x tcp:7 = no")
		}
		s.program()
		s.well()
		s.Expect("a/client > a/x tcp:7 = yes\n a/client > a/x tcp:80 = no\n a/client > a/x tcp:5432 = yes\n a/web > a/x tcp:5432 = yes")
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
			faults := s.Live.MakeFaults(npc.IPv4)
			faults.Apply = func(ops []ipset.Op, _ func([]ipset.Op) error) error {
				be := &ipset.BatchError{}
				for i, op := range ops {
					be.Errors = append(be.Errors, &ipset.OpError{Index: i, Kind: op.Kind, Set: op.Set.Name, Err: err})
				}
				return be
			}
			s.Pod("a/late", "10.32.1.9,fd32:1::9", "app=client")
			s.Policy("a/blocks", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{ipBlock: {cidr: 198.51.100.0/24}}, {ipBlock: {cidr: 2001::/16}}]}]}`)
			s.ill(err.Error())
			s.ill(err.Error())
			s.Expect("fd32:1::9 > fd32:1::2 tcp:80 = yes\n 2001:db8::7 > fd32:1::3 tcp:9 = yes\n " +
				"10.32.1.4 > 10.32.1.2 tcp:80 = yes\n 198.51.100.7 > 10.32.1.2 tcp:80 = no")
			faults.Apply = nil
			faults.List = func() error { return err }
			s.ill("")
			faults.List = nil
			s.well()
			s.Expect("a/late > a/web tcp:80 = yes\n outside > a/db tcp:9 = yes")
			s.logged(cannot, 1)
			s.logged(again, 1)
			s.agree()
		})
	}
}

// TestSetsThatAreNotOurs: foreign sets have weave-npc's names, before it starts or while it runs.
func TestSetsThatAreNotOurs(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
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
						cluster.Command(t, "ipset", create...)
						if program := "iptables-" + string(b); referred {
							if strings.Contains(c.create, "inet6") {
								program = "ip6tables-" + string(b)
							}
							cluster.Command(t, program, "-w", "-N", "WEAVE-NPC-FORWARD")
							cluster.Command(t, program, "-w", "-A", "WEAVE-NPC-FORWARD", "-m", "set", "--match-set", "weave-local-pods", "src", "-j", "RETURN")
							cluster.Command(t, program, "-w", "-A", "FORWARD", "-j", "WEAVE-NPC-FORWARD")
						}
					})
					s.well()
					s.Expect(bothServed)
					s.logged(notOurs, 1)
					s.agree()
					s.Expect(bothServed)
					sets, err := s.Live.Sets.List("weave-local-pods")
					sets = slices.DeleteFunc(sets, func(l ipset.Listing) bool { return l.Name != "weave-local-pods" })
					if err != nil || len(sets) != 1 || sets[0].Type != ipset.HashIP || sets[0].Size != 0 || sets[0].Other != "" || len(sets[0].Members) != 3 {
						t.Errorf("weave-local-pods is %v, %v", sets, err)
					}
					s.logged(cannot, 0)
				})
			}
		}
	})
}

// TestASetOfOursIsExchanged: another process swaps every set of weave-npc for one that takes a single member.
func TestASetOfOursIsExchanged(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newStation(t, b)
		s.Policy("a/all", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: a}}}], ports: [{port: 7}]}]}`)
		s.well()
		s.Expect("a/db > a/web tcp:7 = yes")
		listings, err := s.Live.Sets.List("weave-")
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range listings {
			create := []string{"create", "small", string(l.Type)}
			if l.Type != ipset.ListSet {
				create = append(create, "family", l.Family.String(), "maxelem", "1")
			}
			cluster.Command(t, "ipset", create...)
			cluster.Command(t, "ipset", "swap", "small", l.Name)
			cluster.Command(t, "ipset", "flush", "small")
			if l.Type == ipset.ListSet {
				cluster.Command(t, "ipset", "destroy", "small")
				continue
			}
			cluster.Eventually(t, "destroying", func() bool { return cluster.Run("ipset", "destroy", "small") == nil })
		}
		if !s.Live.Watch(t.Context()) {
			t.Fatal("it was not noticed")
		}
		for range 6 {
			s.Live.CollectGarbageNow()
			s.step()
			s.Expect(bothServed + "\n a/db > a/web tcp:7 = yes\n outside > a/web tcp:7 = no")
		}
		s.agree()
		after, err := s.Live.Sets.List("weave-")
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

// TestRulesOfNFTAlongsideOurs: another process writes to the filter table what iptables cannot show.
func TestRulesOfNFTAlongsideOurs(t *testing.T) {
	for _, rule := range []string{"fib daddr type local accept", "ct state vmap { established : accept }", "tcp option maxseg size set rt mtu"} {
		t.Run(rule, func(t *testing.T) {
			s := newStation(t, iptables.NFT)
			s.well()
			cluster.Command(t, "nft", append([]string{"insert", "rule", "ip", "filter", "FORWARD"}, strings.Fields(rule)...)...)
			s.Live.Watch(t.Context())
			s.well()
			s.Live.Watch(t.Context())
			s.well()
			s.logged("iptables cannot show", 1)
			first := strings.Split(cluster.Command(t, "nft", "list", "chain", "ip", "filter", "FORWARD"), "\n")
			if ours := slices.IndexFunc(first, func(l string) bool { return strings.Contains(l, "WEAVE-NPC-FORWARD") }); strings.Contains(rule, "accept") &&
				ours != 3 && !strings.Contains(first[max(ours-1, 0)], "type filter") {
				t.Errorf("our jump is not first:\n%s", strings.Join(first, "\n"))
			}
			// What we write goes on, and so does repair.
			s.Policy("a/more", `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 99}]}]}`)
			s.well()
			cluster.Command(t, "iptables-nft", "-w", "-F", "WEAVE-NPC-INGRESS")
			if !s.Live.Watch(t.Context()) {
				t.Error("the flush of a chain was not noticed")
			}
			s.well()
			cluster.Command(t, "nft", "flush", "chain", "ip", "filter", "FORWARD")
			if !s.Live.Watch(t.Context()) {
				t.Error("the flush of FORWARD was not noticed")
			}
			s.well()
			s.Expect(bothServed + "\n outside > a/web tcp:99 = yes")
			s.logged(cannot, 0)
			s.Live.Watch(t.Context())
			s.logged("no rules any more that iptables cannot show", 1)
			s.agree()
		})
	}
}

// TestASetIsDestroyedBeforeItsRuleComes: that is no refusal of the rule.
func TestASetIsDestroyedBeforeItsRuleComes(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newStation(t, b)
		s.well()
		faults := s.Live.MakeFaults(npc.IPv4)
		faults.Apply = func(ops []ipset.Op, apply func([]ipset.Op) error) error {
			err := apply(ops)
			for _, op := range ops {
				if op.Kind == ipset.Create {
					cluster.Command(t, "ipset", "destroy", op.Set.Name)
				}
			}
			return err
		}
		s.Policy("a/more", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{ipBlock: {cidr: 198.51.100.0/24}}]}, {ports: [{port: 99}]}]}`)
		s.ill("doesn't exist")
		s.Expect(bothServed)
		faults.Apply = nil
		s.well()
		s.Expect("198.51.100.7 > 10.32.1.2 tcp:80 = yes\n outside > a/web tcp:99 = yes")
		s.logged(refuses, 0)
		s.agree()
	})
}

// TestS89_TheKernelDoesNotFindNames: without a match or a target that answers of resolvers need, they pass unlearned, and
// all else is enforced.
func TestS89_TheKernelDoesNotFindNames(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		for pattern, left := range map[string]string{"-m~string": "", "-j~NFQUEUE": "-m string", "hashlimit-above": "NFQUEUE",
			"nflog-group~88": "NFQUEUE"} {
			s := newStation(t, b)
			s.spoil(pattern)
			s.ClusterPolicy("names", `{tier: Admin, priority: 1, subject: {namespaces: {}},
				egress: [{action: Accept, to: [{domainNames: [a.example.com, b.example.com, c.example.com, d.example.com, e.example.com]}]}]}`)
			s.step()
			s.Expect(bothServed)
			s.step() // without the chain that others lead to, legacy refuses these too
			s.logged(refuses, 1)
			if ready := s.Live.Ready(); !strings.HasSuffix(ready, "the kernel refuses what these policies need: domain names") {
				t.Errorf("%s: readiness is %q", pattern, ready)
			}
			if text := s.dns(); !strings.Contains(text, left) || strings.Contains(text, strings.ReplaceAll(pattern, "~", " ")) {
				t.Errorf("%s: the rules are\n%s", pattern, text)
			}
			s.program()
			s.well()
			if text := s.dns(); strings.Count(text, "-m string") != 5 || !strings.Contains(text, "NFQUEUE") {
				t.Errorf("%s: afterwards the rules are\n%s", pattern, text)
			}
			s.agree()
		}
	})
}

// dns returns the rules for answers of resolvers.
func (s *station) dns() string {
	return strings.Join(slices.Concat(s.Kernels[npc.IPv4].Chains[naming.DNSChain], s.Kernels[npc.IPv4].Chains[naming.DNSHoldChain]), "\n")
}
