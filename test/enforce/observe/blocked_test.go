package observe

import (
	"regexp"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

func TestBlockedPacketsAreLoggedWithNames(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Rich())
		d := w.Daemons[0]
		e2e.EachFamily(func(family int) {
			said := d.Log.Len()
			w.Probe(t, "mon", lab.Packet{Proto: "tcp", To: w.Hosts["web"].Addr(family), Port: 80}, lab.Dropped)
			end := func(pod, port string) string {
				addr := w.Hosts[e2e.OwnName(pod)].Addr(family).String()
				return `"` + pod + ` \(\[?` + regexp.QuoteMeta(addr) + `\]?:` + port + `\)"`
			}
			d.AwaitLine(t, said, `level=INFO msg=blocked direction=ingress protocol=TCP from=`+end("ops/mon",
				`\d+`)+` to=`+
				end("shop/web", "80")+` isolated_by=shop/p`)
			said = d.Log.Len()
			w.Probe(t, "web", lab.Packet{Proto: "udp", To: w.Hosts["out"].Addr(family), Port: 9}, lab.Dropped)
			d.AwaitLine(t, said, `level=INFO msg=blocked direction=egress protocol=UDP from=`+end("shop/web", `\d+`)+
				` to=.*:9.* isolated_by=shop/p`)
		})
		_, metrics := d.Get("/metrics")
		if !strings.Contains(metrics, `weavenpc_blocked_connections_total{dport="80",protocol="tcp"} 2`) {
			counted := regexp.MustCompile(`(?m)^weavenpc_blocked.*$`).FindAllString(metrics, -1)
			t.Errorf("blocked packets are not counted:\n%s", counted)
		}
	})
}

// TestOnlyWhatWeDropIsCalledBlocked has a rule of another program report all packets that pass to the NFLOG group of
// weave-npc.
func TestOnlyWhatWeDropIsCalledBlocked(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Rich())
		d := w.Daemons[0]
		said := d.Log.Len()
		e2e.Run(t, d.Node.Host, "iptables-"+string(backend), "-w", "-t", "mangle", "-I", "FORWARD", "-j", "NFLOG",
			"--nflog-group", "86",
			"--nflog-prefix", "weave-npc blocked ingress")
		w.Probe(t, "mon", lab.Packet{Proto: "tcp", To: w.Hosts["out"].Addr4(), Port: 80}, lab.Allowed)
		w.Probe(t, "db", lab.Packet{Proto: "tcp", To: w.Hosts["web"].Addr4(), Port: 80}, lab.Allowed)
		w.Probe(t, "mon", lab.Packet{Proto: "tcp", To: w.Hosts["web"].Addr4(), Port: 80}, lab.Dropped)
		d.AwaitLine(t, said, `msg=blocked direction=ingress protocol=TCP from="ops/mon .* to="shop/web .*:80\)"`)
		_, metrics := d.Get("/metrics")
		if !strings.Contains(metrics, `weavenpc_blocked_connections_total{dport="80",protocol="tcp"} 1`+"\n") {
			t.Errorf("blocked packets are counted wrongly:\n%s",
				regexp.MustCompile(`(?m)^weavenpc_blocked.*$`).FindAllString(metrics, -1))
		}
		// The kernel's own count is read now and then.
		dropped := regexp.MustCompile(`(?m)^weavenpc_dropped_packets_total\{direction="(\w+)",family="(\w+)"\} (\d+)$`)
		await.Within(t, 2*e2e.Timeout, func() bool {
			_, metrics = d.Get("/metrics")
			counts := map[string]string{}
			for _, m := range dropped.FindAllStringSubmatch(metrics, -1) {
				counts[m[1]+" "+m[2]] = m[3]
			}
			return counts["ingress IPv4"] != "0" && counts["egress IPv4"] == "0"
		}, func() string {
			return "what is dropped is not counted\n" + strings.Join(dropped.FindAllString(metrics, -1), "\n")
		})
	})
}
