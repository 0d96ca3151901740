package flowsocket

import (
	"context"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

// ErrUnserved is the cause of an error if no process serves a socket.
var ErrUnserved = errors.New("no weave-npc serves it that runs with --record-flows, " +
	"and with this path as --flows-socket")

// Client asks the server of a socket.
type Client struct{ Path string }

// Read passes on all records, and with goOn those that are added to, until the context or the server ends. Lines that
// are no records are skipped.
func (c Client) Read(ctx context.Context, goOn bool, each func(flowlog.Record) error,
) (skipped flowlog.Skipped, err error) {
	request := byte(all)
	if goOn {
		request = follow
	}
	err = c.ask(ctx, request, func(in io.Reader) (err error) {
		skipped, err = flowlog.Read(in, each)
		if ctx.Err() != nil {
			err = nil // the end that was asked for
		}
		return errors.Wrap(err, "reading recorded connections")
	})
	return skipped, err
}

// ReadHits returns the hits of rules.
func (c Client) ReadHits(ctx context.Context) (h flowlog.Hits, err error) {
	err = c.ask(ctx, hits, func(in io.Reader) (err error) {
		h, err = flowlog.ReadHits(in)
		return errors.Wrapf(err, "asking %s for hits", c.Path)
	})
	return h, err
}

// ask sends a request and has the answer read.
func (c Client) ask(ctx context.Context, request byte, read func(io.Reader) error) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.Path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return errors.Wrap(ErrUnserved, c.Path)
	case errors.Is(err, os.ErrPermission):
		return errors.Errorf("only root may read %s", c.Path)
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
