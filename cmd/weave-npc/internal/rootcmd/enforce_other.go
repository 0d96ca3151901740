//go:build !linux

package rootcmd

import "github.com/spf13/cobra"

// enforce returns a command that answers what policies allow: only Linux has the kernel that they are enforced with.
func enforce() *cobra.Command { return ask(name) }
