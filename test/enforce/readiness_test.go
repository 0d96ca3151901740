package enforce

import (
	"net/http"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
)

func TestWhatMakesItBlindMakesItUnready(t *testing.T) {
	t.Parallel()
	w := start(t, lab.NFT, rich())
	for _, d := range w.daemons { // one has the bridge as a flag, the other the range
		for _, c := range []struct {
			do, undo, says string
		}{
			{"sysctl net.bridge.bridge-nf-call-iptables=0", "sysctl net.bridge.bridge-nf-call-iptables=1", "call-iptables"},
			{"sysctl net.bridge.bridge-nf-call-ip6tables=0", "sysctl net.bridge.bridge-nf-call-ip6tables=1", "call-ip6tables"},
			{"ip link add kube-ipvs0 type bridge", "ip link del kube-ipvs0", "IPVS"},
		} {
			do, undo := strings.Fields(c.do), strings.Fields(c.undo)
			run(t, d.node.Host, do[0], do[1:]...)
			if status, body := d.get("/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, c.says) {
				t.Errorf("on %s after %q readiness is %d %q", d.node, c.do, status, body)
			}
			run(t, d.node.Host, undo[0], undo[1:]...)
			d.awaitReady(t)
		}
		if status, body := d.get("/healthz"); status != http.StatusOK {
			t.Errorf("health on %s is %d %q", d.node, status, body)
		}
	}
}

func TestAMissingPodInterfaceMakesItUnready(t *testing.T) {
	t.Parallel()
	w := newHarness(t, lab.NFT, lab.Config{})
	n := w.Node("node1")
	m := w.fromManifests(t, rich())
	for name, bridge := range map[string]string{"pods0": "pods0", "pods+": "pods1"} {
		d := newDaemon(n, "--manifests", m.dir, "--pod-interface", name)
		d.log.expect("there is no interface")
		d.start(t)
		d.endWith(t)
		for range 2 {
			await.Within(t, timeout, func() bool {
				status, body := d.get("/readyz")
				return status == http.StatusServiceUnavailable && strings.Contains(body, "--pod-interface: there is no interface")
			}, func() string { _, body := d.get("/readyz"); return "readiness is " + body })
			run(t, n.Host, "ip", "link", "add", bridge, "type", "bridge")
			d.awaitReady(t)
			run(t, n.Host, "ip", "link", "del", bridge)
		}
		d.kill(t)
	}
}
