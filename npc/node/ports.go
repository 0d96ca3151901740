// Package node inspects the network interfaces of this node.
package node

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
)

const (
	// maxUplinks bounds the uplinks of a bridge that are told apart from its pods: each is a rule in two chains.
	maxUplinks = 32
	// listTries is how often the kernel is asked for a list that changes while it is read.
	listTries = 11
)

// Uplinks are the ports of the pods' bridges that lead away from the pods of this node, and what is behind them.
type Uplinks struct {
	// Names are those of the ports, sorted.
	Names []string
	// Left are the names of uplinks that no rule can be made for: what is behind them counts as pods.
	Left []string
	// Behind are the addresses that the node routes to by an uplink, Here those of them that it routes to on the bridge itself: of all
	// prefixes that hold an address the longest counts. Both are sorted.
	Behind, Here []netip.Prefix
}

func (u Uplinks) equal(v Uplinks) bool {
	return slices.Equal(u.Names, v.Names) && slices.Equal(u.Left, v.Left) && slices.Equal(u.Behind, v.Behind) && slices.Equal(u.Here, v.Here)
}

// whole asks the kernel for a list, again as long as it changes while it is read.
func whole[T any](list func() ([]T, error)) (items []T, err error) {
	for range listTries {
		if items, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return items, err
}

// portName is what can be the name of a port in a rule of iptables, where a plus at the end stands for many names.
var portName = regexp.MustCompile(`^[A-Za-z0-9_.][A-Za-z0-9_.-]{0,14}$`)

// finder finds uplinks, and what is behind them.
type finder struct {
	// ports holds hardware address -> index of the port of a bridge that it was last seen at. A bridge forgets who is silent.
	ports map[string]int
}

// find returns the uplinks of bridges, given by their names. The port named as uplink is one whatever it is.
func (f *finder) find(bridges []string, uplink string) (Uplinks, error) {
	if len(bridges) == 0 {
		return Uplinks{}, nil
	}
	links, err := whole(netlink.LinkList)
	if err != nil {
		return Uplinks{}, errors.Wrap(err, "listing the interfaces of this node")
	}
	byIndex := map[int]netlink.Link{}
	for _, l := range links {
		byIndex[l.Attrs().Index] = l
	}
	var u Uplinks
	away, of := map[int]bool{}, map[int]bool{}
	for _, l := range links {
		a := l.Attrs()
		bridge := byIndex[a.MasterIndex]
		if bridge == nil || bridge.Type() != "bridge" || !slices.Contains(bridges, bridge.Attrs().Name) {
			continue
		}
		switch {
		case a.Name != uplink && leadsToPod(l, byIndex):
		case !portName.MatchString(a.Name) || len(u.Names) == maxUplinks:
			u.Left = append(u.Left, a.Name)
		default:
			u.Names = append(u.Names, a.Name)
			away[a.Index], of[a.MasterIndex] = true, true
		}
	}
	slices.Sort(u.Names)
	slices.Sort(u.Left)
	return u, f.findBehind(&u, away, of)
}

// leadsToPod reports whether a pod, or a virtual machine, may be behind a port of a bridge. In doubt it is: what is behind an uplink is
// not judged.
func leadsToPod(port netlink.Link, links map[int]netlink.Link) bool {
	a := port.Attrs()
	switch port.Type() {
	case "veth":
		// A CNI may attach a pod's port to the bridge before it moves the other end into the pod. Only an end that is the port of
		// something else, as no pod's ever is, shows that the pair joins two bridges.
		peer := links[a.ParentIndex]
		return a.NetNsID >= 0 || peer == nil || peer.Attrs().MasterIndex == 0 || peer.Attrs().MasterIndex == a.MasterIndex
	case "tuntap", "netkit", "macvtap", "ipvtap":
		return true
	case "device":
		return isRepresentor(a.Name)
	}
	return false
}

// representor is what the kernel calls the physical port of an interface that stands for the function of a network card which a pod has.
var representor = regexp.MustCompile(`(vf|sf)[0-9]+$`)

// isRepresentor reports whether an interface stands for a virtual function of a network card.
func isRepresentor(name string) bool {
	b, err := os.ReadFile(filepath.Join("/sys/class/net", filepath.Base(name), "phys_port_name"))
	return err == nil && representor.MatchString(strings.TrimSpace(string(b)))
}

// Missing explains that there is no interface by a name, or none that begins with it if it ends in a plus; it is empty if there is one.
func Missing(name string) string {
	if name == "" {
		return ""
	}
	prefix, many := strings.CutSuffix(name, "+")
	if !many {
		if _, err := netlink.LinkByName(name); errors.As(err, &netlink.LinkNotFoundError{}) {
			return "--pod-interface: there is no interface " + name + " on this node: new pods are reached before their addresses are known; " +
				"is it spelt right? Some CNIs create it with the first pod"
		}
		return ""
	}
	links, err := netlink.LinkList()
	if err != nil || slices.ContainsFunc(links, func(l netlink.Link) bool { return strings.HasPrefix(l.Attrs().Name, prefix) }) {
		return ""
	}
	return "--pod-interface: there is no interface on this node whose name begins with " + prefix
}
