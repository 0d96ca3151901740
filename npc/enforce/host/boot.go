package host

import (
	"time"

	"golang.org/x/sys/unix"
)

// Booted returns when this node was started, by its present clock: correcting the clock after the start moves the
// result too. It is zero if the kernel does not report it.
func Booted() time.Time {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(up.Nano()))
}
