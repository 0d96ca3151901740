package names

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// coreDNSVariable is the path of CoreDNS, and resolvedVariable the directory with systemd-resolved and its library.
const coreDNSVariable, resolvedVariable = "WEAVE_NPC_TEST_COREDNS", "WEAVE_NPC_TEST_RESOLVED"

// search is the search list of pods in shop.
const search = "shop.svc.cluster.local svc.cluster.local cluster.local"

// TestS109_S111_CoreDNSAndStubResolvers has pods look names up as applications do: by the resolvers of glibc, musl, Go
// and systemd, with a search list, at CoreDNS behind the addresses of a Service. They connect to each address at once.
func TestS109_S111_CoreDNSAndStubResolvers(t *testing.T) {
	coreDNS := os.Getenv(coreDNSVariable)
	if coreDNS == "" {
		t.Skipf("$%s names no CoreDNS: make resolvers builds one and runs this", coreDNSVariable)
	}
	stubs := stubResolvers(t)
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		for _, attach := range []lab.Attach{lab.Bridge, lab.Routed} {
			for _, autopath := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s autopath=%t", attach, autopath), func(t *testing.T) {
					w := e2e.New(t, backend, lab.Config{Attach: attach})
					openOutside(t, w)
					serve(t, w.Hosts["out"])
					startCoreDNS(t, w, coreDNS, autopath)
					lookUpAsApplications(t, w, stubs)
				})
			}
		}
	})
}

// corefile has the zones of a cluster, whose own one has no names, and two stub zones: names in these are unknown
// outside of them.
const corefile = `.:$port {
	bind $addrs
	errors
	cache 30
	loadbalance
	$autopath
	template ANY ANY cluster.local {
		rcode NXDOMAIN
		authority "cluster.local. 30 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 1 7200 1800 86400 30"
	}
	template ANY ANY stub.example.com stub.example.org {
		rcode NXDOMAIN
	}
	forward . $upstream
}
stub.example.com:$port stub.example.org:$port {
	bind $addrs
	errors
	forward . $upstream {
		force_tcp
	}
}
`

// startCoreDNS starts CoreDNS in mon, behind the addresses of a Service. It asks the host outside for what is not in
// the cluster's domain.
func startCoreDNS(t *testing.T, w *e2e.Cluster, coreDNS string, autopath bool) {
	t.Helper()
	mon, dir, plugin := w.Hosts["mon"], t.TempDir(), ""
	if autopath {
		plugin = "autopath cluster.local " + filepath.Join(dir, "resolv.conf")
	}
	upstream := netip.AddrPortFrom(w.Hosts["out"].Addr4(), resolverPort).String()
	fill := strings.NewReplacer("$port", strconv.Itoa(resolverPort), "$autopath", plugin, "$upstream", upstream,
		"$addrs", mon.Addr4().String()+" "+mon.Addr6().String())
	e2e.WriteFile(t, filepath.Join(dir, "resolv.conf"), "search "+search+"\n")
	e2e.WriteFile(t, filepath.Join(dir, "Corefile"), fill.Replace(corefile))
	keepRunning(t, mon.Command(t.Context(), coreDNS, "-conf", filepath.Join(dir, "Corefile")))
	e2e.EachFamily(func(family int) {
		resolver := netip.AddrPortFrom(mon.Addr(family), resolverPort)
		await.That(t, "CoreDNS answers", func() bool {
			_, err := ask(mon, resolver, "udp", "n1.example.org.", family, time.Second)
			return err == nil
		})
		first, _, _ := strings.Cut(search, " ")
		_, err := ask(mon, resolver, "udp", "n1.example.org."+first+".", family, e2e.Timeout)
		if (err == nil) != autopath {
			t.Fatalf("the first name of the search list: %v, and autopath is %t", err, autopath)
		}
		for _, proto := range []string{"udp", "tcp"} {
			w.Service(t, "n1", family, clusterDNS, proto, 53, "mon", resolverPort)
		}
	})
}

// clusterDNS is the number of the Service's addresses.
const clusterDNS = 10

// keepRunning starts a command that runs until the test ends, and shows what it printed if the test fails.
func keepRunning(t *testing.T, cmd *lab.Cmd) {
	t.Helper()
	var log e2e.Output
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s:\n%s", cmd.Path, &log)
		}
	})
}
