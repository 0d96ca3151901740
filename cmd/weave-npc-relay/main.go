// Command weave-npc-relay follows an API server and serves weave-npc's agents what they watch.
//
// The API server sends each change to a few relays, and not to every node.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/auth"
	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/relay"
	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/serve"
	"github.com/weave-npc/weave-npc/npc/source/apiclient"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "weave-npc-relay:", err)
		os.Exit(1)
	}
}

// flags are the relay's flags.
type flags struct {
	listen, metricsAddr, cert, key, audience, kubeconfig, logLevel string
	agents                                                         []string
	readyAfter                                                     time.Duration
}

func command() *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "weave-npc-relay",
		Short: "Serve weave-npc's agents what they watch, in the place of the API server",
		Args:  cobra.NoArgs, SilenceErrors: true, SilenceUsage: true,
		Version: version(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), f) },
	}
	c.Flags().StringVar(&f.listen, "listen", ":6785", "address at which agents are served")
	c.Flags().StringVar(&f.metricsAddr, "metrics-addr", ":6786", "address of /metrics, /livez and /readyz")
	c.Flags().StringVar(&f.cert, "tls-cert", "/etc/weave-npc-relay/tls.crt",
		"certificate (PEM), read again when it changes")
	c.Flags().StringVar(&f.key, "tls-key", "/etc/weave-npc-relay/tls.key",
		"key of the certificate (PEM), read again when it changes")
	c.Flags().StringVar(&f.audience, "audience", "weave-npc-relay", "audience that agents' tokens must be made for")
	c.Flags().StringSliceVar(&f.agents, "agent", []string{"kube-system/weave-npc"},
		"service account that may read, as NAMESPACE/NAME; may be repeated")
	c.Flags().StringVar(&f.kubeconfig, "kubeconfig", "",
		"kubeconfig of the API server (default: that of the relay's own cluster)")
	c.Flags().DurationVar(&f.readyAfter, "ready-after", relay.ReadyAfter,
		"how long after its lists the relay is ready; agents that have older versions cannot move to it")
	c.Flags().StringVar(&f.logLevel, "log-level", "info", "what is logged: debug, info, warn or error")
	c.AddCommand(certificateCommand())
	return c
}

func run(ctx context.Context, f flags) error {
	log, err := logger(f.logLevel)
	if err != nil {
		return err
	}
	klog.SetSlogLogger(log)
	tokens := auth.Config{Audience: f.audience}
	if tokens.Accounts, err = accounts(f.agents); err != nil {
		return err
	}
	if f.audience == "" || f.readyAfter < 0 {
		return errors.New("--audience must not be empty, --ready-after not negative")
	}
	// A connection to an API server that is gone has to be noticed before agents would take the relay for fresh.
	// client-go asks these variables.
	variables := map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "2", "HTTP2_PING_TIMEOUT_SECONDS": "2"}
	for name, value := range variables {
		if err := os.Setenv(name, value); err != nil {
			return errors.Wrap(err, "setting how often the API server's connection is tested")
		}
	}
	_, config, err := apiclient.New(f.kubeconfig, version())
	if err != nil {
		return err
	}
	config.UserAgent = "weave-npc-relay/" + version()
	config.QPS = -1 // the number of requests at a time is limited, and the API server has its own limits
	serve.AllowStreamingLists()
	r, err := relay.New(relay.Config{API: config, CertFile: f.cert, KeyFile: f.key, Tokens: tokens,
		ReadyAfter: f.readyAfter, AskKinds: 10 * time.Second}, log)
	if err != nil {
		return err
	}
	agents, err := net.Listen("tcp", f.listen)
	if err != nil {
		return errors.Wrap(err, "listening for agents; choose another address with --listen")
	}
	metrics, err := net.Listen("tcp", f.metricsAddr)
	if err != nil {
		return errors.Wrap(err, "listening for metrics; choose another address with --metrics-addr")
	}
	log.Info("serves agents", "addr", agents.Addr(), "metrics", metrics.Addr(), "accounts", f.agents,
		"version", version())
	return r.Run(ctx, agents, metrics)
}

// logger returns a logger for a level.
func logger(level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, errors.Errorf("--log-level %q: want debug, info, warn or error", level)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l})), nil
}

// accounts reads NAMESPACE/NAME as the API server names service accounts.
func accounts(texts []string) ([]string, error) {
	form := regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)/([a-z0-9]([-.a-z0-9]*[a-z0-9])?)$`)
	var out []string
	for _, text := range texts {
		m := form.FindStringSubmatch(text)
		if m == nil {
			return nil, errors.Errorf("--agent %q: want NAMESPACE/NAME of a service account", text)
		}
		out = append(out, m[1]+":"+m[3])
	}
	if len(out) == 0 {
		return nil, errors.New("--agent: want at least one service account")
	}
	return out, nil
}

// version returns the version that the binary was built from.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "unreleased"
}
