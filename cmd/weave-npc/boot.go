package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// booted returns when this node was started, by its present clock: a clock that is set right after the start moves that too. It is zero
// if that cannot be known.
func booted() time.Time {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(up.Nano()))
}
