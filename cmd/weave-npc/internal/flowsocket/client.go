package flowsocket

import (
	"context"
	"io"
	"net"
	"os"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/npc/flows"
)

// ErrUnserved is the cause of an error if nobody serves a socket.
var ErrUnserved = errors.New("no weave-npc serves it that runs with --record-flows, and with this path as --flows-socket")

// Read passes on all records, and with goOn those that are added to, until the context or the server ends.
func Read(ctx context.Context, path string, goOn bool, each func(flows.Record) error) error {
	request := byte(all)
	if goOn {
		request = follow
	}
	return ask(ctx, path, request, func(in io.Reader) error {
		err := flows.Read(in, each)
		if ctx.Err() != nil {
			err = nil // the end that was asked for
		}
		return errors.Wrap(err, "reading recorded connections")
	})
}

// ReadHits returns the hits of rules.
func ReadHits(ctx context.Context, path string) (h flows.Hits, err error) {
	err = ask(ctx, path, hits, func(in io.Reader) (err error) {
		h, err = flows.ReadHits(in)
		return errors.Wrapf(err, "asking %s for hits", path)
	})
	return h, err
}

// ask sends a request and has the answer read.
func ask(ctx context.Context, path string, request byte, read func(io.Reader) error) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return errors.Wrap(ErrUnserved, path)
	case errors.Is(err, os.ErrPermission):
		return errors.Errorf("only root may read %s", path)
	case err != nil:
		return errors.Wrap(err, "reading recorded connections")
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write([]byte{request}); err != nil {
		return errors.Wrap(err, "reading recorded connections")
	}
	return read(conn)
}
