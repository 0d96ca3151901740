package main

import (
	"context"
	"io"
	"os"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/commandline"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/render"
	"github.com/weave-npc/weave-npc/npc/flows"
	"github.com/weave-npc/weave-npc/npc/replay"
)

// errChanged is returned if a verdict changes, after the changes are printed.
var errChanged = errors.New("changed")

// recording is a file of connections.
type recording struct{ path string }

func (r *recording) register(f *pflag.FlagSet) {
	f.StringVar(&r.path, "flows", "", "file of recorded connections, JSON a line; - for standard input")
	commandline.File(f, "flows")
}

// read reads all records.
func (r *recording) read(stdin io.Reader) (records []flows.Record, err error) {
	if r.path == "" {
		return nil, errors.New("--flows is missing: give a file of recorded connections")
	}
	in := stdin
	if r.path != "-" {
		file, err := os.Open(r.path)
		if err != nil {
			return nil, errors.Wrap(err, "--flows")
		}
		defer file.Close()
		in = file
	}
	err = flows.Read(in, func(r flows.Record) error {
		records = append(records, r)
		return nil
	})
	return records, errors.Wrapf(err, "--flows %s", r.path)
}

// replayOptions are the values of the flags of replay.
type replayOptions struct {
	recording
	cluster
	output format
}

func replayCommand() *cobra.Command {
	o := &replayOptions{}
	cmd := &cobra.Command{
		Use:   "replay --flows FILE --manifests DIR",
		Short: "Lists the recorded connections whose verdict changes under other policies, with the rules that decide before and after",
		Long: "Lists the recorded connections whose verdict changes under other policies, with the rules that decide before and after.\n" +
			"It reads the policies of an API server, or those in --manifests before they are applied. The pods are those of the recording,\n" +
			"with the labels that they had then.\n\n" +
			"The exit status is 0 if no verdict changes, 1 if one does, and 2 after an error.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	o.recording.register(f)
	o.output.register(f, "text or json", "text", "json")
	o.cluster.register(f)
	return cmd
}

func (o *replayOptions) run(ctx context.Context, in io.Reader, out, stderr io.Writer) error {
	if err := o.output.check(); err != nil {
		return err
	}
	records, err := o.read(in)
	if err != nil {
		return err
	}
	objects, err := o.objects(ctx)
	if err != nil {
		return err
	}
	noteClusterPolicies(stderr, objects)
	changes := replay.Changes(records, o.of(objects))
	if err := render.Changes(out, o.output.name, changes, len(records)); err != nil {
		return err
	}
	if len(changes) > 0 {
		return errChanged
	}
	return nil
}
