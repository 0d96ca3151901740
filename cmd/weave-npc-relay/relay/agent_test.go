package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes"

	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/source"
	"github.com/weave-npc/weave-npc/npc/source/relayclient"
	"github.com/weave-npc/weave-npc/test/lab/apiserver"
)

// agent is the source of a weave-npc, and what it has reported.
type agent struct {
	*cluster.Cluster
	synced atomic.Bool
	stats  *relayclient.Stats // nil without a relay
}

// SetSynced notes that everything has been listed.
func (a *agent) SetSynced() { a.synced.Store(true) }

// runAgent runs a source until the test ends. It reads through relays if there are any.
func (w *harness) runAgent(t *testing.T, relays ...*running) *agent {
	t.Helper()
	return w.runAgentOf(t, w.client, time.Second, relays...)
}

// runAgentOf runs a source as runAgent does, with a client of the API server and a time over which many agents spread
// what they do at once.
func (w *harness) runAgentOf(t *testing.T, direct kubernetes.Interface, spread time.Duration, relays ...*running) *agent {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	a, s := &agent{Cluster: cluster.New()}, source.FromAPI(direct, nil, "")
	if len(relays) > 0 {
		config := relayclient.Config{CA: filepath.Join(t.TempDir(), "ca.crt"), Token: filepath.Join(t.TempDir(), "token"),
			Jitter: spread, Version: "test", Log: log}
		var authorities []byte
		for _, r := range relays {
			text, err := os.ReadFile(filepath.Join(r.dir, apiserver.AuthorityFile))
			w.must(err)
			authorities = append(authorities, text...)
			if config.Address != "" {
				config.Address += ","
			}
			config.Address += r.addr
		}
		w.must(os.WriteFile(config.CA, authorities, 0o600))
		w.must(os.WriteFile(config.Token, []byte(w.token("weave-npc", audience)), 0o600))
		r, err := relayclient.New(config)
		w.must(err)
		client, _, err := r.Client()
		w.must(err)
		s.Through(r, client, nil)
		a.stats = r.Stats()
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := s.Run(ctx, a, log); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		ended.Wait()
	})
	return a
}

// state is what an agent knows, in words that can be compared.
func (a *agent) state() map[string]string {
	all := map[string]string{}
	v := a.View()
	for name, p := range v.Pods {
		all["pod "+name] = fmt.Sprint(p.Labels, p.Addrs, p.Finished, p.UID)
	}
	for name, n := range v.Namespaces {
		all["namespace "+name] = fmt.Sprint(n.Labels)
	}
	for _, p := range v.Policies {
		all["policy "+p.Namespace+"/"+p.Name] = fmt.Sprint(p.UID)
	}
	return all
}

// TestAgentsFollowThroughRelaysThatDie has an agent follow the churn of a real API server through two relays, which die
// one after the other. It knows what an agent knows that asks the API server directly, and lists nothing again.
func TestAgentsFollowThroughRelaysThatDie(t *testing.T) {
	w := newHarness(t)
	random := rand.New(rand.NewPCG(1, 1))
	w.churn(t, random, 40)
	first, second := w.start(w.config, ""), w.start(w.config, "")
	direct, relayed := w.runAgent(t), w.runAgent(t, first, second)
	w.eventually("both agents have listed everything", func() bool { return direct.synced.Load() && relayed.synced.Load() })
	alike := func(when string) {
		t.Helper()
		w.eventually(when+": both agents know the same", func() bool { return cmp.Equal(direct.state(), relayed.state()) })
	}
	alike("at the start")
	if relayed.stats.Relay.Lists.Load() == 0 {
		t.Error("the first lists were not by a relay")
	}
	lists := relayed.stats.Relay.Lists.Load() + relayed.stats.API.Lists.Load()

	w.churn(t, random, 60)
	first.stop()
	w.churn(t, random, 60)
	alike("with one relay of two")
	w.eventually("nothing is watched at the API server, with a relay that works", func() bool { return relayed.stats.API.Watches.Load() == 0 })
	second.stop()
	w.churn(t, random, 60)
	alike("without a relay")
	if now := relayed.stats.Relay.Lists.Load() + relayed.stats.API.Lists.Load(); now != lists {
		t.Errorf("%d lists more than at the start, though every version was there to go on from", now-lists)
	}
	if len(direct.state()) < 10 {
		t.Errorf("the agents know only %v", direct.state())
	}
}
