package npc

import "github.com/weave-npc/weave-npc/npc/traffic"

// Family is an IP family; each has its own sets and its own chains.
type Family = traffic.Family

// The families, in the order in which they are indexed.
const (
	IPv4 = traffic.IPv4
	IPv6 = traffic.IPv6
)

// Direction is that of a policy type, seen from the pod that is isolated.
type Direction = traffic.Direction

// The directions, in the order in which they are indexed.
const (
	Ingress = traffic.Ingress
	Egress  = traffic.Egress
)
