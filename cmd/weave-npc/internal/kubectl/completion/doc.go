// Package completion completes names of objects in shells: namespaces, pods, and the contexts of a kubeconfig.
//
//	completion.Prepare(root) // before cli.Prepare, which completes the other flags
//
// The objects are those of the manifests or of the API server that flags on the line name. The user waits for the
// answer, so it has only what is known soon. Errors are not printed, because they would appear in the line.
package completion
