package node

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"

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
	// Redirects are the interfaces whose packets may not pass FORWARD.
	Redirects []string `json:"redirects"`
}

func checkNodeCommand() *cobra.Command {
	var backend string
	var output cli.Format
	const short = "Check whether the kernel of this node has what policies need"
	cmd := &cobra.Command{
		Use:   "check-node",
		Short: short,
		Long: short + ", by sets\nand rules that it makes and removes, and that no packet meets.\n\n" +
			"The exit status is 1 if something is missing. It also warns of programs of tc and XDP that may\n" +
			"send packets past FORWARD.",
		Args: cli.NoArguments,
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
			redirects, err := host.FindRedirects()
			if err != nil {
				return err
			}
			if err := printKernel(cmd.OutOrStdout(), output.Name, b, lack, redirects); err != nil {
				return err
			}
			if len(lack.Modules) > 0 {
				return cli.ErrNo
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	sharedflags.Backend(f, &backend)
	output.Register(f, "text or json", "text", "json")
	return cmd
}

// printKernel prints what was found out about the kernel.
func printKernel(out io.Writer, format string, b iptables.Backend, lack host.Lack, redirects host.Redirects) error {
	if format == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(kernelReport{b, append([]string{}, lack.Modules...), lack.Enforces,
			append([]string{}, redirects...)})
	}
	text := cmp.Or(lack.String(), "the kernel has what policies need")
	if warning := redirects.String(); warning != "" {
		text += "\nwarning: " + warning
	}
	_, err := fmt.Fprintf(out, "iptables-%s: %s\n", b, text)
	return err
}
