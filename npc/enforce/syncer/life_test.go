package syncer_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/syncer"
	"github.com/weave-npc/weave-npc/test/cluster"
)

// life is a syncer that runs by its own clock, from the start of its node on.
type life struct {
	*cluster.Cluster
	backend iptables.Backend
	syncer  *syncer.Syncer
	log     *journal
	reports []enforce.InvalidPolicy
}

// holds returns whether the kernel gives verdicts, as "from > to = yes".
func (l *life) holds(verdicts ...string) func() bool {
	return func() bool {
		l.Live.Copy(l.Cluster)
		for _, verdict := range verdicts {
			from, rest, _ := strings.Cut(verdict, " > ")
			to, want, _ := strings.Cut(rest, " = ")
			if !l.Holds(from, to, want == "yes") {
				return false
			}
		}
		return true
	}
}

const badPolicy = `{podSelector: {matchLabels: {app: none}}, ingress: [{from: [{ipBlock: {cidr: 1.2.3.4/99}}]}]}`

func TestTheLifeOfASyncer(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		cluster.Empty(t)
		l := &life{Cluster: cluster.NewUnsynced(t), backend: b, log: &journal{}}
		l.OpenKernel(b)
		l.syncer = l.NewSyncer(b, l.log.logger(), func(p enforce.InvalidPolicy) { l.reports = append(l.reports, p) })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.syncer.Run(ctx, true) }()
		l.starts()
		l.isolates()
		l.removesAndRepairs()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		l.hasReported()
		l.hasCounted()
		t.Run("adoption", l.isAdopted)
		t.Run("cleanup", l.isCleanedUp)
	})
}

// starts closes unknown addresses until the objects are known.
func (l *life) starts() {
	l.Addr("unknown", "10.32.1.77")
	cluster.Eventually(l.T, "closing unknown addresses before the objects are known", l.holds("198.51.100.7 > 10.32.1.77 = no"))
	if ready := l.syncer.Ready(); !strings.Contains(ready, "not all") {
		l.Errorf("readiness is %q", ready)
	}
	l.Namespace("a")
	l.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
	l.Policy("a/bad", badPolicy)
	l.Model.SetSynced()
	<-l.syncer.Enforced().Done()
	cluster.Eventually(l.T, "opening", l.holds("198.51.100.7 > 10.32.1.77 = yes", "198.51.100.7 > 10.32.1.2 = yes"))
	cluster.Eventually(l.T, "being ready", func() bool { return l.syncer.Ready() == "" })
}

// isolates a pod, and closes for one that has no address yet.
func (l *life) isolates() {
	l.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}`)
	cluster.Eventually(l.T, "isolating", l.holds("198.51.100.7 > 10.32.1.2 = no", "10.32.1.3 > 10.32.1.2 = yes"))
	l.SetPod("a/late", "", []string{"app=web"}, nil)
	cluster.Eventually(l.T, "closing for a pod without an address", l.holds("198.51.100.7 > 10.32.1.77 = no"))
	cluster.Eventually(l.T, "saying so", func() bool {
		return l.log.count("fail-closed filter closed") > 0 && l.log.count("a/late has no address yet") > 0
	})
	l.Pod("a/late", "10.99.1.4", "app=web")
	cluster.Eventually(l.T, "opening again", l.holds("198.51.100.7 > 10.32.1.77 = yes"))
	cluster.Eventually(l.T, "saying so", func() bool { return l.log.count("fail-closed filter open") > 0 })
}

// removesAndRepairs removes the chain of a deleted policy, and repairs one that another program emptied.
func (l *life) removesAndRepairs() {
	l.DeletePolicy("a/web")
	cluster.Eventually(l.T, "opening without the policy", l.holds("198.51.100.7 > 10.32.1.2 = yes"))
	cluster.Eventually(l.T, "tidying up", func() bool {
		l.Live.Copy(l.Cluster)
		for name := range l.Kernels[0].Chains {
			if strings.HasPrefix(name, "WEAVE-NPC-I-") {
				return false
			}
		}
		return true
	})
	cluster.Command(l.T, "iptables-"+string(l.backend), "-w", "-F", "WEAVE-NPC-DEFAULT")
	cluster.Eventually(l.T, "repairing", func() bool {
		return l.log.count("drift found") == 1 && l.log.count("WEAVE-NPC-DEFAULT") > 0
	})
	cluster.Eventually(l.T, "having repaired", func() bool {
		l.Live.Copy(l.Cluster)
		return len(l.Kernels[0].Chains["WEAVE-NPC-DEFAULT"]) == 4 && l.syncer.Ready() == ""
	})
}

func (l *life) hasReported() {
	if len(l.reports) != 1 || l.reports[0].Name != "bad" || l.reports[0].Refused {
		l.Errorf("reported: %v", l.reports)
	}
	if l.log.count("policies are enforced") != 1 || l.log.count("policy is invalid") != 1 || l.log.count("level=ERROR") != 1 {
		l.Errorf("the log is\n%s", l.log.String())
	}
}

func (l *life) hasCounted() {
	for name, want := range map[string]float64{
		"weavenpc_local_pods": 2, "weavenpc_invalid_policies": 1, "weavenpc_rejected_policies": 0, "weavenpc_failing": 0,
		"weavenpc_drift_total": 1, "weavenpc_policy_enforcement_errors": 0,
	} {
		if got := l.Metric(name); got != want {
			l.Errorf("%s is %v, not %v", name, got, want)
		}
	}
	if l.Metric("weavenpc_transactions_total") < 4 || l.Metric("weavenpc_rules") < 40 || l.Metric("weavenpc_sets") < 12 {
		l.Error("transactions, rules or sets are not counted")
	}
}

// isAdopted starts another syncer, which has nothing to change.
func (l *life) isAdopted(t *testing.T) {
	next := cluster.NewUnsynced(t)
	next.Namespace("a")
	next.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
	next.Pod("a/late", "10.99.1.4", "app=web")
	next.Policy("a/bad", badPolicy)
	next.Model.SetSynced()
	log := &journal{}
	second := next.NewSyncer(l.backend, log.logger(), func(enforce.InvalidPolicy) {})
	var out bytes.Buffer
	if err := second.DryRun(t.Context(), &out); err != nil || strings.TrimSpace(out.String()) != "" {
		t.Errorf("there is something to do: %v\n%s", err, out.String())
	}
	if errs := second.Sync(t.Context(), false); len(errs) > 0 || log.count("msg=transaction") > 0 {
		t.Errorf("%v\n%s", errs, log.String())
	}
}

// isCleanedUp keeps what belongs to other programs.
func (l *life) isCleanedUp(t *testing.T) {
	cluster.Command(t, "iptables-"+string(l.backend), "-w", "-A", "FORWARD", "-p", "udp", "-j", "DROP")
	cluster.Command(t, "ipset", "create", "weave-foreign", "hash:ip")
	removed, err := syncer.Cleanup(t.Context(), l.Live.Tables[:])
	if err != nil || len(removed) < 30 {
		t.Errorf("%v, %v", removed, err)
	}
	l.Live.Copy(l.Cluster)
	if len(l.Kernels[0].Chains) != 1 || len(l.Kernels[0].Chains["FORWARD"]) != 1 || len(l.Kernels[0].Sets) != 1 {
		t.Errorf("left are %v and %v", l.Kernels[0].Chains, l.Kernels[0].Sets)
	}
}

func TestDryRunEnds(t *testing.T) {
	cluster.Empty(t)
	w := cluster.NewUnsynced(t)
	s := w.NewSyncer(iptables.NFT, (&journal{}).logger(), func(enforce.InvalidPolicy) {})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.DryRun(ctx, &bytes.Buffer{}); err == nil {
		t.Error("it ends without the objects")
	}
	w.Pod("a/web", "10.32.1.2", "app=web")
	w.Policy("a/web", `{podSelector: {}, ingress: [{ports: [{port: 80}]}]}`)
	w.Model.SetSynced()
	var out bytes.Buffer
	if err := s.DryRun(t.Context(), &out); err != nil || !strings.Contains(out.String(), "a/web rule 1") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestWhatBecomesKnownMeanwhileIsNotEnforcedYet: the last object arrives while unknown addresses are being closed.
func TestWhatBecomesKnownMeanwhileIsNotEnforcedYet(t *testing.T) {
	cluster.Empty(t)
	w := cluster.NewUnsynced(t)
	s := w.NewSyncer(iptables.NFT, slog.New(slog.NewTextHandler(lineWriter(func(line string) {
		if strings.Contains(line, "msg=transaction") {
			w.Model.SetSynced()
		}
	}), nil)), nil)
	if errs := s.Sync(t.Context(), true); len(errs) > 0 {
		t.Fatal(errs)
	}
	if why := s.Ready(); !strings.Contains(why, "has not been applied yet") || s.Enforced().Err() != nil {
		t.Errorf("before anything of it was planned, readiness is %q", why)
	}
	if errs := s.Sync(t.Context(), true); len(errs) > 0 || s.Ready() != "" {
		t.Errorf("after that it is %q, %v", s.Ready(), errs)
	}
}

// lineWriter is called with each line.
type lineWriter func(line string)

func (l lineWriter) Write(p []byte) (int, error) {
	l(string(p))
	return len(p), nil
}

func TestPodsOutOfRangeAreReportedOnce(t *testing.T) {
	cluster.Empty(t)
	w := cluster.NewUnsynced(t, func(c *enforce.Config) { c.PodInterface = "" })
	log := &journal{}
	s := w.NewSyncer(iptables.NFT, log.logger(), func(enforce.InvalidPolicy) {})
	w.Pod("a/stray", "10.99.1.2")
	w.Model.SetSynced()
	s.Sync(t.Context(), false)
	for range 3 {
		s.Watch(t.Context())
	}
	if log.count("outside its range") != 1 {
		t.Errorf("the log is\n%s", log.String())
	}
}
