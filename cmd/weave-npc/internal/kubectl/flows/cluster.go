package flows

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/input"
	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
	"github.com/weave-npc/weave-npc/npc/source/apiclient"
)

// maxAsked is how many nodes are asked at a time.
const maxAsked = 16

// kubectl runs kubectl with what it needs to find the cluster.
type kubectl struct{ apiclient.Access }

// OfCluster returns the command that lists the connections of all nodes.
func OfCluster() *cobra.Command {
	var o options
	var k kubectl
	cmd := &cobra.Command{
		Use:   "flows",
		Short: "List the connections that weave-npc --record-flows has recorded on all nodes",
		Long: "List the connections that weave-npc --record-flows has recorded on all nodes, one line for all\n" +
			"connections from a workload to another one and one port. It runs kubectl exec on the pod of\n" +
			"weave-npc of each node. A connection that one node allowed and the other one denied is denied.\n" +
			"Two nodes may have seen the same connections, so that a count is the least that it can be. With\n" +
			"--follow, each node's records are printed as they come.",
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.runCluster(cmd.Context(), cmd.OutOrStdout(), spelling.NewWriter(cmd.ErrOrStderr()), k)
		},
	}
	f := cmd.Flags()
	o.register(f)
	input.RegisterAccess(f, &k.Access)
	return cmd
}

func (o *options) runCluster(ctx context.Context, out, stderr io.Writer, k kubectl) error {
	filter, err := o.prepare()
	if err != nil {
		return err
	}
	p := newPrinter(out, o.output.Name)
	if o.hits {
		h, failed := k.hits(ctx, stderr)
		if h == nil {
			return failed
		}
		if err := p.printHits(h); err != nil {
			return err
		}
		return failed
	}
	var mu sync.Mutex // guards found, p, all
	var found []flowlog.Record
	var all flowlog.Skipped
	take := func(r flowlog.Record) error {
		mu.Lock()
		defer mu.Unlock()
		if o.follow {
			return p.follow(r)
		}
		found = append(found, r)
		return nil
	}
	failed, err := k.askAll(ctx, stderr, o.follow, o.arguments(), func(in io.Reader) error {
		skipped, err := flowlog.Read(in, take)
		mu.Lock()
		defer mu.Unlock()
		all.Lines, all.First = all.Lines+skipped.Lines, cmp.Or(all.First, skipped.First)
		return err
	})
	noteSkipped(stderr, all)
	if err != nil {
		return err
	}
	if !o.follow {
		merged := slices.DeleteFunc(merge(found), func(r flowlog.Record) bool { return !filter.decided(&r) })
		if err := p.print(merged); err != nil {
			return err
		}
	}
	return failed
}

// askAll has read take what a command prints in the pod of each node, of many at a time, or of all if they run
// indefinitely. The error is that nothing was asked. failed is that some nodes did not answer; stderr names them.
func (k kubectl) askAll(ctx context.Context, stderr io.Writer, indefinitely bool, args []string,
	read func(io.Reader) error,
) (failed, err error) {
	pods, err := k.pods(ctx)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex // guards missing, stderr
	missing := 0
	var tasks errgroup.Group
	if !indefinitely {
		tasks.SetLimit(maxAsked)
	}
	for _, pod := range pods {
		tasks.Go(func() error {
			if err := k.ask(ctx, pod, args, read); err != nil && ctx.Err() == nil {
				mu.Lock()
				defer mu.Unlock()
				missing++
				fmt.Fprintln(stderr, "weave-npc: node "+pod.Spec.NodeName+":", err)
			}
			return nil
		})
	}
	_ = tasks.Wait() // the errors have been printed
	if missing > 0 {
		failed = errors.Errorf("%d of %d nodes did not report their connections", missing, len(pods))
	}
	return failed, nil
}

// arguments are those of the command on a node. What a record says of a verdict is known when those of all nodes are
// merged, unless they are followed.
func (o *options) arguments() []string {
	args := []string{"weave-npc", "flows", "--output=" + outputJSON}
	all := [][2]string{{"--from", o.query.from}, {"--to", o.query.to}, {"--port", o.query.port}}
	if o.follow {
		all = append(all, [2]string{"--verdict", o.query.verdict}, [2]string{"--staged-group", o.query.group})
	}
	for _, a := range all {
		if a[1] != "" {
			args = append(args, a[0]+"="+a[1])
		}
	}
	if o.query.since > 0 {
		args = append(args, "--since="+o.query.since.String())
	}
	if o.follow {
		args = append(args, "--follow", "--end-with-input")
	}
	return args
}

// pod is what is read of a pod of weave-npc.
type pod struct {
	Metadata struct{ Namespace, Name string }
	Spec     struct{ NodeName string }
	Status   struct{ Phase string }
}

// pods returns the pods of weave-npc that run.
func (k kubectl) pods(ctx context.Context) ([]pod, error) {
	cmd := k.command(ctx, "get", "pods", "--all-namespaces", "--selector="+input.Selector, "--output=json")
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	text, err := cmd.Output()
	if err != nil {
		return nil, failure("looking for the pods of weave-npc", err, &complaint)
	}
	var list struct{ Items []pod }
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, errors.Wrap(err, "reading the pods of weave-npc")
	}
	var running []pod
	for _, p := range list.Items {
		if p.Status.Phase == "Running" {
			running = append(running, p)
		}
	}
	if len(running) == 0 {
		return nil, errors.Errorf("no pod with the label %s runs", input.Selector)
	}
	return running, nil
}

// ask has read take what a command in a pod prints.
func (k kubectl) ask(ctx context.Context, p pod, args []string, read func(io.Reader) error) error {
	cmd := k.command(ctx, append([]string{"exec", "--stdin", "--namespace=" + p.Metadata.Namespace, p.Metadata.Name,
		"--container=" + input.Container, "--"}, args...)...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	if _, err := cmd.StdinPipe(); err != nil { // it ends with this process
		return errors.Wrap(err, "running kubectl")
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return errors.Wrap(err, "running kubectl")
	}
	if err := cmd.Start(); err != nil {
		return errors.Wrap(err, "running kubectl")
	}
	unreadable := read(out)
	_, _ = io.Copy(io.Discard, out) // so that it ends
	if err := cmd.Wait(); err != nil {
		return failure("asking pod "+p.Metadata.Namespace+"/"+p.Metadata.Name, err, &complaint)
	}
	return unreadable
}

func (k kubectl) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "kubectl", append(k.Arguments(), args...)...)
}

// logged is a line of the log that kubectl writes while it tries again; what it complains of is another line.
var logged = regexp.MustCompile(`(?m)^[EWI]\d{4} .*$`)

// failure returns what kubectl complained of, in one line.
func failure(doing string, err error, complaint *bytes.Buffer) error {
	if text := strings.Join(strings.Fields(logged.ReplaceAllString(complaint.String(), "")), " "); text != "" {
		return errors.Errorf("%s: %s", doing, text)
	}
	return errors.Wrap(err, doing)
}
