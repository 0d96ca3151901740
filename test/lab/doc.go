// Package lab builds a network of namespaces (nodes, pods and hosts outside the cluster) and sends real packets in it.
//
// It knows nothing about policies. It needs root, never changes the network namespace it is called from, and leaves
// nothing there but /run/netns as a mount point, as `ip netns` does. Cleanup removes what a run that died left behind.
package lab
