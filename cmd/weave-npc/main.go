// Command weave-npc enforces Kubernetes network policies on a node with ipsets and iptables, and answers what they
// allow, there and elsewhere.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/rootcmd"
	"github.com/weave-npc/weave-npc/internal/spelling"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	root := rootcmd.Command()
	if strings.TrimSuffix(strings.ToLower(filepath.Base(os.Args[0])), ".exe") == rootcmd.PluginName {
		root = rootcmd.Plugin()
	}
	ran, err := root.ExecuteContextC(ctx)
	stop()
	if err == nil {
		return
	}
	if !errors.Is(err, cli.ErrNo) {
		fmt.Fprintln(spelling.NewWriter(os.Stderr), root.DisplayName()+":", err)
	}
	os.Exit(cli.Status(ran, err))
}
