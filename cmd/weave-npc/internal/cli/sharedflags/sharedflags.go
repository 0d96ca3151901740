// Package sharedflags registers the flags that the daemon shares with other commands, so that they read and check
// alike.
//
//	name := ""
//	sharedflags.NodeName(cmd.Flags(), &name)
package sharedflags

import (
	"os"

	"github.com/pkg/errors"
	"github.com/spf13/pflag"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
)

// The defaults of flags.
const (
	DefaultFlowsSocket = "/run/weave-npc/flows.sock"
	DefaultMaxListSize = 1024
)

// NodeName registers --node-name.
func NodeName(f *pflag.FlagSet, name *string) {
	f.StringVar(name, "node-name", *name, "name of this node (default $HOSTNAME)")
}

// ResolveNodeName returns the value of --node-name or, if it is empty, $HOSTNAME. It fails if both are empty.
func ResolveNodeName(name string) (string, error) {
	if name == "" {
		name = os.Getenv("HOSTNAME")
	}
	if name == "" {
		return "", errors.New("no node name: give --node-name or set $HOSTNAME")
	}
	return name, nil
}

// The values of --iptables-backend.
const (
	nft    = "nft"
	legacy = "legacy"
)

// Backend registers --iptables-backend.
func Backend(f *pflag.FlagSet, backend *string) {
	f.StringVar(backend, "iptables-backend", *backend,
		"nft or legacy (default: the backend of the other rules on this node)")
	cli.Values(f, "iptables-backend", nft, legacy)
}

// CheckBackend returns an error if --iptables-backend names no backend.
func CheckBackend(backend string) error {
	if backend != "" && backend != nft && backend != legacy {
		return errors.Errorf("--iptables-backend: %q is neither nft nor legacy", backend)
	}
	return nil
}

// FlowsSocket registers --flows-socket.
func FlowsSocket(f *pflag.FlagSet, path *string) {
	f.StringVar(path, "flows-socket", *path, "Unix socket to read records from, for root alone")
	cli.File(f, "flows-socket")
}

// LegacyNetpol registers --use-legacy-netpol.
func LegacyNetpol(f *pflag.FlagSet, legacy *bool) {
	f.BoolVar(legacy, "use-legacy-netpol", *legacy, "give policies the meaning that they had in Kubernetes 1.6")
}
