// Package span is for agents that have only some of a cluster's pods, of a relay: those that policies of their node can name. It knows what
// has been passed on of them, compares that with what another replica sends, and has policies wait for the pods that they name.
//
//	relay's stream ── Known ── pods, each followed by a Mark ── informer ── Gate.Reach
//	policies' informers ── Gate.Await ── handlers
//
// A Mark is behind all pods that policies up to some versions name. It goes the way of the pods, as an object among them, so that what it says
// has been handled when it is. The relay decides which pods are in a span; this package does not know why.
package span

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

const (
	// prefix is that of the annotations by which a relay says how far it has taken in a kind; the kind follows.
	prefix = "span.weave-npc/"
	// termKey and wholeKey are annotations of marks inside the agent.
	termKey  = "agent." + prefix + "term"
	wholeKey = "agent." + prefix + "whole"
)

// Versions are resource versions by kind. A kind that is absent has none.
type Versions map[string]string

// Reached returns how far a relay has taken in each kind, as the annotations of a bookmark say.
func Reached(annotations map[string]string) Versions {
	v := Versions{}
	for key, version := range annotations {
		if kind, ok := strings.CutPrefix(key, prefix); ok && key != leftKey {
			v[kind] = version
		}
	}
	return v
}

// Covers reports whether no kind of other is newer.
func (v Versions) Covers(other Versions) bool {
	for kind, version := range other {
		if older(v[kind], version) {
			return false
		}
	}
	return true
}

// Selector returns the field selector that asks a relay for the span of a node, as policies and namespaces up to some versions make it.
func Selector(node string, after Versions) string {
	terms := []fields.Selector{fields.OneTermEqualSelector("span", node)}
	for _, kind := range slices.Sorted(maps.Keys(after)) {
		terms = append(terms, fields.OneTermEqualSelector("after."+kind, after[kind]))
	}
	return fields.AndSelectors(terms...).String()
}

// Mark is what stands behind all pods that objects of other kinds name, up to their versions. Informers tell by the version of its metadata
// whether anything has changed: no two marks have the same unless they say the same.
type Mark struct {
	metav1.ObjectMeta

	term  uint64
	whole bool // all pods have been passed on
	upTo  Versions
}

// MarkOf returns the mark that stands among pods; nil if an object is none.
func MarkOf(object any) *Mark {
	p, ok := object.(*corev1.Pod)
	if !ok || p.Name != "" {
		return nil
	}
	term, err := strconv.ParseUint(p.Annotations[termKey], 10, 64)
	if err != nil {
		return nil
	}
	m := &Mark{term: term, whole: p.Annotations[wholeKey] != "", upTo: Reached(p.Annotations)}
	m.ResourceVersion = p.ResourceVersion + "-" + p.Annotations[termKey] + "-" + p.Annotations[wholeKey]
	for _, kind := range slices.Sorted(maps.Keys(m.upTo)) {
		m.ResourceVersion += "-" + m.upTo[kind]
	}
	return m
}

// older reports whether a version is before another one, as none is before any.
func older(version, than string) bool {
	if version == "" {
		return than != ""
	}
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}
