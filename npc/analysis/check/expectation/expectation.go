// Package expectation reads files of expectations about network policies.
//
//	file, problems := expectation.Parse("expectations.yaml", data)
//	for _, e := range file.Expectations {
//		fmt.Println(e.Name) // "none outside monitoring reaches metrics"
//	}
//
//	document (file) ─▶ sentence: SUBJECT VERB SUBJECT on PORT ─▶ subject, port ─▶ Expectation
//
// Through replaces Services by the pods behind them. The package knows neither pods nor policies, and does not find out what holds.
package expectation

import (
	"fmt"
	"net/netip"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// APIVersion and Kind are those of documents with expectations.
const (
	APIVersion = "weave-npc/v1alpha1"
	Kind       = "Expectations"
)

// File is the expectations of one file, with what holds for all of them.
type File struct {
	Path string
	// PodCIDRs are the ranges that pods get addresses from; none if the file has none.
	PodCIDRs []netip.Prefix
	// NewNamespaces is set if pods may be in namespaces that are not there, with labels of those that are.
	NewNamespaces bool
	Expectations  []Expectation
}

// Problem is a reason to refuse a file.
type Problem struct {
	Path string
	Line int // counted from 1
	Text string
}

// Error returns the problem in the form that compilers use: path:line: text.
func (p Problem) Error() string {
	return spelling.Escape(fmt.Sprintf("%s:%d: %s", p.Path, p.Line, p.Text))
}

// Verb is what an expectation says of sources and destinations.
type Verb uint8

// The verbs.
const (
	// Reaches is about all pairs of a source and a destination that are there.
	Reaches Verb = iota
	// Never and Always are also about all pods that could be there.
	Never
	Always
)

// Expectation is one statement about sources, destinations and ports.
type Expectation struct {
	// Name is the one that the file gives to it, or its text.
	Name string
	Path string
	Line int
	Verb Verb
	// From are the sources: those of a subject, or with Outside all pods and addresses that are not of it.
	From    Subject
	Outside bool
	To      Subject
	// Ports are the ports that the expectation is about. Without any, Reaches is about at least one port, and Never
	// about all.
	Ports []Port
	// AllowEmpty is set if the expectation may be about pods that do not exist.
	AllowEmpty bool
}

// Subject is the union of its terms.
type Subject []Term

// Term is pods and addresses.
type Term struct {
	// Text is how the file names it.
	Text string
	// All is set for all pods and all addresses.
	All bool
	// Blocks are addresses, whoever has them; none if the term is about pods.
	Blocks []ipblock.Block
	// Domain is a domain name, or a wildcard such as *.example.com; empty for others.
	Domain string
	// Name is the name of a pod, or of the workload that makes pods; empty for pods by selectors. It goes with
	// Namespace.
	Name string
	// Kind is that of the named object, such as Deployment, Pod or Service; empty if the file does not say.
	Kind string
	// Namespace is that of the pods; empty for the namespaces that Namespaces selects.
	Namespace        string
	Namespaces, Pods policy.Selector
}

// String returns the subject as the file names it.
func (s Subject) String() (text string) {
	for i, t := range s {
		if i > 0 {
			text += " and "
		}
		text += t.Text
	}
	return text
}

// Port is a range of ports of a protocol, or a name that destinations give to a port, or a protocol without ports.
type Port struct {
	// Protocol is npc.ICMP for all protocols without ports.
	Protocol    uint8
	First, Last uint16
	Name        string
}

// String returns the port as files have it.
func (p Port) String() string {
	if p.Name != "" {
		return npc.ProtocolName(p.Protocol) + "/" + p.Name
	}
	return flow.Ports{Protocol: p.Protocol, First: p.First, Last: p.Last}.String()
}
