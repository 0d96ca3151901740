// Package npc is the vocabulary of weave-npc: facts about pods, namespaces and nodes, and the properties of packets.
//
//	facts         Pod, Namespace, Node: what policies depend on; OwnsBefore: which of two pods owns an address
//	objectkey     the key of an object, "namespace/name", in one spelling
//	traffic       Family, Direction
//	protocol      names and numbers of protocols
//	unreadable    what could not be read of a cluster
//
// It has no state and imports no other package of this repository.
//
//	p := npc.Pod{Namespace: "shop", Name: "web", Node: "node1", Addrs: addrs}
//	p.Claims() // the addresses that count as the pod's own
package npc
