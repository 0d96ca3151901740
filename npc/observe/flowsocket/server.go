package flowsocket

import (
	"context"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

const (
	// maxClients is how many clients are served at a time. Others wait.
	maxClients = 8
	// timeout is how long a client may take to ask, or to read a batch of records.
	timeout = 30 * time.Second
	// followPeriod is the time between two batches.
	followPeriod = time.Second
	// longestPath is what the kernel takes for a socket's path, without the ending of the new one.
	longestPath = 107 - len(ending)
	ending      = ".new"

	all    = 'a'
	follow = 'f'
	hits   = 'h'
)

// Store has the records.
type Store interface {
	// Since returns the records that were made or added to after a version, and the version that they are of.
	Since(version uint64) ([]flowlog.Record, uint64)
	// Hits returns how often rules decided.
	Hits() flowlog.Hits
}

// Server serves records.
type Server struct {
	path     string
	store    Store
	listener *net.UnixListener
	inode    fs.FileInfo
}

// Listen opens a socket at a path. A socket without a listener is replaced.
func Listen(path string, store Store) (*Server, error) {
	if err := check(path); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, errors.Wrap(err, "making the directory of the socket")
	}
	// The socket gets its final name only once its mode lets root alone open it.
	next := path + ending
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, errors.Wrap(err, "removing a socket")
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: next, Net: "unix"})
	if err != nil {
		return nil, errors.Wrap(err, "opening a socket")
	}
	l.SetUnlinkOnClose(false)
	s := &Server{path: path, store: store, listener: l}
	if err := s.install(next); err != nil {
		_ = l.Close()
		_ = os.Remove(next)
		return nil, err
	}
	return s, nil
}

// check refuses paths that are not allowed, and those that another process serves.
func check(path string) error {
	if !filepath.IsAbs(path) {
		return errors.Errorf("%q is no absolute path", path) // @name would be open to every pod on the node's network
	}
	if strings.ContainsRune(path, 0) || len(path) > longestPath {
		return errors.Errorf("%q is no path of at most %d bytes", path, longestPath)
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return errors.Wrap(err, "looking at the socket")
	case info.Mode().Type() != os.ModeSocket:
		return errors.Errorf("%s is there already, and no socket", path)
	}
	if conn, err := net.Dial("unix", path); err == nil {
		_ = conn.Close()
		return errors.Errorf("another process serves %s", path)
	}
	return nil // none listens
}

func (s *Server) install(next string) (err error) {
	if err = os.Chmod(next, 0o600); err != nil {
		return errors.Wrap(err, "closing a socket to others")
	}
	if s.inode, err = os.Lstat(next); err != nil {
		return errors.Wrap(err, "looking at the socket")
	}
	return errors.Wrap(os.Rename(next, s.path), "naming a socket")
}

// Run serves clients until the context ends, and removes the socket.
func (s *Server) Run(ctx context.Context, log *slog.Logger) {
	var clients sync.WaitGroup
	defer clients.Wait()
	defer s.remove()
	defer context.AfterFunc(ctx, func() { _ = s.listener.Close() })()
	free := make(chan struct{}, maxClients)
	for ctx.Err() == nil {
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			return
		}
		conn, err := s.listener.Accept()
		if err != nil {
			<-free
			if ctx.Err() == nil {
				log.Warn("a reader of recorded connections is refused", "err", err)
				time.Sleep(followPeriod)
			}
			continue
		}
		clients.Go(func() {
			defer func() {
				_ = conn.Close()
				<-free
			}()
			if err := s.serve(ctx, conn); err != nil && ctx.Err() == nil {
				log.Debug("a reader of recorded connections has gone", "err", err)
			}
		})
	}
}

// remove removes the socket, unless another one has taken its name.
func (s *Server) remove() {
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.inode) {
		_ = os.Remove(s.path)
	}
}

// serve gives a client the hits, or all records and if it asks for that those that are added to later.
func (s *Server) serve(ctx context.Context, conn net.Conn) error {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetDeadline(time.Now().Add(timeout))
	var request [1]byte
	if _, err := conn.Read(request[:]); err != nil {
		return err
	}
	if request[0] == hits {
		return flowlog.WriteHits(conn, s.store.Hits())
	}
	gone := make(chan struct{})
	if request[0] == follow {
		_ = conn.SetReadDeadline(time.Time{})
		go func() {
			_, _ = conn.Read(make([]byte, 1)) // it sends nothing more: this ends when it goes
			close(gone)
		}()
	}
	for version := uint64(0); ; {
		records, at := s.store.Since(version)
		version = at
		_ = conn.SetWriteDeadline(time.Now().Add(timeout))
		if err := flowlog.Write(conn, records...); err != nil || request[0] != follow {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-gone:
			return nil
		case <-time.After(followPeriod):
		}
	}
}
