package recordings

import (
	"cmp"
	"fmt"
	"io"

	"github.com/pkg/errors"
	"github.com/spf13/pflag"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

// standardInput is the path that stands for it.
const standardInput = "-"

// Recording is a file of connections.
type Recording struct{ path string }

// Register registers --flows.
func (r *Recording) Register(f *pflag.FlagSet) {
	f.StringVar(&r.path, "flows", "", "file of recorded connections, JSON a line; - for standard input")
	cli.File(f, "flows")
}

// Given reports whether there is a file.
func (r *Recording) Given() bool { return r.path != "" }

// Rest returns standard input for other flags; nil if the recording is read from there.
func (r *Recording) Rest(stdin io.Reader) io.Reader {
	if r.path == standardInput {
		return nil
	}
	return stdin
}

// Read reads all records, and notes in stderr how many lines are none. It is an error if there is no record.
func (r *Recording) Read(stdin io.Reader, stderr io.Writer) (records []flowlog.Record, err error) {
	if r.path == "" {
		return nil, errors.New("--flows is missing: give a file of recorded connections")
	}
	in := stdin
	if r.path != standardInput {
		file, err := cli.OpenFile("flows", r.path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	skipped, err := flowlog.Read(in, func(r flowlog.Record) error {
		records = append(records, r)
		return nil
	})
	if err == nil && len(records) == 0 {
		err = cmp.Or(skipped.First, errors.New("it has no record of connections; flows -o json prints those of nodes"))
	}
	if err == nil && skipped.Lines > 0 {
		_, _ = fmt.Fprintf(stderr, "weave-npc: --flows %s: %s\n", r.path, skipped)
	}
	return records, errors.Wrapf(err, "--flows %s", r.path)
}
