// Command conformance runs Kubernetes' own NetworkPolicy specs (test/e2e/network/netpol) against a cluster, several at
// a time, each in a process of its own, and sums up what came of them.
package main

import (
	"flag"
	"os/signal"
	"regexp"

	"github.com/onsi/ginkgo/v2/types"
	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/weave-npc/weave-npc/test/controlplane/conformance/cluster"
	"github.com/weave-npc/weave-npc/test/controlplane/conformance/command"
	"github.com/weave-npc/weave-npc/test/controlplane/conformance/report"
)

// runLabel is on all namespaces that the test framework makes, with the run that made them.
const runLabel = "e2e-run"

// options are the values of the flags.
type options struct {
	kubeconfig, dir string
	focus           *regexp.Regexp
	procs           int
	sctp            bool
	spec, run, file string // of the process that runs one spec
}

func main() {
	command.Main(run)
}

// run carries out the arguments and returns the exit status.
func run(args []string) (int, error) {
	o, err := parse(args)
	if err != nil {
		return command.Usage, err
	}
	all, err := load(o.kubeconfig, o.run)
	if err != nil {
		return command.Usage, err
	}
	if o.spec != "" {
		return runSpec(o.spec, o.file), nil
	}
	return o.conduct(all)
}

// parse reads the arguments. If they ask for help, it is printed, and the error is flag.ErrHelp.
func parse(args []string) (*options, error) {
	var o options
	// A flag set of this command's own: the default one is full of the flags of Ginkgo and Kubernetes.
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` whose current context is the cluster")
	focus := flags.String("focus", "", "run only the specs whose full names match this regular `expression`")
	flags.StringVar(&o.dir, "report", ".cache/conformance", "`directory` for the report")
	flags.IntVar(&o.procs, "procs", 4, "`number` of specs that run at a time")
	flags.BoolVar(&o.sctp, "sctp", false, "run the specs that need SCTP sockets in the nodes' kernels too")
	flags.StringVar(&o.spec, "spec", "", "run the spec of this `name` in this process "+
		"(used by the command itself, as are -run and -json)")
	flags.StringVar(&o.run, "run", string(uuid.NewUUID()), "`label` of the namespaces that are made")
	flags.StringVar(&o.file, "json", "", "`file` for Ginkgo's report of -spec")
	err := command.Parse(flags, args)
	switch {
	case err != nil:
		return nil, err
	case o.procs < 1:
		return nil, errors.Errorf("PROCS (-procs) is %d; at least one spec runs at a time", o.procs)
	}
	o.focus, err = regexp.Compile(*focus)
	return &o, errors.Wrap(err, "FOCUS (-focus) is no regular expression")
}

// choose splits the specs that match into those that run and those that are skipped.
func choose(all []types.SpecReport, focus *regexp.Regexp, sctp bool) (run, skip []types.SpecReport) {
	for _, spec := range all {
		switch {
		case !focus.MatchString(spec.FullText()):
		case needsSCTP(spec) && !sctp:
			skip = append(skip, report.Skip(spec, "needs SCTP sockets in the nodes' kernels; SCTP=1 runs it"))
		default:
			run = append(run, spec)
		}
	}
	return run, skip
}

// conduct runs the specs that match, prints the outcome of each as it ends, and reports.
func (o *options) conduct(all []types.SpecReport) (int, error) {
	run, skip := choose(all, o.focus, o.sctp)
	switch {
	case len(run)+len(skip) == 0:
		return command.Usage, errors.Errorf("none of the %d specs matches FOCUS=%s "+
			"(docs/conformance.md lists their names)",
			len(all), o.focus)
	case len(run) == 0:
		return command.Usage, errors.Errorf("all %d specs that match FOCUS=%s need SCTP sockets "+
			"in the nodes' kernels; SCTP=1 runs them", len(skip), o.focus)
	}
	// Listing the specs left Ginkgo listening for signals, which would keep a second one from ending this process.
	signal.Reset(unix.SIGINT, unix.SIGTERM)
	ctx, stop := command.Interruptible()
	defer stop()
	c, err := cluster.Connect(ctx, o.kubeconfig)
	if err != nil {
		return command.Usage, err
	}
	r, err := newRunner(o, run, skip)
	if err != nil {
		return command.Usage, err
	}
	r.Print("Kubernetes %s at %s, nodes: %d. Specs of Kubernetes %s, %d at a time; their pods run %s.\n",
		c.Version, c.Config.Host, c.Nodes, suiteVersion(), o.procs, podImage())
	if len(skip) > 0 {
		r.Print("Skipped, for want of SCTP sockets in the nodes' kernels: %d specs; SCTP=1 runs them.\n", len(skip))
	}
	defer command.Announce(ctx, stop, "removing the namespaces of this run (interrupt again to leave them)")()
	return r.Conclude(r.runAll(ctx), func() error { return c.Cleanup(runLabel + "=" + o.run) }, r.close)
}
