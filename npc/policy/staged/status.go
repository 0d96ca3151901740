package staged

import "fmt"

// Status is whether a policy is staged or enforced, and what it does to its group if it is staged.
type Status struct {
	Key Key
	Operation
	Staged bool
	// Problem is why the policy is not what its annotations ask for; empty if it is.
	Problem string
}

// Status returns the status of a policy with some annotations. A policy of a kind that cannot be staged is enforced,
// unless it comes from where policies are never enforced.
func (m Mode) Status(key Key, annotations map[string]string) Status {
	s := Status{Key: key}
	s.Operation, s.Staged, s.Problem = Read(annotations)
	if !m.Covers(key.Namespace == "") && (s.Staged || key.Apart) {
		s.Staged, s.Problem = false, fmt.Sprintf("weave-npc runs with --staged=%s", m)
	}
	return s
}

// Annotated reports whether the policy has annotations about staging.
func (s Status) Annotated() bool { return s.Staged || s.Problem != "" }

// Wrong returns how the policy is not what its annotations ask for; empty if it is. The fault is what is wrong with its
// rules, and enforced reports whether another policy is enforced.
func (s Status) Wrong(fault string, enforced func(Key) bool) string {
	switch {
	case !s.Annotated():
		return ""
	case !s.Staged && s.Key.Apart:
		return "it is not staged: " + s.Problem
	case !s.Staged:
		return "it is enforced: " + s.Problem
	case s.Problem != "":
		return "it is staged and changes nothing in its group: " + s.Problem
	case fault != "":
		return fault
	case s.Takes == "" || enforced(Key{Namespace: s.Key.Namespace, Name: s.Takes}):
		return ""
	case s.Adds:
		return fmt.Sprintf("%s names %s, which is not enforced: it counts as an addition", ReplacesAnnotation, s.Takes)
	}
	return fmt.Sprintf("%s names %s, which is not enforced: it changes nothing in its group", RemovesAnnotation, s.Takes)
}
