// Command tiers runs the conformance suite of ClusterNetworkPolicy, of the module sigs.k8s.io/network-policy-api,
// against a cluster, and sums up what came of it.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/pkg/errors"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/network-policy-api/conformance"
	upstream "sigs.k8s.io/network-policy-api/conformance/apis/v1alpha1"

	"github.com/weave-npc/weave-npc/test/controlplane/conformance/cluster"
	"github.com/weave-npc/weave-npc/test/controlplane/conformance/command"
)

// runArgument is the first argument of the process that runs the suite for this command.
const runArgument = "run-plan"

// options are the values of the flags.
type options struct {
	selection
	kubeconfig, dir, image, version string
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == runArgument {
		runSuite(os.Args[2], os.Args[3:])
	}
	command.Main(run)
}

// run carries out the arguments and returns the exit status.
func run(args []string) (int, error) {
	o, err := parse(args)
	if err != nil {
		return command.Usage, err
	}
	all, err := listSubtests(conformance.Manifests, experimentalTests())
	if err != nil {
		return command.Usage, err
	}
	return o.conduct(all)
}

// parse reads the arguments. If they ask for help, it is printed, and the error is flag.ErrHelp.
func parse(args []string) (*options, error) {
	var o options
	flags := flag.NewFlagSet("tiers", flag.ContinueOnError)
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` whose current context is the cluster")
	focus := flags.String("focus", "", "run only the tests with a subtest whose name matches this regular `expression`")
	flags.StringVar(&o.dir, "report", ".cache/conformance/clusternetworkpolicy", "`directory` for the report")
	flags.BoolVar(&o.sctp, "sctp", false, "run the subtests that need SCTP sockets in the nodes' kernels too")
	flags.BoolVar(&o.experimental, "experimental", false, "run the tests of experimental fields too")
	flags.StringVar(&o.image, "image", "", "`image` of the pods instead of the suite's; it needs /agnhost")
	flags.StringVar(&o.version, "version", "unknown", "`version` of weave-npc, for the report")
	err := command.Parse(flags, args)
	if err != nil {
		return nil, err
	}
	o.focus, err = regexp.Compile(*focus)
	return &o, errors.Wrap(err, "FOCUS (-focus) is no regular expression")
}

// conduct runs the selected subtests, prints the outcome of each as it ends, and reports.
func (o *options) conduct(all []subtest) (int, error) {
	run, skip := o.choose(all)
	switch {
	case len(run)+len(skip) == 0:
		return command.Usage, errors.Errorf("none of the %d subtests matches FOCUS=%s "+
			"(docs/conformance.md lists their tests)",
			len(all), o.focus)
	case len(run) == 0:
		return command.Usage, errors.Errorf("every one of the %d subtests that match FOCUS=%s %s",
			len(skip), o.focus, o.why(skip[0]))
	}
	ctx, stop := command.Interruptible()
	defer stop()
	c, err := cluster.Connect(ctx, o.kubeconfig)
	if err != nil {
		return command.Usage, err
	}
	client, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		return command.Usage, errors.Wrapf(err, "%s cannot be used", o.kubeconfig)
	}
	k, err := findKind(ctx, client, c.Config.Host, c.Nodes, o.experimental)
	if err != nil {
		return command.Usage, err
	}
	r, err := newRecorder(o, run, skip)
	if err != nil {
		return command.Usage, err
	}
	about := fmt.Sprintf("Kubernetes %s at %s, nodes: %d; resource definition of %s, channel %s. "+
		"Suite of %s %s, %d subtests of %d; their pods run %s.", c.Version, c.Config.Host, c.Nodes, k.bundle, k.channel,
		suiteModule, suiteVersion(), len(run), len(all), podImage(o.image))
	for _, line := range append([]string{about}, o.leftOut(skip, len(all)-len(run)-len(skip))...) {
		r.Print("%s\n", line)
	}
	defer command.Announce(ctx, stop, "removing what the suite made (interrupt again to leave it)")()
	return r.Conclude(r.run(ctx, o.plan(all, run, skip, about)), func() error { return k.cleanup(c) }, r.close)
}

// leftOut says what was left out and why, a line for each reason.
func (o *options) leftOut(skip []subtest, unmatched int) []string {
	var order []string
	count := map[string]int{}
	for _, s := range skip {
		why := o.why(s)
		if count[why] == 0 {
			order = append(order, why)
		}
		count[why]++
	}
	for i, why := range order {
		order[i] = fmt.Sprintf("Skipped: %d subtests. Each %s.", count[why], why)
	}
	if unmatched > 0 {
		order = append(order, fmt.Sprintf("Left out: %d subtests that do not match FOCUS=%s.", unmatched, o.focus))
	}
	return order
}

// plan returns what the process that runs the suite has to know, but for the file of the report.
func (o *options) plan(all, run, skip []subtest, about string) *plan {
	lines := append([]string{about}, o.leftOut(skip, len(all)-len(run)-len(skip))...)
	if len(lines) > 1 {
		lines = append(lines, "A test without all of its subtests counts as skipped unless it failed.")
	}
	p := &plan{Kubeconfig: o.kubeconfig, Image: o.image, SCTP: o.sctp, Experimental: o.experimental,
		Summary: strings.Join(lines, " "),
		Run:     map[string]int{}, All: map[string]int{}, Implementation: upstream.Implementation{
			Organization: "weave-npc", Project: "weave-npc", Version: o.version,
			URL:                   "https://github.com/weave-npc/weave-npc",
			Contact:               []string{"https://github.com/weave-npc/weave-npc/issues"},
			AdditionalInformation: "https://github.com/weave-npc/weave-npc/blob/main/docs/conformance.md",
		}}
	for _, s := range all {
		p.All[s.test]++
	}
	for _, s := range run {
		p.Run[s.test]++
	}
	return p
}
