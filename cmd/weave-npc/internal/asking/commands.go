// Package asking has the commands that answer about policies wherever they are asked, without a node: from manifests, or from an API server.
//
//	root.AddCommand(asking.Commands()...)
package asking

import (
	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/checkcommand"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/commandline"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/diffcommand"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/recorded"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/whocommand"
)

// Commands returns those that are the same on a node and elsewhere.
func Commands() []*cobra.Command {
	return []*cobra.Command{diffcommand.New(), checkcommand.New(), whocommand.WhoCanReach(), whocommand.WhatReaches(), replayCommand(), recorded.Propose(),
		commandline.VersionCommand()}
}
