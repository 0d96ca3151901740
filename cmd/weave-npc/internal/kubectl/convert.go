package kubectl

import (
	"fmt"
	"io"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/input"
	"github.com/weave-npc/weave-npc/npc/source/manifest"
)

func convertCommand() *cobra.Command {
	var path string
	manifests := input.ManifestsFlags{Path: &path}
	cmd := &cobra.Command{
		Use:   "convert -f FILE",
		Short: "Convert AdminNetworkPolicies and BaselineAdminNetworkPolicies to ClusterNetworkPolicies",
		Long: "Convert AdminNetworkPolicies and BaselineAdminNetworkPolicies to ClusterNetworkPolicies.\n\n" +
			"Those of tier Admin keep their priority, that of tier Baseline gets the last one. What cannot be converted\n" +
			"exactly is an error, and nothing is written.",
		Example: "  kubectl get adminnetworkpolicies,baselineadminnetworkpolicies -o yaml | " +
			"weave-npc convert -f - > policies.yaml",
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return convert(&manifests, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	manifests.Register(f, "directory or file to read the policies from, or - for standard input")
	return cli.Answers(cmd)
}

func convert(manifests *input.ManifestsFlags, stdin io.Reader, out, stderr io.Writer) error {
	if *manifests.Path == "" {
		return errors.New("--manifests is missing: give a directory or a file of policies, or - for standard input")
	}
	m, err := manifests.Open(stdin)
	if err != nil {
		return err
	}
	policies, notes, err := m.Former()
	if err != nil {
		return err
	}
	for _, note := range notes {
		_, _ = fmt.Fprintln(stderr, "weave-npc:", note)
	}
	texts := make([]string, len(policies))
	for i, p := range policies {
		if texts[i], err = written(p); err != nil {
			return err
		}
	}
	_, err = io.WriteString(out, strings.Join(texts, "---\n"))
	return errors.Wrap(err, "writing")
}

// written returns a policy as a user writes it, without the status that its type always has.
func written(p *v1alpha2.ClusterNetworkPolicy) (string, error) {
	type metadata struct {
		Name        string            `json:"name"`
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	text, err := yaml.Marshal(struct {
		APIVersion string                            `json:"apiVersion"`
		Kind       string                            `json:"kind"`
		Metadata   metadata                          `json:"metadata"`
		Spec       v1alpha2.ClusterNetworkPolicySpec `json:"spec"`
	}{v1alpha2.GroupVersion.String(), manifest.KindClusterNetworkPolicy,
		metadata{p.Name, p.Labels, p.Annotations}, p.Spec})
	return string(text), errors.Wrapf(err, "writing ClusterNetworkPolicy %s", p.Name)
}
