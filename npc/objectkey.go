// This part of the package spells the key of a Kubernetes object, "namespace/name": one spelling for maps, log lines
// and texts, so that a key from one place finds the object in another.
//
//	pods[npc.ObjectKey("shop", "web")] // pods["shop/web"]
//
// The package knows nothing about kinds: keys of different kinds are equal if the names are.

package npc

// ObjectKey returns the key of an object.
func ObjectKey(namespace, name string) string { return namespace + "/" + name }
