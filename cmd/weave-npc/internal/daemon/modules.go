package daemon

import (
	"context"
	"io"
	"time"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/daemon/httpserver"
	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/enforce/host"
)

// modulesInterval is the pause between two looks at what the kernel lacks.
const modulesInterval = 5 * time.Second

// failingLooks is how many looks find that the kernel refuses something before it is found out what the kernel lacks.
const failingLooks = 3

// awaitModules waits until the kernel has the modules without which no policy can be enforced, and serves meanwhile why
// the node is not ready. It returns failure, with which weave-npc could not start, if that has another reason, and nil
// once the kernel has them or the context ends.
func (o *options) awaitModules(ctx context.Context, stderr io.Writer, failure error) error {
	if !errors.Is(failure, ipset.ErrUnsupported) && !iptables.IsTableMissing(failure) {
		return failure // what Lacking tries would disturb those who read the tables
	}
	log, config, err := o.validate(stderr)
	if err != nil {
		return failure
	}
	backend, _, err := iptables.Detect(ctx, o.backend)
	if err != nil {
		return failure
	}
	families := host.Families()
	lack, err := host.Lacking(ctx, backend, families)
	if err != nil || lack.Enforces {
		return failure
	}
	if o.dryRun {
		return errors.New(lack.String())
	}
	log.Error("weave-npc cannot start yet", "why", lack.String(), "err", failure)
	if _, client, err := open(o, config.NodeName, log); err == nil {
		newEventReporter(ctx, client, config.NodeName).Lacking(lack.String())
	}
	server, err := httpserver.Listen("--metrics-addr", o.metricsAddr, newRegistry(), lack.String, lack.String)
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Run(serving, log)
	}()
	defer func() { <-served }()
	defer stop()
	if wait.PollUntilContextCancel(ctx, modulesInterval, false, func(ctx context.Context) (bool, error) {
		now, err := host.Lacking(ctx, backend, families)
		return err == nil && now.Enforces, nil
	}) == nil {
		log.Info("the kernel has the modules that it lacked")
	}
	return nil
}

// followModules finds out what the kernel lacks while it refuses something, for /readyz and the log.
func (d *daemon) followModules(ctx context.Context) error {
	for failing := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(modulesInterval):
		}
		if !d.syncer.Fails() {
			d.lack.Store(nil)
			failing = 0
			continue
		}
		if failing++; failing < failingLooks { // some failures pass
			continue
		}
		lack, err := host.Lacking(ctx, d.backend, d.families)
		switch {
		case err != nil: // the syncer reports what fails
			continue
		case len(lack.Modules) == 0:
			d.lack.Store(nil)
			continue
		}
		if was := d.lack.Swap(&lack); was == nil || was.String() != lack.String() {
			d.log.Error("policies cannot be enforced", "why", lack.String())
			d.reporter.Lacking(lack.String())
		}
	}
}
