// Package lab builds a world of network namespaces (nodes, pods and hosts outside the cluster) and sends real packets
// in it.
//
// It knows nothing about policies. It needs root, never changes the network namespace it is called from, and leaves
// nothing there but /run/netns as a mount point, as `ip netns` does. What a run that died left behind, Sweep removes.
package lab
