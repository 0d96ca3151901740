// Package stage has staged policies judged beside those that are enforced, and tells which are not as their annotations ask: in the log, as Events
// and as metrics.
//
//	s, err := stage.New(stage.Config{...})
//	go src.Run(ctx, s, log) // instead of the sink of what is enforced
//	go s.Follow(ctx)        // the policies of --staged-manifests
//
// What staged policies would do with connections is reported by those who record these.
package stage

import (
	"context"
	"log/slog"

	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weave-npc/weave-npc/npc/controller"
	"github.com/weave-npc/weave-npc/npc/source"
	"github.com/weave-npc/weave-npc/npc/source/staging"
	"github.com/weave-npc/weave-npc/npc/staged"
)

// Config is what a Stage depends on.
type Config struct {
	Mode staged.Mode
	// Directory has manifests whose policies are all staged; empty for none.
	Directory string
	// Enforced takes what is enforced.
	Enforced   source.Sink
	Controller *controller.Controller
	// Report hears of policies that are staged or should be, after they are logged.
	Report   func(staging.Notice)
	Registry prometheus.Registerer
	Log      *slog.Logger
}

// Stage is a sink that has annotated policies staged.
type Stage struct {
	*staging.Sink
	config    Config
	manifests *source.Source // nil without a directory
}

// New returns a Stage. It fails if the directory cannot be read.
func New(c Config) (*Stage, error) {
	s := &Stage{config: c}
	s.Sink = staging.New(c.Enforced, staging.Config{Mode: c.Mode, Stage: controller.StageOf(c.Controller), Report: s.report})
	gauge := func(name, help string, value func() int) {
		c.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) }))
	}
	gauge("weavenpc_staged_policies", "Policies that are staged: judged, but not enforced.", func() int { return s.Counts().Staged })
	gauge("weavenpc_staged_faulty_policies", "Staged policies that are not judged as they are written; the log and an Event have the reason.",
		func() int { return s.Counts().Faulty })
	gauge("weavenpc_staged_refused_policies", "Policies that are enforced, or passed over if they are from --staged-manifests, although they ask to be staged.",
		func() int { return s.Counts().Refused })
	if c.Directory == "" {
		return s, nil
	}
	m, err := source.FromManifests(c.Directory, "", c.Log)
	if err != nil {
		return nil, errors.Wrap(err, "--staged-manifests")
	}
	s.manifests = &m
	gauge("weavenpc_staged_manifest_errors", "Files and directories of --staged-manifests whose present content does not count.", m.Errors)
	return s, nil
}

// Follow stages the policies of the directory until the context ends.
func (s *Stage) Follow(ctx context.Context) error {
	if s.manifests == nil {
		return nil
	}
	return s.manifests.Run(ctx, s.Apart(), s.config.Log.With("of", "--staged-manifests"))
}

// report logs a notice and passes it on.
func (s *Stage) report(n staging.Notice) {
	text, level := "a policy is staged", slog.LevelInfo
	if n.Wrong {
		text, level = "a policy is not staged as it asks for", slog.LevelWarn
	}
	s.config.Log.Log(context.Background(), level, text, "policy", n.Key.Policy(), "what", n.Text)
	s.config.Report(n)
}
