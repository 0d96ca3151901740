package relay_test

import (
	"io"
	"net"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// link is a line to the API server that a test can cut, or let stand still.
type link struct {
	listener net.Listener

	mu     sync.Mutex
	dial   func() (net.Conn, error)
	resume *sync.Cond
	cut    bool // connections are refused
	frozen bool // connections stand, and carry nothing
	conns  map[net.Conn]bool
}

// newLink makes a line, and returns it with the configuration of a client that uses it.
func newLink(t *testing.T, config *rest.Config) (*link, *rest.Config) {
	t.Helper()
	l := &link{conns: map[net.Conn]bool{}}
	l.resume = sync.NewCond(&l.mu)
	l.redirect(t, config)
	var err error
	if l.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.set(true, false)
		_ = l.listener.Close()
	})
	go l.serve()
	out := rest.CopyConfig(config)
	out.Dial = nil
	out.Host = "https://" + l.listener.Addr().String()
	out.ServerName, _, _ = net.SplitHostPort(config.Host[len("https://"):])
	return l, out
}

// redirect directs new connections to an API server, and closes the existing ones.
func (l *link) redirect(t *testing.T, to *rest.Config) {
	dial, host := to.Dial, to.Host[len("https://"):]
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dial = func() (net.Conn, error) { return dial(t.Context(), "tcp", host) }
	l.hangUp()
}

// set cuts all connections, or lets them stand still.
func (l *link) set(cut, frozen bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.frozen = cut, frozen
	l.resume.Broadcast()
	if cut {
		l.hangUp()
	}
}

// hangUp closes the connections that there are. The line is locked.
func (l *link) hangUp() {
	for c := range l.conns {
		_ = c.Close()
	}
}

func (l *link) serve() {
	for {
		in, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.carry(in)
	}
}

func (l *link) carry(in net.Conn) {
	defer in.Close()
	if !l.keep(in) {
		return
	}
	defer l.drop(in)
	l.mu.Lock()
	dial := l.dial
	l.mu.Unlock()
	out, err := dial()
	if err != nil {
		return
	}
	defer out.Close()
	if !l.keep(out) {
		return
	}
	defer l.drop(out)
	go func() {
		_, _ = io.Copy(l.slow(out), in)
		_ = out.Close()
	}()
	_, _ = io.Copy(l.slow(in), out)
}

func (l *link) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c] = true
	return !l.cut
}

func (l *link) drop(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// slow returns a writer that waits while the line stands still.
func (l *link) slow(w io.Writer) io.Writer { return waiting{l, w} }

type waiting struct {
	link *link
	to   io.Writer
}

// Write implements io.Writer.
func (w waiting) Write(p []byte) (int, error) {
	w.link.mu.Lock()
	for w.link.frozen {
		w.link.resume.Wait()
	}
	w.link.mu.Unlock()
	return w.to.Write(p)
}
