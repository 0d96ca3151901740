// Package flow names connections: their two ends, and the protocol and port that they go to.
//
//	s, err := flow.ParseService("tcp/5432")
//	f := flow.Flow{From: flow.End{Pod: "shop/web", Addr: a}, To: flow.End{Addr: b}, Service: s}
//
// It does not know which pods exist, nor how a flow is decided.
package flow

import (
	"fmt"
	"net/netip"

	"github.com/weave-npc/weave-npc/npc"
)

// Flow is a new connection, or the first packet of a protocol without connections.
type Flow struct {
	From    End     `json:"from"`
	To      End     `json:"to"`
	Service Service `json:"port"`
	// Node, if not empty, is the only node whose verdict is asked for. A node evaluates only its own pods.
	Node string `json:"node,omitempty"`
	// ThroughService is set for what goes to a Service and from there to one of its endpoints. It matters for a pod
	// that reaches itself so.
	ThroughService bool `json:"-"`
}

// End is one end of a flow: a pod, by namespace/name, with one of its addresses or without any yet; or an address
// alone, which belongs to whichever pod owns it. The zero End is an unknown pod.
type End struct {
	Pod  string     `json:"pod,omitempty"`
	Addr netip.Addr `json:"address"`
	// Outside is set for an address that is known to be no pod's, although not all pods are known.
	Outside bool `json:"-"`
}

// String returns the pod and its address, or the one that is known.
func (e End) String() string {
	switch {
	case e == End{}:
		return "a pod that cannot be read"
	case e.Pod == "":
		return e.Addr.String()
	case !e.Addr.IsValid():
		return e.Pod
	}
	return fmt.Sprintf("%s (%s)", e.Pod, e.Addr)
}

// Ends returns the end whose policies decide in a direction, and the other one.
func (f Flow) Ends(d npc.Direction) (own, peer End) {
	if d == npc.Ingress {
		return f.To, f.From
	}
	return f.From, f.To
}

// Between returns the flows between any two ends of the same family. An end without an address is of both families.
func Between(from, to []End, s Service) []Flow {
	var out []Flow
	for _, a := range from {
		for _, b := range to {
			if !a.Addr.IsValid() || !b.Addr.IsValid() || a.Addr.Is4() == b.Addr.Is4() {
				out = append(out, Flow{From: a, To: b, Service: s})
			}
		}
	}
	return out
}
