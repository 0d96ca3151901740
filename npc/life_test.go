package npc_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/walk"
)

// TestTheLifeOfASyncer from the start of its node on, by its own clock.
func TestTheLifeOfASyncer(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		empty(t)
		w := newModelWorld(t)
		w.live = &live{backend: b}
		w.live.open(t)
		log := &journal{}
		registry := prometheus.NewRegistry()
		var reports []npc.InvalidPolicy
		s, err := npc.NewSyncer(w.model.Model, families[:], b, npc.NewMetrics(registry, w.model.Model), log.logger(),
			func(p npc.InvalidPolicy) { reports = append(reports, p) })
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx, true) }()
		says := func(lines string) func() bool {
			return func() bool {
				w.live.copy(w)
				for _, line := range strings.Split(lines, "\n") {
					from, rest, _ := strings.Cut(line, " > ")
					to, want, _ := strings.Cut(rest, " = ")
					if !w.holds(from, to, want == "yes") {
						return false
					}
				}
				return true
			}
		}
		w.addr("unknown", "10.32.1.77")
		eventually(t, "closing unknown addresses before the objects are known", says("198.51.100.7 > 10.32.1.77 = no"))
		if ready := s.Ready(); !strings.Contains(ready, "not all") {
			t.Errorf("readiness is %q", ready)
		}
		w.namespace("a")
		w.pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
		w.policy("a/bad", `{podSelector: {matchLabels: {app: none}}, ingress: [{from: [{ipBlock: {cidr: 1.2.3.4/99}}]}]}`)
		w.model.SetSynced()
		<-s.Enforced().Done()
		eventually(t, "opening", says("198.51.100.7 > 10.32.1.77 = yes\n198.51.100.7 > 10.32.1.2 = yes"))
		eventually(t, "being ready", func() bool { return s.Ready() == "" })

		w.policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}`)
		eventually(t, "isolating", says("198.51.100.7 > 10.32.1.2 = no\n10.32.1.3 > 10.32.1.2 = yes"))
		w.setPod("a/late", "", []string{"app=web"}, nil)
		eventually(t, "closing for a pod without an address", says("198.51.100.7 > 10.32.1.77 = no"))
		eventually(t, "saying so", func() bool { return log.count("gate closed") > 0 && log.count("a/late has no address yet") > 0 })
		w.pod("a/late", "10.99.1.4", "app=web")
		eventually(t, "opening again", says("198.51.100.7 > 10.32.1.77 = yes"))
		eventually(t, "saying so", func() bool { return log.count("gate open") > 0 })

		chains := func() int {
			n := 0
			for name := range w.kernels[0].Chains {
				if strings.HasPrefix(name, "WEAVE-NPC-I-") {
					n++
				}
			}
			return n
		}
		w.deletePolicy("a/web")
		eventually(t, "opening without the policy", says("198.51.100.7 > 10.32.1.2 = yes"))
		eventually(t, "tidying up", func() bool { w.live.copy(w); return chains() == 0 })

		command(t, "iptables-"+string(b), "-w", "-F", "WEAVE-NPC-DEFAULT")
		eventually(t, "repairing", func() bool {
			return log.count("somebody changed what is ours") == 1 && log.count("WEAVE-NPC-DEFAULT") > 0
		})
		eventually(t, "having repaired", func() bool {
			w.live.copy(w)
			return len(w.kernels[0].Chains["WEAVE-NPC-DEFAULT"]) == 4 && s.Ready() == ""
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
			"weavenpc_local_pods": 2, "weavenpc_invalid_policies": 1, "weavenpc_refused_policies": 0, "weavenpc_failing": 0,
			"weavenpc_drift_total": 1, "weavenpc_policy_enforcement_errors": 0,
		} {
			if got := metric(t, registry, name); got != want {
				t.Errorf("%s is %v, not %v", name, got, want)
			}
		}
		if metric(t, registry, "weavenpc_transactions_total") < 4 || metric(t, registry, "weavenpc_rules") < 40 || metric(t, registry, "weavenpc_sets") < 12 {
			t.Error("transactions, rules or sets are not counted")
		}

		t.Run("adoption", func(t *testing.T) {
			next := newModelWorld(t)
			next.namespace("a")
			next.pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
			next.pod("a/late", "10.99.1.4", "app=web")
			next.policy("a/bad", `{podSelector: {matchLabels: {app: none}}, ingress: [{from: [{ipBlock: {cidr: 1.2.3.4/99}}]}]}`)
			next.model.SetSynced()
			said := &journal{}
			syncer := next.syncer(b, said.logger(), func(npc.InvalidPolicy) {})
			var out bytes.Buffer
			if err := syncer.DryRun(t.Context(), &out); err != nil || strings.TrimSpace(out.String()) != "" {
				t.Errorf("there is something to do: %v\n%s", err, out.String())
			}
			if errs := syncer.Sync(t.Context(), false); len(errs) > 0 || said.count("msg=transaction") > 0 {
				t.Errorf("%v\n%s", errs, said.String())
			}
		})
		t.Run("cleanup", func(t *testing.T) {
			command(t, "iptables-"+string(b), "-w", "-A", "FORWARD", "-p", "udp", "-j", "DROP")
			command(t, "ipset", "create", "weave-foreign", "hash:ip")
			removed, err := npc.Cleanup(t.Context(), w.live.tables[:])
			if err != nil || len(removed) < 30 {
				t.Errorf("%v, %v", removed, err)
			}
			w.live.copy(w)
			if len(w.kernels[0].Chains) != 1 || len(w.kernels[0].Chains["FORWARD"]) != 1 || len(w.kernels[0].Sets) != 1 {
				t.Errorf("left are %v and %v", w.kernels[0].Chains, w.kernels[0].Sets)
			}
		})
	})
}

// holds says whether TCP from one address to another is judged as it should be.
func (w *world) holds(from, to string, want bool) bool {
	src, dst := netip.MustParseAddr(from), netip.MustParseAddr(to)
	return w.judge(walk.Packet{Src: src, Dst: dst, Protocol: 6, DstPort: 80, In: "cni0", Out: "cni0"}).Accepted == want
}

// metric is the sum of a metric's values.
func metric(t *testing.T, r *prometheus.Registry, name string) float64 {
	t.Helper()
	gathered, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range gathered {
		if f.GetName() != name {
			continue
		}
		sum := 0.0
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
		return sum
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func TestDryRunEnds(t *testing.T) {
	empty(t)
	w := newModelWorld(t)
	s := w.syncer(iptables.NFT, (&journal{}).logger(), func(npc.InvalidPolicy) {})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.DryRun(ctx, &bytes.Buffer{}); err == nil {
		t.Error("it ends without the objects")
	}
	w.pod("a/web", "10.32.1.2", "app=web")
	w.policy("a/web", `{podSelector: {}, ingress: [{ports: [{port: 80}]}]}`)
	w.model.SetSynced()
	var out bytes.Buffer
	if err := s.DryRun(t.Context(), &out); err != nil || !strings.Contains(out.String(), "a/web rule 1") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestWhatBecomesKnownMeanwhileIsNotEnforcedYet: the last object arrives while unknown addresses are being closed.
func TestWhatBecomesKnownMeanwhileIsNotEnforcedYet(t *testing.T) {
	empty(t)
	w := newModelWorld(t)
	s := w.syncer(iptables.NFT, slog.New(slog.NewTextHandler(lineWriter(func(line string) {
		if strings.Contains(line, "msg=transaction") {
			w.model.SetSynced()
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

func TestStraysAreSaidOnce(t *testing.T) {
	empty(t)
	w := newModelWorld(t, func(c *npc.Config) { c.PodInterface = "" })
	log := &journal{}
	syncer := w.syncer(iptables.NFT, log.logger(), func(npc.InvalidPolicy) {})
	w.pod("a/stray", "10.99.1.2")
	w.model.SetSynced()
	syncer.Sync(t.Context(), false)
	for range 3 {
		syncer.Watch(t.Context())
	}
	if log.count("outside its range") != 1 {
		t.Errorf("the log is\n%s", log.String())
	}
}

func TestUnknownRange(t *testing.T) {
	w := newModelWorld(t, func(c *npc.Config) { c.PodInterface, c.PodRanges = "", nil })
	rangeless := func(want bool) {
		t.Helper()
		if w.model.Rangeless() != want {
			t.Errorf("a range is unknown: %t", !want)
		}
	}
	w.model.SetSynced()
	rangeless(false)
	w.pod("a/web", "10.32.1.2")
	rangeless(true)
	w.model.SetRanges([]netip.Prefix{netip.MustParsePrefix("10.32.1.0/24")})
	rangeless(false)
}

func TestNames(t *testing.T) {
	w := newWorld(t)
	w.namespace("a")
	w.setPod("a/web", "10.32.1.2", []string{"app=web"}, func(p *npc.Pod) { p.HostAddrs = []netip.Addr{netip.MustParseAddr("172.31.0.1")} })
	w.policy("a/p", `{podSelector: {}}`)
	w.sync()
	for addr, want := range map[string]string{"10.32.1.2": "a/web", "172.31.0.1": "node", "9.9.9.9": ""} {
		if got := w.model.NameOf(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s is %q, not %q", addr, got, want)
		}
	}
	if got := w.model.Isolating(netip.MustParseAddr("10.32.1.2"), npc.Ingress); len(got) != 1 || got[0] != "a/p" {
		t.Errorf("isolating: %v", got)
	}
	if got := w.model.Isolating(netip.MustParseAddr("9.9.9.9"), npc.Ingress); got != nil {
		t.Errorf("isolating nobody: %v", got)
	}
}
