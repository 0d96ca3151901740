// Package host reads and follows what weave-npc has to know about its node: interfaces, addresses, uplinks, memory.
//
//	pod ── veth ──┐
//	pod ── veth ──┤ bridge (Attachment) ── vxlan, eth0: uplinks (BridgeFollower) ──▶ other nodes
//	       Ports ─┘
//
//	Attachment         how pods are attached, and why packets bypass iptables (attachment, bypass)
//	FollowRedirects    warns of programs of tc and XDP that may send packets past FORWARD (redirects)
//	BridgeFollower     follows uplinks and the addresses behind them (follow, uplinks, behind)
//	Ports, Reader      find the ports that lead to pods, and what the kernel has behind them (podports)
//	AddressFollower    follows the node's addresses: those of interfaces and of its Node object (nodeaddr)
//	Families, Booted, FollowMemoryLimit, ReportForwardPolicy    read the machine when they are called
//
// It knows nothing about policies, sets or chains, and passes what it finds to callbacks.
package host

import (
	"os"
	"strings"
	"time"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/npc"
)

// Families returns the IP families that the kernel of this node supports.
func Families() []npc.Family {
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		return []npc.Family{npc.IPv4}
	}
	return []npc.Family{npc.IPv4, npc.IPv6}
}

// Booted returns when this node was started, by its present clock: correcting the clock after the start moves the
// result too. It is zero if the kernel does not report it.
func Booted() time.Time {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(up.Nano()))
}

// CheckPodInterface returns an error if a name, or a prefix of names that ends in +, is that of a bridge port: iptables
// sees packets of pods on the bridge, never on its ports.
func CheckPodInterface(name string) error {
	links, err := netlink.LinkList()
	if err != nil {
		return errors.Wrap(err, "listing the interfaces of this node")
	}
	prefix, isPrefix := strings.CutSuffix(name, "+")
	for _, l := range links {
		a := l.Attrs()
		if (a.Name == name || isPrefix && strings.HasPrefix(a.Name, prefix)) && a.MasterIndex != 0 {
			return errors.Errorf("%s is the port of a bridge, and iptables names bridged packets by the bridge: "+
				"give the bridge's name", a.Name)
		}
	}
	return nil
}
