// This part of the package reads what weave-npc has to know about the machine and the container it runs in: IP
// families, time of boot, memory limit, interfaces, the policy of FORWARD.
//
// It must not know network policies, nor keep any state: every function reads the machine when it is called.
//
//	families := host.Families()           // IPv4, IPv6
//	err := host.CheckPodInterface("cni0") // nil, or why no packet of a pod would match

package host

import (
	"os"
	"strings"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"

	"github.com/weave-npc/weave-npc/npc"
)

// Families returns the IP families that the kernel of this node supports.
func Families() []npc.Family {
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		return []npc.Family{npc.IPv4}
	}
	return []npc.Family{npc.IPv4, npc.IPv6}
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
