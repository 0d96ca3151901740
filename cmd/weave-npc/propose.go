package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/npc/propose"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// proposeOptions are the values of the flags of propose.
type proposeOptions struct {
	recording
	request   propose.Request
	manifests string
}

func proposeCommand() *cobra.Command {
	o := &proposeOptions{}
	cmd := &cobra.Command{
		Use:   "propose -n NAMESPACE --flows FILE",
		Short: "Proposes network policies that allow the recorded connections of a namespace, and nothing else that labels can tell from them",
		Long: "Proposes network policies that allow the recorded connections of a namespace, and nothing else that labels can tell from them.\n" +
			"Those count that were allowed and got a reply. Each workload that has some gets a policy for both directions.\n" +
			"The comments of a rule name the connections that it is for. Nothing is applied.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&o.request.Namespace, "namespace", "n", "", "namespace to propose policies for")
	o.recording.register(f)
	registerManifests(f, &o.manifests)
	f.Lookup("manifests").Usage = "directory to read further pods, their named ports and the names of present policies from"
	f.IntVar(&o.request.Limit, "limit", 8, "maximum number of address ranges in a rule; a rule with both families may have two")
	f.BoolVar(&o.request.All, "all", false, "also propose policies that allow nothing, for workloads without connections that count")
	return cmd
}

func (o *proposeOptions) run(in io.Reader, out, stderr io.Writer) (err error) {
	if o.request.Namespace == "" {
		return errors.New("--namespace is missing: name the namespace to propose policies for")
	}
	if o.request.Records, err = o.read(in); err != nil {
		return err
	}
	if o.manifests != "" {
		objects, err := snapshot.Load(o.manifests)
		if err != nil {
			return err
		}
		o.request.Known = (&cluster{}).of(objects).View()
	}
	policies, without, err := o.request.Policies()
	if err != nil {
		return err
	}
	if len(without) > 0 {
		_, _ = fmt.Fprintf(stderr, "weave-npc: without a policy, for lack of connections that were allowed and got a reply: %s; "+
			"--all proposes to deny them everything\n", strings.Join(without, "; "))
	}
	var texts []string
	for _, p := range policies {
		texts = append(texts, p.Text)
	}
	_, err = io.WriteString(out, strings.Join(texts, "---\n"))
	return errors.Wrap(err, "writing")
}
