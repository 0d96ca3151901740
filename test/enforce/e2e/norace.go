//go:build !race

package e2e

// race reports that the tests do not have the race detector.
const race = false
