//go:build race

package e2e

// race reports that the tests have the race detector.
const race = true
