package npc

// Unreadable lists what could not be read of a cluster, for example for lack of permissions. The zero value lists
// nothing.
type Unreadable struct {
	// Namespaces, Pods and Policies are the kinds whose objects have a namespace, or are one.
	Namespaces, Pods, Policies Partly
}

// Any reports whether something could not be read on which verdicts of NetworkPolicies may depend.
func (u *Unreadable) Any() bool {
	return u.Namespaces.Reason != "" || u.Pods.Reason != "" || u.Policies.Reason != ""
}

// Partly reports whether the objects of a kind were read in all namespaces, or in some.
type Partly struct {
	// Reason is why they were not read in all namespaces; empty if they were.
	Reason string
	// Said is what was answered instead.
	Said string
	// Read holds the namespaces whose objects were read nevertheless.
	Read map[string]bool
}

// Lacks reports whether the objects of a namespace were not read.
func (p *Partly) Lacks(namespace string) bool { return p.Reason != "" && !p.Read[namespace] }
