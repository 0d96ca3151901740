package cli

import "runtime/debug"

// SaveMemory has the garbage of a command collected twice as often as usual. Where objects of 100,000 pods are read, it
// takes a fifth less memory so, and a fifth more time.
func SaveMemory() {
	const percent = 50
	debug.SetGCPercent(percent)
}
