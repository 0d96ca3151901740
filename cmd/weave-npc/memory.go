package main

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// The files that say how many bytes our container may have, by control groups version 2 and 1.
const (
	memoryMax   = "/sys/fs/cgroup/memory.max"
	memoryMaxV1 = "/sys/fs/cgroup/memory/memory.limit_in_bytes"
)

// followMemoryLimit has the garbage collector keep within nine tenths of what the container may have, so that a burst makes it work rather than
// have us killed. GOMEMLIMIT comes before it. The number of processors Go itself takes from the container.
func followMemoryLimit() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	for _, file := range [...]string{memoryMax, memoryMaxV1} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the other version
		}
		if limit, limited := memoryLimit(string(text)); limited {
			debug.SetMemoryLimit(limit)
		}
		return
	}
}

// memoryLimit is the limit that a control group gives, if it does: without one it says max, or nearly the largest number there is.
func memoryLimit(text string) (limit int64, limited bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n <= 0 || n >= 1<<62 {
		return 0, false
	}
	return n / 10 * 9, true
}
