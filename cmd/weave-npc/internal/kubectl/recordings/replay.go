package recordings

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/output"
	"github.com/weave-npc/weave-npc/npc/analysis/replay"
	"github.com/weave-npc/weave-npc/npc/cluster"
)

// Policies is where policies come from: flags, and what reads the objects as the flags say.
type Policies struct {
	Register func(*pflag.FlagSet)
	// Read is given standard input, or nil if that is the recording.
	Read func(ctx context.Context, stdin io.Reader, stderr io.Writer) (*cluster.Cluster, error)
}

// player is replay with the values of its flags.
type player struct {
	Recording
	policies Policies
	output   cli.Format
}

// Replay returns the command replay.
func Replay(policies Policies) *cobra.Command {
	p := &player{policies: policies}
	cmd := &cobra.Command{
		Use: "replay --flows FILE --manifests DIR",
		Short: "List the recorded connections whose verdict changes under other policies, " +
			"with the rules that decide before and after",
		Long: "List the recorded connections whose verdict changes under other policies,\n" +
			"with the rules that decide before and after.\n\n" +
			"It reads the policies of an API server, or those in --manifests before they are applied. The pods are\n" +
			"those of the recording, with the labels that they had then.\n\n" +
			"The exit status is 0 if no verdict changes, 1 if one does, and 2 after an error.",
		Example: "  weave-npc replay --flows flows.jsonl -f manifests",
		Args:    cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	p.Register(f)
	p.output.Register(f, "text or json", "text", "json")
	policies.Register(f)
	return cli.Answers(cmd)
}

func (p *player) run(ctx context.Context, in io.Reader, out, stderr io.Writer) error {
	if err := p.output.Check(); err != nil {
		return err
	}
	c, err := p.policies.Read(ctx, p.Rest(in), stderr)
	if err != nil {
		return err
	}
	records, err := p.Read(in, stderr)
	if err != nil {
		return err
	}
	changes := replay.Changes(records, c)
	if err := output.Changes(out, p.output.Name, changes, len(records)); err != nil {
		return err
	}
	if len(changes) > 0 {
		return cli.ErrNo
	}
	return nil
}
