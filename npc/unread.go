package npc

// Unreadable is what of a cluster could not be read, such as for lack of rights. The zero Unread is nothing.
type Unreadable struct {
	// Namespaces, Pods and Policies are the kinds whose objects have a namespace, or are one.
	Namespaces, Pods, Policies Partly
}

// Any reports whether something could not be read on which verdicts of NetworkPolicies may depend.
func (u *Unreadable) Any() bool {
	return u.Namespaces.Reason != "" || u.Pods.Reason != "" || u.Policies.Reason != ""
}

// Partly tells in which namespaces the objects of a kind were read.
type Partly struct {
	// Reason is why they were not read in all namespaces; empty if they were.
	Reason string
	// Said is what was answered instead.
	Said string
	// Read holds the namespaces in which they were read nevertheless.
	Read map[string]bool
}

// Lacks reports whether the objects of a namespace were not read.
func (p *Partly) Lacks(namespace string) bool { return p.Reason != "" && !p.Read[namespace] }
