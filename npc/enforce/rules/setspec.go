package rules

import (
	"iter"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// SetSpec describes what a set holds. Specifications with equal keys share one set.
type SetSpec interface {
	// key returns the parts that identify the specification.
	key() []string
	// String describes for humans what the set holds.
	String() string
}

// Set is a set that rules refer to.
type Set struct {
	SetSpec
	// ID identifies the specification: equal ones have equal IDs.
	ID string

	names [len(npc.Families)]string
}

// NewSet returns the set of a specification.
func NewSet(spec SetSpec) Set {
	key := spec.key()
	return newSet(spec, key, naming.Hash(key...))
}

func newSet(spec SetSpec, key []string, id string) Set {
	s := Set{SetSpec: spec, ID: id}
	for _, f := range npc.Families {
		s.names[f] = naming.Set(f, key...)
	}
	return s
}

// Name returns the name of the set of a family.
func (s Set) Name(f npc.Family) string { return s.names[f] }

// Scope is the pods that a selector selects from. It decides which kind of set holds them.
type Scope uint8

// The scopes.
const (
	// TargetScope: the local pods of one namespace.
	TargetScope Scope = iota
	// NamespaceScope: all pods of one namespace.
	NamespaceScope
	// ClusterScope: the pods of all namespaces that a namespace selector matches.
	ClusterScope
	// ListScope: the namespaces that a namespace selector matches, as a list of their sets of all pods.
	ListScope
)

// SelectorSpec describes the set of the pods that a selector selects.
type SelectorSpec struct {
	Scope Scope
	// Namespace is the namespace of TargetScope and NamespaceScope.
	Namespace string
	// Namespaces selects the namespaces of ClusterScope and ListScope. Nil selects all, also those whose objects have
	// not arrived.
	Namespaces labels.Selector
	// Pods selects pods of the scope. Nil selects all.
	Pods labels.Selector
	// User is the rule of a cluster network policy that alone uses the set; nil if policies share it.
	User *RuleUser
	// Port, if it has a name, makes a set of the selected pods' addresses with the number that the port has there.
	Port NamedPort
}

// RuleUser is a rule of a cluster network policy, as the sets know it that only this rule uses. Its ID follows from the
// policy's tier and name and from what the rule matches, but not from its number or the policy's priority.
type RuleUser struct {
	ID     string
	Tier   policy.Tier
	Action policy.Action
}

// NodesSpec describes the set of the addresses of the nodes that a selector matches.
type NodesSpec struct {
	// Nodes selects the nodes. Nil selects all.
	Nodes labels.Selector
	// User is the rule of a cluster network policy that alone uses the set.
	User *RuleUser
}

func (s NodesSpec) key() []string {
	key := []string{"nodes", ""}
	if s.Nodes != nil {
		key[1] = s.Nodes.String()
	}
	if s.User != nil {
		key = append(key, s.User.ID)
	}
	return key
}

// String implements SetSpec.
func (s NodesSpec) String() string {
	if s.Nodes == nil || s.Nodes.Empty() {
		return "nodes"
	}
	return "nodes with " + s.Nodes.String()
}

// NamesSpec describes the set of the addresses that resolvers give for domain names, while they are learned. Rules of the
// same names share it.
type NamesSpec struct{ Names []string }

func (s NamesSpec) key() []string { return append([]string{"names"}, s.Names...) }

// String implements SetSpec.
func (s NamesSpec) String() string { return "learned addresses of " + naming.Few(s.Names) }

// PastNamesSpec describes the set of all addresses that were learned for domain names, also when they do not count any
// more: connections to them go on. No rule asks for it; it is there for the next weave-npc process.
type PastNamesSpec struct{ Names []string }

func (s PastNamesSpec) key() []string { return append([]string{"names-past"}, s.Names...) }

// String implements SetSpec.
func (s PastNamesSpec) String() string { return "addresses that " + naming.Few(s.Names) + " had" }

// NamedPort is the name of a port with its IP protocol number.
type NamedPort struct {
	Name     string
	Protocol uint8
}

func (s SelectorSpec) key() []string {
	text := func(sel labels.Selector) string {
		if sel == nil {
			return ""
		}
		return "=" + sel.String() // a selector of everything is not the same as none
	}
	key := []string{"selector", strconv.Itoa(int(s.Scope)), s.Namespace, text(s.Namespaces), text(s.Pods),
		s.Port.Name, strconv.Itoa(int(s.Port.Protocol))}
	if s.User != nil {
		key = append(key, s.User.ID)
	}
	return key
}

// String implements SetSpec.
func (s SelectorSpec) String() string {
	var b strings.Builder
	if s.Port.Name != "" {
		b.WriteString("port " + s.Port.Name + "/" + npc.ProtocolName(s.Port.Protocol) + " of ")
	}
	if s.Scope == TargetScope {
		b.WriteString("local ")
	}
	b.WriteString("pods")
	if s.Pods != nil && !s.Pods.Empty() {
		b.WriteString(" with " + s.Pods.String())
	}
	switch {
	case s.Namespace != "":
		b.WriteString(" in " + s.Namespace)
	case s.Namespaces == nil || s.Namespaces.Empty():
		b.WriteString(" in all namespaces")
	default:
		b.WriteString(" in namespaces with " + s.Namespaces.String())
	}
	return b.String()
}

// BlockSpec describes the set of the address blocks of one rule, which are of one family.
type BlockSpec struct{ *ipblock.Union }

func (s BlockSpec) key() []string { return s.Key() }

// Family returns the family of the blocks.
func (s BlockSpec) Family() npc.Family {
	if s.Is6() {
		return npc.IPv6
	}
	return npc.IPv4
}

// Distinct returns some sets in the order of their IDs, each once. It reorders what it is given.
func Distinct(sets []Set) []Set {
	slices.SortFunc(sets, func(a, b Set) int { return strings.Compare(a.ID, b.ID) })
	return slices.CompactFunc(sets, func(a, b Set) bool { return a.ID == b.ID })
}

// PeersSpec describes the set of the pods that any of several selectors selects.
type PeersSpec struct{ selectors []Set }

// NewPeers returns the set of the pods that are in any of the sets of selectors, which are as Distinct returns them.
func NewPeers(selectors []Set) Set { return NewSet(PeersSpec{selectors}) }

func (s PeersSpec) key() []string {
	key := []string{"peers"}
	for _, of := range s.selectors {
		key = append(key, of.ID)
	}
	return key
}

// Selectors yields the selectors.
func (s PeersSpec) Selectors() iter.Seq[SelectorSpec] {
	return func(yield func(SelectorSpec) bool) {
		for _, of := range s.selectors {
			if !yield(of.SetSpec.(SelectorSpec)) {
				return
			}
		}
	}
}

// String implements SetSpec.
func (s PeersSpec) String() string {
	texts := make([]string, 0, len(s.selectors))
	for _, of := range s.selectors {
		texts = append(texts, of.String())
	}
	slices.Sort(texts)
	return naming.Few(texts)
}

// UnionSpec describes the list of the sets of peers that stand together in a rule.
type UnionSpec struct {
	Members []Set
	// Of names the policy, for humans.
	Of string
}

func (s UnionSpec) key() []string {
	parts := []string{"union"}
	for _, m := range s.Members {
		parts = append(parts, m.key()...)
	}
	return parts
}

// String implements SetSpec.
func (s UnionSpec) String() string { return strconv.Itoa(len(s.Members)) + " peers of " + s.Of }
