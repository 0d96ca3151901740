package command

import (
	"context"
	"fmt"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Interruptible returns a context that a signal ends.
func Interruptible() (ctx context.Context, stop context.CancelFunc) {
	return signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGPIPE)
}

// Announce prints what is done when a signal has ended a context of Interruptible, and lets the next signal end the
// process. It does so until the function that it returns is called.
func Announce(ctx context.Context, stop context.CancelFunc, what string) (done func() bool) {
	return context.AfterFunc(ctx, func() {
		signal.Ignore(unix.SIGPIPE) // none may read what follows
		stop()                      // the next signal ends this process
		fmt.Println("interrupted: " + what)
	})
}
