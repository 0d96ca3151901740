package check

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/input"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/output/findings"
	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc/analysis/check/expectation"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// readCluster is the argument that stands for the objects of an API server.
const readCluster = "cluster"

// What check does, by --only.
const (
	onlyExpectations = "expectations"
	onlyLint         = "lint"
)

const (
	// formatYAML is the format that has the manifests of counterexamples alone.
	formatYAML = "yaml"
	// formatGitHub is that whose lines are commands.
	formatGitHub = "github"
)

// options are the values of the flags.
type options struct {
	input.ObjectFlags
	output cli.Format
	only   string
	failOn string
	limit  int
}

// New returns the command check.
func New() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use: "check [MANIFESTS|cluster] [EXPECTATIONS...]",
		Short: "Check whether policies do what is expected of them, for pods that could exist too, " +
			"and find what is probably wrong with them",
		Long: "Check whether policies do what is expected of them, and find what is probably wrong with them.\n" +
			"MANIFESTS is a directory, a file, or - for standard input. Without it, or with cluster, the\n" +
			"objects of an API server are checked.\n" +
			"EXPECTATIONS are files, or directories with files, such as: shop/web reaches shop/db on\n" +
			"tcp/5432, dev/* never reaches prod/*. Without them, those that are among the manifests count.\n" +
			"What never or always happens is proved for all pods that could exist; one pod stands for all\n" +
			"that no policy distinguishes. A counterexample is printed with its pods.\n\n" +
			"The exit status is 0 if all expectations hold and nothing is found that --fail-on asks for, 1 if\n" +
			"not, and 2 after an error.",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Stdin = cmd.InOrStdin()
			return o.run(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.only, "only", "", "check only expectations, or only lint: what is probably wrong with policies")
	cli.Values(f, "only", onlyExpectations, onlyLint)
	f.StringVar(&o.failOn, "fail-on", findings.Error.String(),
		"exit with status 1 from this level on: error, which broken expectations are, "+
			"warning or note; or never")
	cli.Values(f, "fail-on", findings.Levels()...)
	f.IntVar(&o.limit, "limit", 1000, "findings to print at most, the gravest ones; 0 prints all")
	o.output.Register(f,
		"text, json, junit, sarif, markdown, github, "+
			"or yaml: only the pods that break expectations, for kubectl apply -f -",
		append(findings.Formats(), formatYAML)...)
	o.RegisterAll(f)
	return cli.Answers(cmd)
}

func (o *options) run(ctx context.Context, args []string, out, stderr io.Writer) error {
	level, err := o.check()
	if err != nil {
		return err
	}
	cli.SaveMemory()
	files, err := o.read(args, stderr)
	if err != nil {
		return err
	}
	read, err := o.Preview(ctx, stderr)
	if err != nil {
		return err
	}
	all := read.Objects
	if o.only == onlyExpectations {
		input.NoteWorkloads(stderr, all)
	} else { // what is not used is among the findings
		input.NoteWorkloads(stderr, snapshot.Objects{Notes: all.Notes})
	}
	input.NoteClusterPolicies(stderr, all)
	report, manifests, err := o.find(ctx, all, files, stderr)
	if err != nil {
		return err
	}
	if o.output.Name == formatYAML {
		_, err = io.WriteString(out, manifests)
	} else {
		err = o.write(report, level, out)
	}
	switch {
	case err != nil:
		return errors.Wrap(err, "writing the report")
	case report.Failed(level):
		return cli.ErrNo
	}
	return nil
}

// check checks the values of flags.
func (o *options) check() (findings.Level, error) {
	if err := o.output.Check(); err != nil {
		return 0, err
	}
	if o.only != "" && o.only != onlyExpectations && o.only != onlyLint {
		return 0, errors.Errorf("--only: %q is neither %s nor %s", o.only, onlyExpectations, onlyLint)
	}
	if o.limit < 0 {
		return 0, errors.New("--limit: it must not be negative")
	}
	level, err := findings.ParseLevel(o.failOn)
	return level, errors.Wrap(err, "--fail-on")
}

// read takes the manifests from the arguments, and returns the expectations.
func (o *options) read(args []string, stderr io.Writer) (files []expectation.File, err error) {
	switch {
	case len(args) > 0 && args[0] == "":
		return nil, errors.New("MANIFESTS is empty: give a directory, a file, - for standard input, or cluster")
	case len(args) > 0 && args[0] == readCluster:
		if o.Manifests != "" {
			return nil, errors.New("cluster and --manifests: give one of them")
		}
		args = args[1:]
	case len(args) > 0 && o.Manifests == "" && len(o.Access.Arguments()) == 0:
		o.Manifests, args = args[0], args[1:]
	}
	if o.only == onlyLint {
		return nil, nil
	}
	if slices.Contains(args, snapshot.StandardInput) && o.Manifests == snapshot.StandardInput {
		return nil, errors.New("only one of MANIFESTS and EXPECTATIONS can be standard input")
	}
	for _, path := range args {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && path != snapshot.StandardInput {
			return nil, errors.Errorf("expectations %s do not exist: name a file or a directory", spelling.Escape(path))
		}
		found, skipped, err := readExpectations(path, o.Stdin)
		if err != nil {
			return nil, err
		}
		for _, s := range skipped {
			note(stderr, "%s", s)
		}
		if len(found) == 0 {
			return nil, errors.Errorf("%s: there is no document with apiVersion %s and kind %s", spelling.Escape(path),
				expectation.APIVersion, expectation.Kind)
		}
		files = append(files, found...)
	}
	if len(args) == 0 && o.Manifests != "" && o.Manifests != snapshot.StandardInput {
		if files, _, err = readExpectations(o.Manifests, nil); err != nil { // the manifests say what is skipped
			return nil, err
		}
	}
	if len(files) == 0 && o.only == onlyExpectations {
		return nil, errors.New("there are no expectations; give files with them after the manifests")
	}
	return files, nil
}

// find checks expectations, and looks for what is wrong.
func (o *options) find(ctx context.Context, all snapshot.Objects, files []expectation.File, stderr io.Writer,
) (r *findings.Report, manifests string, err error) {
	v := o.Cluster(all).View()
	r = &findings.Report{Version: cli.Version(), Suite: onlyExpectations}
	if o.only != onlyLint {
		r.Rules = rules()
		if files, err = o.through(ctx, files); err != nil {
			return nil, "", err
		}
		var t tally
		for _, f := range files {
			of, err := t.cases(v, f, stderr)
			if err != nil {
				return nil, "", err
			}
			r.Cases = append(r.Cases, of...)
		}
		manifests = t.manifests
	}
	if o.only != onlyExpectations {
		cli.Doing(stderr, "looking for what is wrong with %d policies", len(all.Policies)+len(all.ClusterPolicies))
		n, err := o.Entrances(ctx)
		if err != nil {
			return nil, "", err
		}
		for _, what := range n.Unreadable {
			note(stderr, "which Services policies close is not checked for all: %s", spelling.Escape(what))
		}
		r.Rules = append(r.Rules, lintRules()...)
		r.Findings = lintFindings(all, v, n)
	}
	return r, manifests, nil
}

// through returns the expectations with the pods and ports behind Services.
func (o *options) through(ctx context.Context, files []expectation.File) (out []expectation.File, err error) {
	for _, f := range files {
		if f.NamesServices() {
			n, err := o.Network(ctx)
			if err != nil {
				return nil, err
			}
			if len(n.Unreadable) > 0 {
				return nil, errors.Errorf("finding the Services that %s names: %s", f.Path, strings.Join(n.Unreadable, "; "))
			}
			if err := f.Through(n.Services); err != nil {
				return nil, err
			}
		}
		out = append(out, f)
	}
	return out, nil
}

func (o *options) write(r *findings.Report, level findings.Level, out io.Writer) error {
	if o.output.Name == formatGitHub {
		out = cli.Raw(out)
	}
	dir, err := os.Getwd()
	if err != nil {
		return errors.Wrap(err, "finding the working directory")
	}
	return r.Write(out, findings.Options{Format: o.output.Name, Limit: o.limit, FailOn: level, Dir: dir})
}

// note writes a sentence to the user.
func note(stderr io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(stderr, "weave-npc: "+format+"\n", args...)
}
