package flowsocket

import (
	"context"
	"net"
	"os"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/npc/flows"
)

// Read passes on all records, and with goOn those that are added to, until the context or the server ends.
func Read(ctx context.Context, path string, goOn bool, each func(flows.Record) error) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return errors.Errorf("no weave-npc that records connections serves %s: it runs with --record-flows, and with this path as --flows-socket", path)
	case errors.Is(err, os.ErrPermission):
		return errors.Errorf("only root may read %s", path)
	case err != nil:
		return errors.Wrap(err, "reading recorded connections")
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	request := []byte{all}
	if goOn {
		request[0] = follow
	}
	if _, err := conn.Write(request); err != nil {
		return errors.Wrap(err, "reading recorded connections")
	}
	err = errors.Wrap(flows.Read(conn, each), "reading recorded connections")
	if ctx.Err() != nil {
		return nil
	}
	return err
}
