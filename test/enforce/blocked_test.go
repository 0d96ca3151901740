package enforce

import (
	"regexp"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
)

func TestBlockedPacketsAreLoggedWithNames(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, rich())
		d := w.daemons[0]
		families(func(family int) {
			said := d.log.len()
			w.probe(t, "mon", lab.Packet{Proto: "tcp", To: w.hosts["web"].Addr(family), Port: 80}, lab.Dropped)
			end := func(pod, port string) string {
				addr := w.hosts[ownName(pod)].Addr(family).String()
				return `"` + pod + ` \(\[?` + regexp.QuoteMeta(addr) + `\]?:` + port + `\)"`
			}
			d.awaitLine(t, said, `level=INFO msg=blocked direction=ingress protocol=TCP from=`+end("ops/mon", `\d+`)+` to=`+
				end("shop/web", "80")+` isolated_by=shop/p`)
			said = d.log.len()
			w.probe(t, "web", lab.Packet{Proto: "udp", To: w.hosts["out"].Addr(family), Port: 9}, lab.Dropped)
			d.awaitLine(t, said, `level=INFO msg=blocked direction=egress protocol=UDP from=`+end("shop/web", `\d+`)+
				` to=.*:9.* isolated_by=shop/p`)
		})
		_, metrics := d.get("/metrics")
		if !strings.Contains(metrics, `weavenpc_blocked_connections_total{dport="80",protocol="tcp"} 2`) {
			counted := regexp.MustCompile(`(?m)^weavenpc_blocked.*$`).FindAllString(metrics, -1)
			t.Errorf("blocked packets are not counted:\n%s", counted)
		}
	})
}

// TestOnlyWhatWeDropIsCalledBlocked has a rule of another program report all packets that pass to the NFLOG group of
// weave-npc.
func TestOnlyWhatWeDropIsCalledBlocked(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, rich())
		d := w.daemons[0]
		said := d.log.len()
		run(t, d.node.Host, "iptables-"+string(backend), "-w", "-t", "mangle", "-I", "FORWARD", "-j", "NFLOG", "--nflog-group", "86",
			"--nflog-prefix", "weave-npc blocked ingress")
		w.probe(t, "mon", lab.Packet{Proto: "tcp", To: w.hosts["out"].Addr4(), Port: 80}, lab.Allowed)
		w.probe(t, "db", lab.Packet{Proto: "tcp", To: w.hosts["web"].Addr4(), Port: 80}, lab.Allowed)
		w.probe(t, "mon", lab.Packet{Proto: "tcp", To: w.hosts["web"].Addr4(), Port: 80}, lab.Dropped)
		d.awaitLine(t, said, `msg=blocked direction=ingress protocol=TCP from="ops/mon .* to="shop/web .*:80\)"`)
		_, metrics := d.get("/metrics")
		if !strings.Contains(metrics, `weavenpc_blocked_connections_total{dport="80",protocol="tcp"} 1`+"\n") {
			t.Errorf("blocked packets are counted wrongly:\n%s", regexp.MustCompile(`(?m)^weavenpc_blocked.*$`).FindAllString(metrics, -1))
		}
		// The kernel's own count is read now and then.
		dropped := regexp.MustCompile(`(?m)^weavenpc_dropped_packets_total\{direction="(\w+)",family="(\w+)"\} (\d+)$`)
		await.Within(t, 2*timeout, func() bool {
			_, metrics = d.get("/metrics")
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
