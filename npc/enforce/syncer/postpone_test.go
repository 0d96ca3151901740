package syncer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/test/cluster"
)

// rules match what writes rules of a namespace that name a port, in the input of iptables-restore with ~ for spaces.
func rules(ns string) string {
	return "^-[AI]~" + naming.ShardChain(npc.Ingress, ns, "") + "~(1~)?-p~tcp"
}

// TestS76_OneNamespaceThatCannotBeWritten keeps no other namespace's rules from the kernel, whether the program that
// writes its rules fails or hangs.
func TestS76_OneNamespaceThatCannotBeWritten(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		for _, how := range []string{"refuses", "chokes"} {
			t.Run(how, func(t *testing.T) {
				s := newStation(t, b)
				s.well()
				for _, ns := range []string{"b", "c", "d"} {
					s.Namespace(ns)
					s.Pod(ns+"/client", fmt.Sprintf("10.32.1.%d,fd32:1::%x", ns[0]+100, ns[0]+100), "app=client")
					s.Pod(ns+"/new", fmt.Sprintf("10.32.1.%d,fd32:1::%x", ns[0], ns[0]), "app=new")
				}
				s.well()
				s.program("iptables-"+string(b)+"-restore:"+how+"-"+rules("a"),
					"ip6tables-"+string(b)+"-restore:"+how+"-"+rules("b"))
				if how == "chokes" {
					s.Live.Hurry(3 * time.Second) // longer than a write takes on a busy machine
				}
				// a has rules, which are replaced; b has none; the others have none, and are written with those two.
				s.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 81}]}]}`)
				for _, ns := range []string{"b", "c", "d"} {
					s.Policy(ns+"/new", `{podSelector: {matchLabels: {app: new}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 80}]}]}`)
				}
				if errs := s.step(); len(errs) > 0 && how == "refuses" {
					t.Errorf("others fail too: %v", errs)
				}
				if ready := s.Live.Ready(); !strings.Contains(ready, "namespaces cannot be written: IPv4: a") ||
					!strings.Contains(ready, "namespaces cannot be written: IPv6: b") {
					t.Errorf("readiness is %q", ready)
				}
				s.Expect(`
					c/client > c/new tcp:80 = yes
					c/client > c/new tcp:81 = no
					d/client > d/new tcp:80 = yes
					outside > d/new tcp:80 = no
					outside > b/new tcp:80 = no
					10.32.1.4 > 10.32.1.2 tcp:80 = yes
					fd32:1::4 > fd32:1::2 tcp:81 = yes
					10.32.1.198 > 10.32.1.98 tcp:80 = yes
					fd32:1::c6 > fd32:1::62 tcp:80 = no`)
				// Whoever comes now to a namespace that works is let in, and to one that does not is closed.
				s.Pod("c/later", "10.32.1.30,fd32:1::30", "app=new")
				s.Pod("b/later", "10.32.1.31,fd32:1::31", "app=new")
				s.Pod("a/later", "10.32.1.32,fd32:1::32", "app=web")
				s.step()
				s.Expect(`
					c/client > c/later tcp:80 = yes
					fd32:1::c6 > fd32:1::31 tcp:80 = no
					outside > b/later tcp:80 = no
					outside > a/later tcp:80 = no`)
				s.logged("cannot write the rules of a namespace", 2)
				s.program()
				s.Live.Hurry(10 * time.Second)
				s.step()
				s.well()
				s.logged("the rules of a namespace are written again", 2)
				s.Expect(`
					a/client > a/web tcp:81 = yes
					a/client > a/web tcp:80 = no
					a/client > a/later tcp:81 = yes
					b/client > b/new tcp:80 = yes
					b/client > b/later tcp:80 = yes`)
				s.agree()
			})
		}
	})
}

// TestS76_ASyncThatIsStuck is unready, and says in what.
func TestS76_ASyncThatIsStuck(t *testing.T) {
	s := newStation(t, iptables.NFT)
	s.well()
	s.Live.StuckAfter(300 * time.Millisecond)
	s.Live.Hurry(5 * time.Second)
	s.program("iptables-nft-restore:chokes-" + rules("a"))
	s.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}], ports: [{port: 81}]}]}`)
	done := make(chan []error)
	go func() { done <- s.Live.Sync(t.Context(), false) }()
	cluster.Eventually(t, "saying what it is stuck in", func() bool {
		why := s.Live.Ready()
		return strings.Contains(why, "changes have been waiting for") && strings.Contains(why, "; IPv4: writing the rules of namespaces a for ")
	})
	if s.Metric("weavenpc_waiting_seconds") < 0.3 {
		t.Error("the metric does not show it")
	}
	<-done
	s.program()
	s.Live.RetryNow()
	s.well()
	if waiting := s.Metric("weavenpc_waiting_seconds"); waiting != 0 {
		t.Errorf("something still waits: %v", waiting)
	}
}

// TestAPolicyOfWhichTooMuchIsRefused is left out as a whole, so that the search for what is refused ends.
func TestAPolicyOfWhichTooMuchIsRefused(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newStation(t, b)
		s.Policy("a/web", cluster.ManyRules("web", 300))
		s.well()
		s.spoil("~a/web~rule")
		s.Policy("a/db", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 5433}]}]}`)
		calls := func() int {
			text, err := os.ReadFile(filepath.Join(s.dir, "calls"))
			if err != nil {
				t.Fatal(err)
			}
			return strings.Count(string(text), "restore")
		}
		before := calls()
		s.Live.Sync(t.Context(), false)
		if n := calls() - before; n > 300 {
			t.Errorf("iptables-restore was run %d times", n)
		}
		s.Live.Copy(s.Cluster)
		s.Expect("a/client > a/db tcp:5433 = yes\n a/client > a/db tcp:5432 = no\n a/client > a/web tcp:80 = no")
		if refused := s.Model.Rejected(); len(refused) != 1 || refused[0].Name != "web" {
			t.Errorf("refused: %v", refused)
		}
	})
}
