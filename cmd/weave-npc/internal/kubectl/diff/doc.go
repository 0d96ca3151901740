// Package diff has the command diff: which connections open and which close between two states of a cluster.
//
//	root.AddCommand(diff.New())
//
//	source, git: two states, from manifests, a revision of git or an API server
//	  ─▶ diff.Compare ─▶ report ─▶ write (text, JSON, JUnit, SARIF), markdown, html
//
// It compares nothing itself: npc/analysis/diff does, and replay for recorded connections.
package diff
