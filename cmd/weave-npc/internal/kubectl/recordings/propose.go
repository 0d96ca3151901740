package recordings

import (
	"fmt"
	"io"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/input"
	"github.com/weave-npc/weave-npc/npc/analysis/propose"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/policy/staged"
)

// proposer is propose with the values of its flags.
type proposer struct {
	Recording
	request   propose.Request
	path      string // of the manifests
	manifests input.ManifestsFlags
}

// Propose returns the command propose.
func Propose() *cobra.Command {
	p := &proposer{}
	p.manifests.Path = &p.path
	cmd := &cobra.Command{
		Use: "propose -n NAMESPACE --flows FILE",
		Short: "Propose network policies that allow the recorded connections of a namespace, " +
			"and nothing else that labels can distinguish from them",
		Long: "Propose network policies that allow the recorded connections of a namespace,\n" +
			"and nothing else that labels can distinguish from them.\n\n" +
			"Those count that were allowed and got a reply. Each workload that has some gets a policy for both\n" +
			"directions. " +
			"The comments of a rule name the connections that it is for. Nothing is applied.",
		Example: "  weave-npc propose -n shop --flows flows.jsonl > policies.yaml",
		Args:    cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.run(cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&p.request.Namespace, "namespace", "n", "", "namespace to propose policies for")
	p.Register(f)
	p.manifests.Register(f, "directory or file to read further pods and workloads, their named ports and the names of "+
		"present policies from, or - for standard input")
	f.IntVar(&p.request.Limit, "limit", 8,
		"maximum number of address ranges in a rule; a rule with both families may have two")
	f.BoolVar(&p.request.All, "all", false,
		"also propose policies that allow nothing, for workloads without connections that count")
	f.StringVar(&p.request.Group, "staged-group", "",
		"annotate the policies as staged in the group of this name, such as true; "+
			"then they are evaluated and not enforced")
	return cli.Answers(cmd)
}

// known reads the cluster of the manifests.
func (p *proposer) known(stdin io.Reader) (*cluster.View, error) {
	manifests, err := p.manifests.Open(stdin)
	if err != nil {
		return nil, err
	}
	objects, err := manifests.WithWorkloads()
	if err != nil {
		return nil, err
	}
	known := cluster.New()
	objects.Deliver(known)
	return known.View(), nil
}

func (p *proposer) run(in io.Reader, out, stderr io.Writer) (err error) {
	if p.request.Namespace == "" {
		return errors.New("--namespace is missing: name the namespace to propose policies for")
	}
	if p.request.Group != "" {
		if _, is, problem := staged.Read(map[string]string{staged.Annotation: p.request.Group}); !is {
			return errors.Errorf("--staged-group: %s", problem)
		}
	}
	if p.request.Records, err = p.Read(in, stderr); err != nil {
		return err
	}
	if p.path != "" {
		if p.request.Known, err = p.known(p.Rest(in)); err != nil {
			return err
		}
	}
	policies, without, err := p.request.Policies()
	if err != nil {
		return err
	}
	if len(without) > 0 {
		_, _ = fmt.Fprintf(stderr, "weave-npc: without a policy, "+
			"for lack of connections that were allowed and got a reply: %s; "+
			"--all proposes to deny them everything\n", strings.Join(without, "; "))
	}
	var texts []string
	for _, made := range policies {
		texts = append(texts, made.Text)
	}
	_, err = io.WriteString(out, strings.Join(texts, "---\n"))
	return errors.Wrap(err, "writing")
}
