package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/observe/dedup"
	"github.com/weave-npc/weave-npc/npc/policy/staged"
	"github.com/weave-npc/weave-npc/npc/source"
	"github.com/weave-npc/weave-npc/npc/source/staging"
)

// stageConfig is what stagedPolicies depend on.
type stageConfig struct {
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

// stagedPolicies is a sink that has annotated policies staged: evaluated alongside the enforced ones. It reports those
// that are not as their annotations ask, in the log, as Events and as metrics. What staged policies would do with
// connections is reported by the recorder.
type stagedPolicies struct {
	*staging.Sink
	config    stageConfig
	manifests *source.Source // nil without a directory
	notices   *dedup.Log[notice, string, staging.Notice]
}

// notice is what notices have in common that are repeats of each other: who may edit a policy may stage it again and
// again.
type notice struct{ policy, text string }

// newStage returns the sink of some policies. It fails if the directory cannot be read.
func newStage(c stageConfig) (*stagedPolicies, error) {
	s := &stagedPolicies{config: c}
	s.notices = dedup.New[notice](s.line, func(number int, most string) {
		c.Log.Warn("policies are staged, or not, too often to be named", "not_logged", number, "most_in", most)
	})
	s.Sink = staging.New(c.Enforced, staging.Config{Mode: c.Mode, Stage: controller.StageOf(c.Controller),
		Report: s.report})
	gauge(c.Registry, "weavenpc_staged_policies", "Policies that are staged: evaluated, but not enforced.",
		func() int { return s.Counts().Staged })
	gauge(c.Registry, "weavenpc_staged_faulty_policies",
		"Staged policies that are not evaluated as they are written; the log and an Event have the reason.",
		func() int { return s.Counts().Faulty })
	gauge(c.Registry, "weavenpc_staged_rejected_policies",
		"Policies that are enforced, or passed over if they are from --staged-manifests, "+
			"although they ask to be staged.",
		func() int { return s.Counts().Refused })
	if c.Directory == "" {
		return s, nil
	}
	m, err := source.FromManifests(c.Directory, "", c.Log)
	if err != nil {
		return nil, errors.Wrap(err, "--staged-manifests")
	}
	s.manifests = &m
	gauge(c.Registry, "weavenpc_staged_manifest_errors",
		"Files and directories of --staged-manifests whose present content does not count.", m.Errors)
	return s, nil
}

// Follow stages the policies of the directory, and logs repeated notices, until the context ends.
func (s *stagedPolicies) Follow(ctx context.Context) error {
	var tasks errgroup.Group
	if s.manifests != nil {
		tasks.Go(func() error { return s.manifests.Run(ctx, s.Apart(), s.config.Log.With("of", "--staged-manifests")) })
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return tasks.Wait()
		case now := <-tick.C:
			s.notices.SumUp(now)
		}
	}
}

func (s *stagedPolicies) report(n staging.Notice) {
	s.notices.Add(notice{n.Key.Policy(), n.Text}, n.Key.Namespace, n, 1, time.Now())
}

// line logs a notice, with its repeats if there are any, and passes the first one on.
func (s *stagedPolicies) line(n staging.Notice, number int, within time.Duration) {
	text, level := "a policy is staged", slog.LevelInfo
	if n.Wrong {
		text, level = "a policy is not staged as it asks for", slog.LevelWarn
	}
	args := []any{"policy", n.Key.Policy(), "what", n.Text}
	if number > 0 {
		args = append(args, "repeats", number, "within", within.Round(time.Second))
	} else {
		s.config.Report(n)
	}
	s.config.Log.Log(context.Background(), level, text, args...)
}
