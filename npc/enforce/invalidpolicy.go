package enforce

import "k8s.io/apimachinery/pkg/types"

// InvalidPolicy is a policy that is not enforced as specified.
type InvalidPolicy struct {
	Namespace, Name string
	UID             types.UID
	// Reason names the place in the object and what is wrong there, or what the kernel answered.
	Reason string
	// Refused is set if the kernel does not take something that the policy needs, which therefore is left out.
	// Otherwise the policy could not be compiled: a NetworkPolicy isolates its pods then and allows nothing.
	Refused bool
	// Cluster is set for a ClusterNetworkPolicy, which has no namespace. A rule of it that is not understood fails
	// closed.
	Cluster bool
	// Inert is set for one that decides nothing, because its tier or its subject is not understood.
	Inert bool
}
