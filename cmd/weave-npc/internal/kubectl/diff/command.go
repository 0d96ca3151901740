package diff

import (
	"context"
	"fmt"
	"io"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/output"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/recordings"
	"github.com/weave-npc/weave-npc/npc/analysis/diff"
	"github.com/weave-npc/weave-npc/npc/analysis/replay"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

// options are the values of the flags.
type options struct {
	sources
	restrict diff.Options
	failOn   string
	limit    int
	flows    recordings.Recording
	output   cli.Format
}

// New returns the command.
func New() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use: "diff BEFORE AFTER",
		Short: "List which connections open and close between two states of a cluster, on which ports, " +
			"with the policy and rule that decide before and after",
		Long: "List which connections open and close between two states of a cluster, on which ports,\n" +
			"with the policy and rule that decide before and after.\n\n" +
			"BEFORE and AFTER are a directory or a file of manifests, whose workloads are pods; - for\n" +
			"standard input; a revision of git and a path in it, such as git:main:prod, or main:prod if no\n" +
			"file has that name; or cluster, for an API server. If only BEFORE is cluster, it is compared with\n" +
			"its state once AFTER is applied to it.\n\n" +
			"The exit status is 0 if nothing differs that --fail-on asks for, 1 if something does, and 2\n" +
			"after an error.",
		Args: twoStates,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.stdin, o.stderr = cmd.InOrStdin(), cmd.ErrOrStderr()
			return o.run(cmd.Context(), args[0], args[1], cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&o.base, "base", nil,
		"a further source of objects that both states have, unless they have their own; "+
			"given as BEFORE and AFTER are; repeatable")
	f.BoolVar(&o.prune, "prune", false,
		"take the policies of BEFORE or AFTER for the only ones in its namespaces, "+
			"whatever policies the cluster or --base has there")
	f.BoolVar(&o.allowEmpty, "allow-empty", false,
		"take a source without objects for an empty cluster, instead of for a mistake")
	f.StringVarP(&o.restrict.Either, "namespace", "n", "", "only what is from or to this namespace")
	f.StringVar(&o.restrict.From, "from-namespace", "", "only what is from pods of this namespace")
	f.StringVar(&o.restrict.To, "to-namespace", "", "only what is to pods of this namespace")
	f.StringVar(&o.failOn, "fail-on", onAny, "status 1 if connections open (opens), close (closes), or either (any)")
	cli.Values(f, "fail-on", onOpens, onCloses, onAny)
	f.IntVar(&o.limit, "limit", 200,
		"maximum number of groups that are listed for what opens, and for what closes; 0 for all; "+
			"json and html have all")
	o.flows.Register(f)
	o.output.Register(f, "text, markdown (for a pull request), json, junit, sarif, or html: one page",
		outputText, outputMarkdown, outputJSON, outputJUnit, outputSARIF, outputHTML)
	o.flags.RegisterServer(f)
	return cli.Answers(cmd)
}

// twoStates takes two arguments.
func twoStates(cmd *cobra.Command, args []string) error {
	missing := map[int]string{0: "BEFORE and AFTER are missing", 1: "AFTER is missing"}[len(args)]
	if len(args) > 2 {
		missing = fmt.Sprintf("%q is one too many", args[2])
	}
	if missing == "" {
		return nil
	}
	return errors.Errorf("%s: give two states, as in %s cluster ./manifests", missing, cmd.CommandPath())
}

func (o *options) check() error {
	if err := o.output.Check(); err != nil {
		return err
	}
	if o.failOn != onOpens && o.failOn != onCloses && o.failOn != onAny {
		return errors.Errorf("--fail-on: %q is none of opens, closes and any", o.failOn)
	}
	if o.limit < 0 {
		return errors.New("--limit: it must not be negative")
	}
	if o.flows.Given() {
		if o.output.Name != outputText && o.output.Name != outputJSON {
			return errors.Errorf("--flows: connections are listed as text or json, not as %s", o.output.Name)
		}
		if o.restrict != (diff.Options{}) {
			return errors.New("--flows: leave out the namespaces; " +
				"filter the recording, with weave-npc flows --from or --to")
		}
	}
	return o.flags.Check()
}

func (o *options) run(ctx context.Context, before, after string, out io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	cli.SaveMemory()
	var records []flowlog.Record
	if o.flows.Given() {
		var err error
		if records, err = o.flows.Read(o.stdin, o.stderr); err != nil {
			return err
		}
		o.stdin = o.flows.Rest(o.stdin)
	}
	w, err := o.read(ctx, before, after)
	if err != nil {
		return err
	}
	if o.flows.Given() {
		return o.replay(records, w, out)
	}
	for _, namespace := range []string{o.restrict.Either, o.restrict.From, o.restrict.To} {
		if w[0].View().CheckNamespace(namespace) != nil {
			if err := w[1].View().CheckNamespace(namespace); err != nil {
				return err
			}
		}
	}
	cli.Doing(o.stderr, "comparing the states: %d and %d pods", len(w[0].View().Pods), len(w[1].View().Pods))
	r := diff.Compare(w[0], w[1], o.restrict)
	for i, pod := range r.Omitted {
		if i == 3 {
			_, _ = fmt.Fprintf(o.stderr, "weave-npc: nor are %d more pods\n", len(r.Omitted)-i)
			break
		}
		_, _ = fmt.Fprintf(o.stderr, "weave-npc: pod %s is not compared: it owns none of its addresses\n", pod)
	}
	report := &report{Result: r, before: before, after: after, limit: o.limit, failOn: o.failOn}
	if err := report.write(out, o.output.Name); err != nil {
		return err
	}
	return o.answer(r.Opens.Len() > 0, r.Closes.Len() > 0)
}

// replay lists the recorded connections whose verdict differs.
func (o *options) replay(records []flowlog.Record, w [2]*cluster.Cluster, out io.Writer) error {
	changes := replay.Between(records, w[0], w[1])
	if err := output.Changes(out, o.output.Name, changes, len(records)); err != nil {
		return err
	}
	opens, closes := false, false
	for _, c := range changes {
		opens, closes = opens || c.After.Verdict == flowlog.Allowed, closes || c.After.Verdict == flowlog.Denied
	}
	return o.answer(opens, closes)
}

// answer returns cli.ErrNo if something differs that --fail-on asks for.
func (o *options) answer(opens, closes bool) error {
	if opens && o.failOn != onCloses || closes && o.failOn != onOpens {
		return cli.ErrNo
	}
	return nil
}
