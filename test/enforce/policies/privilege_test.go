package policies

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"syscall"
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// confined runs a command with a root where nothing can be written, whatever is mounted in it, except the lock of
// iptables-legacy.
var confined = []string{"unshare", "--mount", "--propagation", "private", "sh", "-c",
	`set -e
touch /run/xtables.lock
mount --rbind / /mnt
umount -l -R /mnt/run/netns || ! mountpoint -q /mnt/run/netns # there are many, and each would take a while
findmnt -rno TARGET -R /mnt | while read -r at; do
	at=$(printf %b "$at")
	mount -o remount,bind,ro "$at" || ! mountpoint -q "$at" # what others unmount meanwhile needs no remount
done
mount -t tmpfs tmpfs /mnt/mnt
touch /mnt/mnt/lock
mount --bind /mnt/mnt/lock /mnt/run/xtables.lock
export XTABLES_LOCKFILE=/run/xtables.lock
exec chroot /mnt sh -c 'for at in / /etc /run /tmp /var; do
	if touch $at/weave-npc-may-not-write 2>/dev/null; then echo "$at can be written"; exit 1; fi
done
exec "$@"' confined "$@"`, "confined"}

func TestNetAdminAndNetRawAreEnough(t *testing.T) {
	profiled, err := lab.ProfileWrap(lab.DefaultProfile, "CAP_NET_ADMIN", "CAP_NET_RAW")
	if err != nil {
		t.Fatal(err)
	}
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.New(t, backend, lab.Config{})
		m := w.FromManifests(t, e2e.Rich())
		w.StartEach(t, func(_ int, n *lab.Node) *e2e.Daemon {
			d := e2e.NewDaemon(n, "--iptables-backend", string(backend), "--manifests", m.Dir, "--pod-cidr",
				e2e.Ranges(n))
			d.Wrap = slices.Concat(confined, profiled, e2e.Unprivileged())
			return d
		})
		for _, d := range w.Daemons {
			d.AwaitReady(t)
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.Cmd.Process.Pid))
			if err != nil {
				t.Fatal(err)
			}
			for _, wanted := range []string{`CapEff:\s+0000000000003000`, `CapBnd:\s+0000000000003000`,
				`NoNewPrivs:\s+1`,
				`Seccomp:\s+2`} {
				if !regexp.MustCompile(wanted).Match(status) {
					t.Errorf("weave-npc on %s is not confined (%s):\n%s", d.Node, wanted, status)
				}
			}
		}
		w.Expect(t, e2e.RichWants())
		w.RunCases(t, cases(), `^S(2|22|27|33|44|52_a_pod|53|59_a|68)_`)

		w.Apply(t, w.Objects(e2e.Rich()))
		w.BlockedIsNamed(t)

		// The Job of prod/cleanup.yaml is confined as weave-npc is.
		for _, d := range w.Daemons {
			d.Signal(t, syscall.SIGTERM)
			line := slices.Concat(d.Wrap, []string{e2e.Command(), "cleanup"})
			e2e.Run(t, d.Node.Host, line[0], line[1:]...)
			if left := regexp.MustCompile(`(?i).*weave-.*`).FindString(e2e.Snapshot(t, d.Node)); left != "" {
				t.Errorf("cleanup leaves on %s %s", d.Node, left)
			}
		}
		w.Expect(t, e2e.Wants{"tcp 80": "", "udp 53": ""})
	})
}
