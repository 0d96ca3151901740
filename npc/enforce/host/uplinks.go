package host

import (
	"net/netip"
	"regexp"
	"slices"
)

// maxUplinks bounds the uplinks of a bridge that are handled as such: each is a rule in two chains.
const maxUplinks = 32

// Uplinks are the ports of the pods' bridges that connect to other nodes, and the addresses behind them.
type Uplinks struct {
	// Names are the names of the ports, sorted.
	Names []string
	// Left are the names of uplinks that no rule can match. Addresses behind them count as pods.
	Left []string
	// Behind are the addresses that the node routes through an uplink, Here the addresses that it looks for on the
	// bridge itself. The longest prefix that contains an address decides. Both are sorted.
	Behind, Here []netip.Prefix
}

func (u Uplinks) equal(v Uplinks) bool {
	return slices.Equal(u.Names, v.Names) && slices.Equal(u.Left, v.Left) && slices.Equal(u.Behind, v.Behind) &&
		slices.Equal(u.Here, v.Here)
}

// portName matches names that an iptables rule can contain. A plus at the end would stand for many names.
var portName = regexp.MustCompile(`^[A-Za-z0-9_.][A-Za-z0-9_.-]{0,14}$`)

// finder finds uplinks and the addresses behind them.
type finder struct {
	forwarding forwarding
}

// find returns the uplinks of the named bridges. The port named uplink is always an uplink.
func (f *finder) find(bridges []string, uplink string) (Uplinks, error) {
	if len(bridges) == 0 {
		return Uplinks{}, nil
	}
	list, err := listLinks()
	if err != nil {
		return Uplinks{}, err
	}
	var u Uplinks
	away, of := map[int]bool{}, map[int]bool{} // indexes of the uplinks and of their bridges
	_, ports := list.ports(bridges, uplink)
	for _, p := range ports {
		a := p.Attrs()
		if !portName.MatchString(a.Name) || len(u.Names) == maxUplinks {
			u.Left = append(u.Left, a.Name)
			continue
		}
		u.Names = append(u.Names, a.Name)
		away[a.Index], of[a.MasterIndex] = true, true
	}
	slices.Sort(u.Names)
	slices.Sort(u.Left)
	u.Behind, u.Here, err = f.forwarding.behind(away, of)
	return u, err
}
