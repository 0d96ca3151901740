// Package nightly decides how often tests repeat random checks: seldom in every run, so that it stays short, and often in
// `make nightly`.
package nightly

import "os"

// variable is set to anything in a run of `make nightly` or `make mutants`.
const variable = "WEAVE_NPC_TEST_NIGHTLY"

// Times returns how often a random check is repeated: usual times, or full in a nightly run.
func Times(usual, full int) int {
	if os.Getenv(variable) != "" {
		return full
	}
	return usual
}
