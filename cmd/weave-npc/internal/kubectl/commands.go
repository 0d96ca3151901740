package kubectl

import (
	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/check"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/diff"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/recordings"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/who"
)

// Commands returns those that are the same on a node and elsewhere.
func Commands() []*cobra.Command {
	return []*cobra.Command{diff.New(), check.New(), who.CanReach(), who.WhatReaches(), replayCommand(),
		recordings.Propose(), convertCommand(), cli.VersionCommand()}
}
