// Package convert extracts from Kubernetes objects the few facts that policies depend on.
//
//	pod, ignored := convert.OfPod(object) // ignored: "status.podIPs: \"x\" is no address"
//
//	reduced := convert.ReducePod(object) // an object with the same facts, and nothing else
//
// It is pure. It does not know where objects come from, and it reads invalid ones too: what cannot be read is left out
// and named.
package convert
