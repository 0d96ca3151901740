// Package check has the command check: which expectations do not hold, and what is probably wrong with policies.
//
//	root.AddCommand(check.New())
//
//	files: expectations ─▶ cases: check.Prover ─▶ findings.Case   ─┐
//	input: objects      ─▶ linting: lint.Run  ─▶ findings.Finding ─┴▶ findings.Report
//
// It does not know what the rules of the linter are about.
package check
