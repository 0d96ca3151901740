// Package random changes the objects of a cluster at random, and compares what packets get with the verdicts of the
// reference model. Its tests run it for long: states, edits under load, failures (soak), and upgrades.
package random
