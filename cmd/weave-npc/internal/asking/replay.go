package asking

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/objects"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/recorded"
	npccluster "github.com/weave-npc/weave-npc/npc/cluster"
)

func replayCommand() *cobra.Command {
	c := &objects.Flags{}
	return recorded.Replay(recorded.Policies{Register: c.RegisterAll, Read: func(ctx context.Context, stdin io.Reader, stderr io.Writer) (*npccluster.Cluster, error) {
		c.Stdin = stdin
		r, err := c.Rehearse(ctx, stderr)
		if err != nil {
			return nil, err
		}
		objects.NoteClusterPolicies(stderr, r.Objects)
		if err := r.ApplyOnly(stderr); err != nil {
			return nil, err
		}
		return c.Cluster(r.Objects), nil
	}})
}
