package input

import (
	"github.com/spf13/pflag"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/npc/source/apiclient"
)

// RegisterAccess registers kubectl's flags for the API server and the user.
func RegisterAccess(f *pflag.FlagSet, a *apiclient.Access) {
	f.StringVar(&a.Kubeconfig, "kubeconfig", "",
		"kubeconfig file for the API server (default: the one that kubectl uses)")
	cli.File(f, "kubeconfig")
	f.StringVar(&a.Context, "context", "", "context of the kubeconfig (default: its current one)")
	f.StringVar(&a.Cluster, "cluster", "", "cluster of the kubeconfig (default: the context's)")
	f.StringVar(&a.User, "user", "", "user of the kubeconfig (default: the context's)")
	f.StringVar(&a.As, "as", "", "user to impersonate")
	f.StringArrayVar(&a.Groups, "as-group", nil, "group to impersonate; may be repeated")
	f.StringVar(&a.Timeout, "request-timeout", "", "longest time for a request, as 30s (default: none)")
}
