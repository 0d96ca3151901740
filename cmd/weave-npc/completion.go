package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
)

// flagValues returns the values that a flag takes, if these are few.
func flagValues(f *pflag.Flag) []string {
	switch f.Name {
	case "hook":
		return []string{string(npc.HookForward), string(npc.HookNone)}
	case "allow-action":
		return []string{actionAccept, actionReturn}
	case "gate":
		return []string{string(npc.GateAuto), string(npc.GateOpen), string(npc.GateClosed)}
	case "iptables-backend":
		return []string{string(iptables.NFT), string(iptables.Legacy)}
	case "log-level":
		return []string{"debug", "info", "warning", "error"}
	case "log-format":
		return []string{"text", "json"}
	case "output": // its help begins with the list of its values
		values, _, _ := strings.Cut(f.Usage, ":")
		words := strings.FieldsFunc(values, func(r rune) bool { return r == ' ' || r == ',' })
		return slices.DeleteFunc(words, func(w string) bool { return w == "or" })
	}
	return nil
}

// completeFlags tells the shell what the flags of a command and of those below it take.
func completeFlags(cmd *cobra.Command) error {
	var err error
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if e := completeFlag(cmd, f); err == nil {
			err = e
		}
	})
	for _, sub := range cmd.Commands() {
		if e := completeFlags(sub); err == nil {
			err = e
		}
	}
	return err
}

func completeFlag(cmd *cobra.Command, f *pflag.Flag) error {
	switch f.Name {
	case "manifests":
		return cmd.MarkFlagDirname(f.Name)
	case "kubeconfig", "ulogd-pcap":
		return nil // files, which the shell completes by itself
	}
	return cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(flagValues(f), cobra.ShellCompDirectiveNoFileComp))
}
