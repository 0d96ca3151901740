package host

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
)

// listTries bounds the attempts to read a list that changes while it is read.
const listTries = 11

// retryInterrupted calls list again as long as the kernel reports that the list changed while it was read.
func retryInterrupted[T any](list func() ([]T, error)) (items []T, err error) {
	for range listTries {
		if items, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return items, err
}

// links are the interfaces of a network namespace.
type links struct {
	all     []netlink.Link
	byIndex map[int]netlink.Link
}

// listLinks returns the interfaces in the network namespace of the calling thread.
func listLinks() (links, error) {
	all, err := retryInterrupted(netlink.LinkList)
	if err != nil {
		return links{}, errors.Wrap(err, "listing the interfaces of this node")
	}
	byIndex := map[int]netlink.Link{}
	for _, l := range all {
		byIndex[l.Attrs().Index] = l
	}
	return links{all, byIndex}, nil
}

// ports returns the ports of the named bridges: those of pods, and the uplinks, which connect to other nodes. The port
// named uplink is always an uplink.
func (l links) ports(bridges []string, uplink string) (pods, uplinks []netlink.Link) {
	for _, port := range l.all {
		a := port.Attrs()
		bridge := l.byIndex[a.MasterIndex]
		switch {
		case bridge == nil || bridge.Type() != "bridge" || !slices.Contains(bridges, bridge.Attrs().Name):
		case a.Name != uplink && l.leadsToPod(port):
			pods = append(pods, port)
		default:
			uplinks = append(uplinks, port)
		}
	}
	return pods, uplinks
}

// leadsToPod reports whether a pod or a virtual machine may be behind a port of a bridge. If in doubt, it returns true:
// policies do not apply to traffic of uplinks.
func (l links) leadsToPod(port netlink.Link) bool {
	a := port.Attrs()
	switch port.Type() {
	case "veth":
		// A CNI may attach a pod's port to the bridge before it moves the other end into the pod. Only if the other end
		// is a port of another bridge, which never happens for a pod, does the pair join two bridges.
		peer := l.byIndex[a.ParentIndex]
		return a.NetNsID >= 0 || peer == nil || peer.Attrs().MasterIndex == 0 ||
			peer.Attrs().MasterIndex == a.MasterIndex
	case "tuntap", "netkit", "macvtap", "ipvtap":
		return true
	case "device":
		return isRepresentor(a.Name)
	}
	return false
}

// representor matches the physical port name of an interface that represents a function of a network card in a pod.
var representor = regexp.MustCompile(`(vf|sf)[0-9]+$`)

// isRepresentor reports whether an interface represents a virtual function of a network card.
func isRepresentor(name string) bool {
	b, err := os.ReadFile(filepath.Join("/sys/class/net", filepath.Base(name), "phys_port_name"))
	return err == nil && representor.MatchString(strings.TrimSpace(string(b)))
}

// Missing returns a warning if there is no interface with the name or, if the name ends in a plus, none whose name
// begins with it. Otherwise it returns an empty string.
func Missing(name string) string {
	if name == "" {
		return ""
	}
	prefix, many := strings.CutSuffix(name, "+")
	if !many {
		if _, err := netlink.LinkByName(name); errors.As(err, &netlink.LinkNotFoundError{}) {
			return "--pod-interface: there is no interface " + name +
				" on this node: new pods are reached before their addresses are known; " +
				"is it spelt right? Some CNIs create it with the first pod"
		}
		return ""
	}
	list, err := listLinks()
	if err != nil || slices.ContainsFunc(list.all,
		func(l netlink.Link) bool { return strings.HasPrefix(l.Attrs().Name, prefix) }) {
		return ""
	}
	return "--pod-interface: there is no interface on this node whose name begins with " + prefix
}
