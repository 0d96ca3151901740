// Package kubectl has the commands that answer about policies, from manifests or from an API server.
//
//	root.AddCommand(kubectl.Commands()...)
//
//	command (flags) ─▶ input: objects ─▶ cluster.View ─▶ npc/analysis: answer ─▶ output
//
// explain, show pods, policies and matrix, replay of recorded connections, and convert are here. Packages check, diff, flows,
// recordings and who have the commands of their names; completion completes names of objects for all of them. None of
// them needs a node; package node adds what does.
package kubectl
