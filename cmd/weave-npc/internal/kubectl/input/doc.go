// Package input has the flags with which commands read the objects of a cluster, or a connection.
//
//	ObjectFlags    objects, from an API server or from manifests before they are applied (objects)
//	stagedFlags    the same as if staged policies were applied (flags, rows); where nodes enforce them (nodes, agents)
//	FromFlags      a connection from flags; FromLine from a line of a log, of flows, of conntrack or of the kernel
//
//	var f input.ObjectFlags
//	f.RegisterAll(cmd.Flags())
//	v, err := f.View(ctx, os.Stderr)
//
// What answers are about, and what they do not consider, is noted for the user. It does not answer anything itself.
package input
