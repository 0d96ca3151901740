package host

import (
	"context"
	"log/slog"
	"slices"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// ReportForwardPolicy logs, for each family whose FORWARD chain has the policy DROP, that allowed packets which return
// to FORWARD pass only if a rule of another program accepts them. It warns if no rule accepts anything; it does not
// examine which packets those rules match.
func ReportForwardPolicy(ctx context.Context, backend iptables.Backend, families []npc.Family, log *slog.Logger) {
	for _, f := range families {
		t, err := iptables.New(naming.IPTables(f), backend)
		if err != nil {
			continue // the syncer reports it
		}
		seen, err := t.Read(ctx, naming.ChainPrefix)
		if err != nil || seen.Policies["FORWARD"] != "DROP" {
			continue
		}
		if slices.ContainsFunc(seen.Hooks["FORWARD"], seen.Accepts) {
			log.Info("the policy of FORWARD is DROP: what network policies allow passes where a later rule accepts it",
				"family", f)
			continue
		}
		log.Warn("the policy of FORWARD is DROP and no rule accepts: nothing passes from or to pods; "+
			"add rules that accept, or give "+
			"--allow-action ACCEPT", "family", f)
	}
}
