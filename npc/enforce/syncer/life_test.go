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

// TestTheLifeOfASyncer from the start of its node on, by its own clock.
func TestTheLifeOfASyncer(t *testing.T) {
	cluster.OnEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		cluster.Empty(t)
		w := cluster.NewUnsynced(t)
		log := &journal{}
		var reports []enforce.InvalidPolicy
		w.OpenKernel(b)
		s := w.NewSyncer(b, log.logger(), func(p enforce.InvalidPolicy) { reports = append(reports, p) })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx, true) }()
		says := func(lines string) func() bool {
			return func() bool {
				w.Live.Copy(w)
				for _, line := range strings.Split(lines, "\n") {
					from, rest, _ := strings.Cut(line, " > ")
					to, want, _ := strings.Cut(rest, " = ")
					if !w.Holds(from, to, want == "yes") {
						return false
					}
				}
				return true
			}
		}
		w.Addr("unknown", "10.32.1.77")
		cluster.Eventually(t, "closing unknown addresses before the objects are known", says("198.51.100.7 > 10.32.1.77 = no"))
		if ready := s.Ready(); !strings.Contains(ready, "not all") {
			t.Errorf("readiness is %q", ready)
		}
		w.Namespace("a")
		w.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
		w.Policy("a/bad", `{podSelector: {matchLabels: {app: none}}, ingress: [{from: [{ipBlock: {cidr: 1.2.3.4/99}}]}]}`)
		w.Model.SetSynced()
		<-s.Enforced().Done()
		cluster.Eventually(t, "opening", says("198.51.100.7 > 10.32.1.77 = yes\n198.51.100.7 > 10.32.1.2 = yes"))
		cluster.Eventually(t, "being ready", func() bool { return s.Ready() == "" })

		w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}`)
		cluster.Eventually(t, "isolating", says("198.51.100.7 > 10.32.1.2 = no\n10.32.1.3 > 10.32.1.2 = yes"))
		w.SetPod("a/late", "", []string{"app=web"}, nil)
		cluster.Eventually(t, "closing for a pod without an address", says("198.51.100.7 > 10.32.1.77 = no"))
		cluster.Eventually(t, "saying so", func() bool {
			return log.count("fail-closed filter closed") > 0 && log.count("a/late has no address yet") > 0
		})
		w.Pod("a/late", "10.99.1.4", "app=web")
		cluster.Eventually(t, "opening again", says("198.51.100.7 > 10.32.1.77 = yes"))
		cluster.Eventually(t, "saying so", func() bool { return log.count("fail-closed filter open") > 0 })

		chains := func() int {
			n := 0
			for name := range w.Kernels[0].Chains {
				if strings.HasPrefix(name, "WEAVE-NPC-I-") {
					n++
				}
			}
			return n
		}
		w.DeletePolicy("a/web")
		cluster.Eventually(t, "opening without the policy", says("198.51.100.7 > 10.32.1.2 = yes"))
		cluster.Eventually(t, "tidying up", func() bool { w.Live.Copy(w); return chains() == 0 })

		cluster.Command(t, "iptables-"+string(b), "-w", "-F", "WEAVE-NPC-DEFAULT")
		cluster.Eventually(t, "repairing", func() bool {
			return log.count("drift found") == 1 && log.count("WEAVE-NPC-DEFAULT") > 0
		})
		cluster.Eventually(t, "having repaired", func() bool {
			w.Live.Copy(w)
			return len(w.Kernels[0].Chains["WEAVE-NPC-DEFAULT"]) == 4 && s.Ready() == ""
		})
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(reports) != 1 || reports[0].Name != "bad" || reports[0].Refused {
			t.Errorf("reported: %v", reports)
		}
		if log.count("policies are enforced") != 1 || log.count("policy is invalid") != 1 || log.count("level=ERROR") != 1 {
			t.Errorf("the log is\n%s", log.String())
		}
		for name, want := range map[string]float64{
			"weavenpc_local_pods": 2, "weavenpc_invalid_policies": 1, "weavenpc_rejected_policies": 0, "weavenpc_failing": 0,
			"weavenpc_drift_total": 1, "weavenpc_policy_enforcement_errors": 0,
		} {
			if got := w.Metric(name); got != want {
				t.Errorf("%s is %v, not %v", name, got, want)
			}
		}
		if w.Metric("weavenpc_transactions_total") < 4 || w.Metric("weavenpc_rules") < 40 || w.Metric("weavenpc_sets") < 12 {
			t.Error("transactions, rules or sets are not counted")
		}

		t.Run("adoption", func(t *testing.T) {
			next := cluster.NewUnsynced(t)
			next.Namespace("a")
			next.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
			next.Pod("a/late", "10.99.1.4", "app=web")
			next.Policy("a/bad", `{podSelector: {matchLabels: {app: none}}, ingress: [{from: [{ipBlock: {cidr: 1.2.3.4/99}}]}]}`)
			next.Model.SetSynced()
			said := &journal{}
			second := next.NewSyncer(b, said.logger(), func(enforce.InvalidPolicy) {})
			var out bytes.Buffer
			if err := second.DryRun(t.Context(), &out); err != nil || strings.TrimSpace(out.String()) != "" {
				t.Errorf("there is something to do: %v\n%s", err, out.String())
			}
			if errs := second.Sync(t.Context(), false); len(errs) > 0 || said.count("msg=transaction") > 0 {
				t.Errorf("%v\n%s", errs, said.String())
			}
		})
		t.Run("cleanup", func(t *testing.T) {
			cluster.Command(t, "iptables-"+string(b), "-w", "-A", "FORWARD", "-p", "udp", "-j", "DROP")
			cluster.Command(t, "ipset", "create", "weave-foreign", "hash:ip")
			removed, err := syncer.Cleanup(t.Context(), w.Live.Tables[:])
			if err != nil || len(removed) < 30 {
				t.Errorf("%v, %v", removed, err)
			}
			w.Live.Copy(w)
			if len(w.Kernels[0].Chains) != 1 || len(w.Kernels[0].Chains["FORWARD"]) != 1 || len(w.Kernels[0].Sets) != 1 {
				t.Errorf("left are %v and %v", w.Kernels[0].Chains, w.Kernels[0].Sets)
			}
		})
	})
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
