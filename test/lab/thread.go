package lab

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// onOwnThread runs f on an operating system thread that ends with it, so that whatever f does to the thread (its
// network namespace) ends too. The process's main thread is never used: it cannot end, and it is what other processes
// see in /proc.
func onOwnThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != os.Getpid() {
			f()
			return // still locked: the thread ends here
		}
		done := make(chan struct{})
		onOwnThread(func() {
			defer close(done)
			f()
		})
		<-done
		runtime.UnlockOSThread()
	}()
}

// thread runs functions one after the other on one thread that lives until stop. Commands are started on it: what a
// thread with a parent-death signal started dies with the thread.
type thread struct {
	work chan func()
	gone chan struct{}
}

// newThread starts a thread with setup; without success there is none.
func newThread(setup func() error) (*thread, error) {
	t := &thread{work: make(chan func()), gone: make(chan struct{})}
	ready := make(chan error)
	onOwnThread(func() {
		defer close(t.gone)
		err := setup()
		ready <- err
		if err != nil {
			return
		}
		for f := range t.work {
			f()
		}
	})
	if err := <-ready; err != nil {
		return nil, err
	}
	return t, nil
}

// run calls f on the thread and waits for it.
func (t *thread) run(f func() error) error {
	result := make(chan error, 1)
	t.work <- func() { result <- f() }
	return <-result
}

// stop ends the thread. It must be called once, with nothing else running on it.
func (t *thread) stop() {
	close(t.work)
	<-t.gone
}
