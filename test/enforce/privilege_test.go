package enforce

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/weave-npc/weave-npc/test/lab"
)

// confined runs a command with a root where nothing can be written, whatever is mounted in it, except the lock of
// iptables-legacy.
var confined = []string{"unshare", "--mount", "--propagation", "private", "sh", "-c",
	`set -e
touch /run/xtables.lock
mount --rbind / /mnt
findmnt -rno TARGET -R /mnt | while read -r at; do
	at=$(printf %b "$at")
	mount -o remount,bind,ro "$at" || ! mountpoint -q "$at" # what others unmount meanwhile needs no remount
done
mount -t tmpfs tmpfs /mnt/mnt
touch /mnt/mnt/lock
mount --bind /mnt/mnt/lock /mnt/run/xtables.lock
exec chroot /mnt sh -c 'for at in / /etc /run /tmp /var; do
	if touch $at/weave-npc-may-not-write 2>/dev/null; then echo "$at can be written"; exit 1; fi
done
exec "$@"' confined "$@"`, "confined"}

// unprivileged runs a command as a container's are run that is given NET_ADMIN and NET_RAW, and no new privileges.
var unprivileged = []string{"setpriv", "--no-new-privs", "--bounding-set", "-all,+net_admin,+net_raw", "--inh-caps", "-all"}

func TestNetAdminAndNetRawAreEnough(t *testing.T) {
	profiled, err := lab.ProfileWrap(lab.DefaultProfile, "CAP_NET_ADMIN", "CAP_NET_RAW")
	if err != nil {
		t.Fatal(err)
	}
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := newHarness(t, backend, lab.Config{})
		m := w.fromManifests(t, rich())
		w.startEach(t, func(_ int, n *lab.Node) *daemon {
			d := newDaemon(n, "--iptables-backend", string(backend), "--manifests", m.dir, "--pod-cidr", ranges(n))
			d.wrap = slices.Concat(confined, profiled, unprivileged)
			return d
		})
		for _, d := range w.daemons {
			d.awaitReady(t)
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
			if err != nil {
				t.Fatal(err)
			}
			for _, wanted := range []string{`CapEff:\s+0000000000003000`, `CapBnd:\s+0000000000003000`, `NoNewPrivs:\s+1`,
				`Seccomp:\s+2`} {
				if !regexp.MustCompile(wanted).Match(status) {
					t.Errorf("weave-npc on %s is not confined (%s):\n%s", d.node, wanted, status)
				}
			}
		}
		w.expect(t, richWants())
		w.runCases(t, `^S(2|16|22|27|33|36|44|46|52|53|59|61|68|69)_`)

		w.apply(t, w.objects(rich()))
		w.blockedIsNamed(t)

		// The Job of prod/cleanup.yaml is confined as weave-npc is.
		for _, d := range w.daemons {
			d.signal(t, syscall.SIGTERM)
			line := slices.Concat(d.wrap, []string{command(), "cleanup"})
			run(t, d.node.Host, line[0], line[1:]...)
			if left := regexp.MustCompile(`(?i).*weave-.*`).FindString(snapshot(t, d.node)); left != "" {
				t.Errorf("cleanup leaves on %s %s", d.node, left)
			}
		}
		w.expect(t, wants{"tcp 80": "", "udp 53": ""})
	})
}

// blockedIsNamed has a packet blocked, and expects its sender in the first node's log.
func (w *harness) blockedIsNamed(t *testing.T) {
	t.Helper()
	d := w.daemons[0]
	said := d.log.len()
	w.probe(t, "mon", lab.Packet{Proto: "tcp", To: w.hosts["web"].Addr4(), Port: 4711}, lab.Dropped)
	if line := d.awaitLine(t, said, "msg=blocked"); !strings.Contains(line, "ops/mon") {
		t.Errorf("the blocked packet's line is %q", line)
	}
}
