package input

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

func TestWhatMakesItBlindMakesItUnready(t *testing.T) {
	t.Parallel()
	w := e2e.Start(t, lab.NFT, e2e.Rich())
	for _, d := range w.Daemons { // one has the bridge as a flag, the other the range
		for _, c := range []struct {
			do, undo, says string
		}{
			{"sysctl net.bridge.bridge-nf-call-iptables=0", "sysctl net.bridge.bridge-nf-call-iptables=1",
				"call-iptables"},
			{"sysctl net.bridge.bridge-nf-call-ip6tables=0", "sysctl net.bridge.bridge-nf-call-ip6tables=1",
				"call-ip6tables"},
			{"ip link add kube-ipvs0 type bridge", "ip link del kube-ipvs0", "IPVS"},
		} {
			do, undo := strings.Fields(c.do), strings.Fields(c.undo)
			e2e.Run(t, d.Node.Host, do[0], do[1:]...)
			if status, body := d.Get("/readyz"); status != http.StatusServiceUnavailable ||
				!strings.Contains(body, c.says) {
				t.Errorf("on %s after %q readiness is %d %q", d.Node, c.do, status, body)
			}
			e2e.Run(t, d.Node.Host, undo[0], undo[1:]...)
			d.AwaitReady(t)
		}
		if status, body := d.Get("/healthz"); status != http.StatusOK {
			t.Errorf("health on %s is %d %q", d.Node, status, body)
		}
	}
}

func TestAMissingPodInterfaceMakesItUnready(t *testing.T) {
	t.Parallel()
	w := e2e.New(t, lab.NFT, lab.Config{})
	n := w.Node("node1")
	m := w.FromManifests(t, e2e.Rich())
	for name, bridge := range map[string]string{"pods0": "pods0", "pods+": "pods1"} {
		d := e2e.NewDaemon(n, "--manifests", m.Dir, "--pod-interface", name)
		d.Log.Expect("there is no interface")
		d.Start(t)
		d.EndWith(t)
		for range 2 {
			await.Within(t, e2e.Timeout, func() bool {
				status, body := d.Get("/readyz")
				return status == http.StatusServiceUnavailable &&
					strings.Contains(body, "--pod-interface: there is no interface")
			}, func() string { _, body := d.Get("/readyz"); return "readiness is " + body })
			e2e.Run(t, n.Host, "ip", "link", "add", bridge, "type", "bridge")
			d.AwaitReady(t)
			e2e.Run(t, n.Host, "ip", "link", "del", bridge)
		}
		d.Kill(t)
	}
}

func TestWhatTheKernelLacksIsNamed(t *testing.T) {
	t.Parallel()
	for _, b := range []lab.Backend{lab.NFT, lab.Legacy} {
		t.Run(string(b), func(t *testing.T) {
			t.Parallel()
			w := e2e.New(t, b, lab.Config{})
			n := w.Node("node1")
			m := w.FromManifests(t, e2e.Rich())
			d := e2e.NewDaemon(n, "--manifests", m.Dir)
			extensions := t.TempDir() // of iptables, which answers for those that are missing as for missing modules
			found, err := filepath.Glob("/usr/lib/*/xtables/*.so")
			if err != nil || len(found) == 0 {
				t.Fatalf("the extensions of iptables are missing: %v", err)
			}
			link := func(path string) {
				if err := os.Symlink(path, filepath.Join(extensions, filepath.Base(path))); err != nil {
					t.Fatal(err)
				}
			}
			missing := ""
			for _, path := range found {
				if filepath.Base(path) == "libxt_set.so" {
					missing = path
				} else {
					link(path)
				}
			}
			d.Wrap = []string{"env", "XTABLES_LIBDIR=" + extensions}
			for _, says := range []string{"policies cannot be enforced", "cannot bring the kernel up to date",
				"the kernel refuses what a policy needs", "no range of this node's pods"} {
				d.Log.Expect(says)
			}
			d.Start(t)
			d.EndWith(t)
			await.Within(t, e2e.Timeout, func() bool {
				status, body := d.Get("/readyz")
				return status == http.StatusServiceUnavailable && strings.Contains(body, "the kernel lacks xt_set: ")
			}, func() string { _, body := d.Get("/readyz"); return "readiness is " + body })
			check := func(want int, says string) {
				stdout, stderr, status := e2e.Execute(t, n, d.Wrap[1:], "check-node", "--iptables-backend="+string(b))
				if status != want || !strings.Contains(stdout, says) {
					t.Errorf("check-node ends with %d: %s%s", status, stdout, stderr)
				}
			}
			check(1, "the kernel lacks xt_set: ")
			link(missing)
			d.AwaitReady(t)
			check(0, "the kernel has what policies need")
		})
	}
}
