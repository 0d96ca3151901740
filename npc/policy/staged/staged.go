// Package staged reads from the annotations of a policy whether it is enforced or staged. A staged policy is evaluated
// alongside the enforced ones and changes no verdict.
//
//	operation, is, problem := staged.Read(policy.Annotations)
//
// All staged policies with the same value of the annotation weave-npc/staged are a group, which is evaluated as if all
// of them were applied. The package does not know what policies mean, nor where they come from.
package staged

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weave-npc/weave-npc/npc"
)

// The annotations.
const (
	// Annotation stages a policy. Its value is true or the name of a group, which is a DNS label.
	Annotation = "weave-npc/staged"
	// ReplacesAnnotation has a staged policy replace the enforced one that it names, of the same kind and namespace.
	ReplacesAnnotation = "weave-npc/replaces"
	// RemovesAnnotation has a staged policy stand for the absence of the enforced one that it names. Its own rules do
	// not count.
	RemovesAnnotation = "weave-npc/removes"
)

// Mode is which kinds of policies can be staged. It is a value of --staged.
type Mode string

// The modes.
const (
	// Off has annotated policies enforced.
	Off Mode = "off"
	// Namespaces has annotated NetworkPolicies staged.
	Namespaces Mode = "namespaces"
	// All has annotated ClusterNetworkPolicies staged too.
	All Mode = "all"
)

// Modes are all modes.
var Modes = [...]Mode{Off, Namespaces, All}

// Covers reports whether policies of a kind can be staged: ClusterNetworkPolicies, or NetworkPolicies.
func (m Mode) Covers(cluster bool) bool { return m == All || m == Namespaces && !cluster }

// Key is the name of a staged policy.
type Key struct {
	// Namespace is empty for a ClusterNetworkPolicy.
	Namespace, Name string
	// Apart is set for policies that do not come from where the enforced ones do: one of each may have the same name.
	Apart bool
}

// Policy returns the name as texts have it, after the namespace if there is one.
func (k Key) Policy() string {
	if k.Namespace == "" {
		return k.Name
	}
	return npc.ObjectKey(k.Namespace, k.Name)
}

// Operation is what a staged policy does to its group.
type Operation struct {
	Group string
	// Adds is set if the policy adds itself.
	Adds bool
	// Takes is the name of the enforced policy, of the same kind and namespace, that it takes away; empty for none.
	Takes string
}

// Effect returns whether a policy does anything to its group, and what is wrong with its rules. The error is why they
// are invalid, nil if they are not; if the policy is inert then, it decides nothing, else it fails closed.
func (c Operation) Effect(invalid error, inert bool) (effect bool, fault string) {
	switch effect = c.Adds || c.Takes != ""; {
	case !c.Adds || invalid == nil: // the rules of one that removes another do not count
		return effect, ""
	case inert:
		return false, "it changes nothing in its group until it is valid: " + invalid.Error()
	}
	return effect, "rules that are not understood fail closed in its group: " + invalid.Error()
}

// Read returns what a policy with some annotations does to its group, and whether it is staged at all. A problem is why
// it is not what the annotations ask for: an unknown value of weave-npc/staged does not stage a policy, and one that
// asks for two things does nothing.
func Read(annotations map[string]string) (c Operation, is bool, problem string) {
	group, annotated := annotations[Annotation]
	replaces, removes := annotations[ReplacesAnnotation], annotations[RemovesAnnotation]
	switch {
	case !annotated && replaces+removes != "":
		return c, false, fmt.Sprintf("%s and %s have no effect without %s",
			ReplacesAnnotation, RemovesAnnotation, Annotation)
	case !annotated:
		return c, false, ""
	case group == "false":
		// It would be a valid name of a group, but its author wants the policy enforced.
		return c, false, fmt.Sprintf("%s is %q: without the annotation the policy is enforced too", Annotation, group)
	case len(validation.IsDNS1123Label(group)) > 0:
		return c, false, fmt.Sprintf("%s is %q, neither \"true\" nor a name "+
			"of lower case letters, digits and -, at most 63",
			Annotation, group)
	}
	c = Operation{Group: group}
	switch {
	case replaces != "" && removes != "":
		return c, true, fmt.Sprintf("it has both %s and %s", ReplacesAnnotation, RemovesAnnotation)
	case len(validation.IsDNS1123Subdomain(replaces+removes)) > 0 && replaces+removes != "":
		return c, true, fmt.Sprintf("%q is not the name of a policy", replaces+removes)
	}
	c.Adds, c.Takes = removes == "", replaces+removes
	return c, true, ""
}
