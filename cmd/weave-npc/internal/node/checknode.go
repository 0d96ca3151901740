package node

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli/sharedflags"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/enforce/host"
)

// kernelReport is what check-node prints as JSON.
type kernelReport struct {
	Backend iptables.Backend `json:"backend"`
	// Missing are the modules that have what the kernel lacks.
	Missing []string `json:"missing"`
	// Enforces is false if no policy can be enforced.
	Enforces bool `json:"enforces"`
}

func checkNodeCommand() *cobra.Command {
	var backend string
	var output cli.Format
	const short = "Check whether the kernel of this node has what policies need"
	cmd := &cobra.Command{
		Use:   "check-node",
		Short: short,
		Long: short + ", by sets\nand rules that it makes and removes, and that no packet meets.\n\n" +
			"The exit status is 1 if something is missing.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.Check(); err != nil {
				return err
			}
			if err := sharedflags.CheckBackend(backend); err != nil {
				return err
			}
			b, _, err := iptables.Detect(cmd.Context(), backend)
			if err != nil {
				return err
			}
			lack, err := host.Lacking(cmd.Context(), b, host.Families())
			if err != nil {
				return err
			}
			if output.Name == "json" {
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				err = encoder.Encode(kernelReport{b, append([]string{}, lack.Modules...), lack.Enforces})
			} else if text := lack.String(); text != "" {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "iptables-%s: %s\n", b, text)
			} else {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "iptables-%s: the kernel has what policies need\n", b)
			}
			if err == nil && len(lack.Modules) > 0 {
				err = cli.ErrNo
			}
			return err
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	sharedflags.Backend(f, &backend)
	output.Register(f, "text or json", "text", "json")
	return cmd
}
