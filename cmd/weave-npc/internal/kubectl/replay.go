package kubectl

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/input"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/recordings"
	npccluster "github.com/weave-npc/weave-npc/npc/cluster"
)

func replayCommand() *cobra.Command {
	c := &input.ObjectFlags{}
	read := func(ctx context.Context, stdin io.Reader, stderr io.Writer) (*npccluster.Cluster, error) {
		c.Stdin = stdin
		r, err := c.Preview(ctx, stderr)
		if err != nil {
			return nil, err
		}
		input.NoteClusterPolicies(stderr, r.Objects)
		if err := r.ApplyOnly(stderr); err != nil {
			return nil, err
		}
		return c.Cluster(r.Objects), nil
	}
	return recordings.Replay(recordings.Policies{Register: c.RegisterAll, Read: read})
}
