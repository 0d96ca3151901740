package explain

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// PortReason is whether one item of a rule's ports matches.
type PortReason struct {
	Fits bool `json:"fits"`
	// Wants is the item, Asked the flow's protocol and port.
	Wants string `json:"wants"`
	Asked string `json:"asked"`
	// NoPod is set if the item is a port's name that the destination does not have.
	NoPod bool `json:"none,omitempty"`
	// Unreadable is set if the item is a port's name, and the destination may be a pod that could not be read.
	Unreadable bool `json:"unreadable,omitempty"`
	// Number is the port that the name means on the destination; 0 if the item is no name.
	Number uint16 `json:"number,omitempty"`
}

// PortFits reports whether an item of a rule's ports matches a service of a destination, which is nil if it is no pod.
func PortFits(p policy.Port, s flow.Service, destination *npc.Pod) bool {
	if p.Name == "" {
		return p.Includes(s.Protocol, s.Port)
	}
	return p.HasProtocol(s.Protocol) && destination != nil &&
		slices.Contains(destination.Ports, npc.NamedPort{Name: p.Name, Protocol: s.Protocol, Port: s.Port})
}

// portReason returns the reason why PortFits holds or does not.
func portReason(p policy.Port, s flow.Service, destination *npc.Pod) PortReason {
	r := PortReason{Wants: p.String(), Asked: s.String(), Fits: PortFits(p, s, destination), NoPod: p.Name != ""}
	if p.Name == "" || destination == nil {
		return r
	}
	for _, n := range destination.Ports {
		if n.Name == p.Name && p.HasProtocol(n.Protocol) {
			r.NoPod, r.Number = false, n.Port
		}
	}
	return r
}

// MarshalJSON adds the sentence.
func (r PortReason) MarshalJSON() ([]byte, error) {
	type fields PortReason
	return json.Marshal(struct {
		Text string `json:"text"`
		fields
	}{r.String(), fields(r)})
}

// String returns the reason as one sentence.
func (r PortReason) String() string {
	switch {
	case r.Fits:
		return "port fits " + r.Asked
	case r.Unreadable:
		return fmt.Sprintf("not known: port wants %s, the destination's ports could not be read", r.Wants)
	case r.NoPod:
		return fmt.Sprintf("port wants %s, the destination has no port of that name", r.Wants)
	case r.Number != 0:
		return fmt.Sprintf("port wants %s, which is %d there, asked for is %s", r.Wants, r.Number, r.Asked)
	}
	return fmt.Sprintf("port wants %s, asked for is %s", r.Wants, r.Asked)
}
