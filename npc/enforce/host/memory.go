package host

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// The files with the memory limit of this container in bytes, in control groups version 2 and 1.
const (
	memoryMax   = "/sys/fs/cgroup/memory.max"
	memoryMaxV1 = "/sys/fs/cgroup/memory/memory.limit_in_bytes"
)

// FollowMemoryLimit makes the garbage collector keep the process within nine tenths of the container's memory limit, so
// that a burst costs CPU time instead of an out-of-memory kill. $GOMEMLIMIT takes precedence. Go reads the container's
// CPU limit by itself.
func FollowMemoryLimit() {
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

// memoryLimit returns the limit to follow for the text in a control group's file. Without a limit, the file holds max
// (version 2) or a number close to the largest int64 (version 1).
func memoryLimit(text string) (limit int64, limited bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n <= 0 || n >= 1<<62 {
		return 0, false
	}
	return n / 10 * 9, true
}
