package kernel

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
	"github.com/weave-npc/weave-npc/test/sandbox"
)

// offload has a node pass the packets of established connections from one interface to another without rules.
func offload(t *testing.T, n *lab.Node, interfaces ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Timeout)
	defer cancel()
	cmd := n.Command(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`table inet quick {
	flowtable f { hook ingress priority 0; devices = { %s }; }
	chain forward { type filter hook forward priority 10; ct state established flow add @f; }
}`, strings.Join(interfaces, ", ")))
	if said, err := cmd.CombinedOutput(); err != nil {
		sandbox.Lacks(t, "flow tables", fmt.Errorf("%w: %s", err, said))
	}
}

// offloaded reports whether a node has an offloaded connection.
func offloaded(t *testing.T, n *lab.Node) (is bool) {
	t.Helper()
	err := n.Do(func() error {
		table, err := conntrack.Open(unix.AF_INET)
		if err != nil {
			return err
		}
		defer table.Close()
		return table.Entries(func(_, _ netip.Addr) bool { return true }, func(e conntrack.Entry) {
			is = is || e.Offloaded()
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return is
}

// TestS96_OffloadedConnectionsAreReported: packets in a flow table meet no rule, so that a connection that policies do
// not allow any more goes on. The log reports it, and new connections are denied.
func TestS96_OffloadedConnectionsAreReported(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.New(t, backend, lab.Config{})
		n := w.Node("node1")
		offload(t, n, n.PodInterface(), "eth0")
		w.Begin(t, e2e.Base(), "--established=terminate")
		for _, d := range w.Daemons {
			d.Log.Expect("connections that were to end are offloaded")
		}
		talk := w.Converse(t, "web", "out", 4)
		await.Within(t, e2e.Timeout, func() bool {
			talk.Say(t)
			return offloaded(t, n)
		}, func() string { return "the connection is not offloaded\n" + e2e.Run(t, n.Host, "conntrack", "-L") })
		w.Apply(t, w.Objects(e2e.Do(e2e.Base(), e2e.Policy("shop/p",
			`{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}`))))
		w.DaemonOn(n).AwaitLine(t, 0, "connections that were to end are offloaded: their packets may meet no rule")
		w.Expect(t, e2e.Wants{"tcp 80": "-web>*"})
	})
}
