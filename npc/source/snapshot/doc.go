// Package snapshot reads objects once, from an API server or from manifests.
//
//	List        an API server: objects, listpods; partly: where the user may not read all namespaces
//	Manifests   a directory, a file or standard input: manifests, positions
//	Declared    objects with workloads ─▶ workloads: a pod for each template, so that questions can be asked
//	            about pods before there are any, with addresses that are made up (address)
//	Network     Services, slices and nodes: what leads to pods
//	Objects     ─▶ Deliver to a source.Sink
//
//	manifests, err := snapshot.Open("manifests/", os.Stdin)
//	objects, err := manifests.Objects() // or List(ctx, client, policies)
//	objects.Deliver(sink)
//
// A right that the user lacks costs only what needs it, where the caller can do without.
package snapshot
