package main

import (
	"context"
	"log/slog"
	"slices"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/naming"
)

// reportForwardPolicy logs, where allowed packets return to FORWARD, for each family in which its policy is DROP, that what network policies allow needs a rule of another
// program that accepts it. It warns if there is no such rule at all; which packets the others' rules match is not examined.
func reportForwardPolicy(ctx context.Context, config npc.Config, backend iptables.Backend, families []npc.Family, log *slog.Logger) {
	if config.Hook != npc.HookForward || config.AllowAction != actionReturn {
		return
	}
	for _, f := range families {
		t, err := iptables.New(f.IPTables(), backend)
		if err != nil {
			continue // the syncer reports it
		}
		seen, err := t.Read(ctx, naming.ChainPrefix)
		if err != nil || seen.Policies["FORWARD"] != "DROP" {
			continue
		}
		if slices.ContainsFunc(seen.Hooks["FORWARD"], seen.Accepts) {
			log.Info("the policy of FORWARD is DROP: what network policies allow passes where a later rule accepts it", "family", f)
			continue
		}
		log.Warn("the policy of FORWARD is DROP and no rule accepts: nothing passes from or to pods; add rules that accept, or give "+
			"--allow-action ACCEPT", "family", f)
	}
}
