package input

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/npc/policy/staged"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
	"github.com/weave-npc/weave-npc/npc/source/staging"
)

// stagedFlags are the values of the flags with which commands answer as if staged policies were applied.
type stagedFlags struct {
	mode, group string
	ofNodes     bool // the mode is that of the nodes
}

// Register registers --staged.
func (o *stagedFlags) Register(f *pflag.FlagSet) {
	f.StringVar(&o.mode, "staged", "",
		"--staged of weave-npc on the nodes, by which policies annotated "+staged.Annotation+" are not enforced: "+
			"off, namespaces or all (default: as they run; for manifests off; with --staged-group all)")
	var values []string
	for _, m := range staged.Modes {
		values = append(values, string(m))
	}
	cli.Values(f, "staged", values...)
}

// RegisterGroup registers --staged-group.
func (o *stagedFlags) RegisterGroup(f *pflag.FlagSet) {
	f.StringVar(&o.group, "staged-group", "",
		"answer as if the staged policies of this group were applied; it is their value of "+staged.Annotation)
}

// Check returns an error if the values are wrong by themselves.
func (o *stagedFlags) Check() error {
	switch {
	case o.mode != "" && !slices.Contains(staged.Modes[:], staged.Mode(o.mode)):
		return errors.Errorf("--staged: %q is none of off, namespaces and all", o.mode)
	case o.mode == string(staged.Off) && o.group != "":
		return errors.New("--staged-group: nothing is staged with --staged=off; leave out one of them")
	}
	return nil
}

// staged returns which kinds of policies are staged.
func (o *stagedFlags) staged() staged.Mode {
	switch {
	case o.mode != "":
		return staged.Mode(o.mode)
	case o.group != "":
		return staged.All
	}
	return staged.Off
}

// Staged is objects without the staged policies, or as if those of a group were applied.
type Staged struct {
	Objects snapshot.Objects

	mode   staged.Mode
	group  string
	groups *staging.Groups
}

// Apply applies the flags to all objects of a cluster. Policies that are not what their annotations ask for are noted
// in stderr.
func (o *stagedFlags) Apply(all snapshot.Objects, stderr io.Writer) (Staged, error) {
	if err := o.Check(); err != nil {
		return Staged{}, err
	}
	r := Staged{Objects: all, mode: o.staged(), group: o.group}
	if r.mode == staged.Off {
		r.Objects.StagedEnforced = o.mode != "" // it was given, or the nodes run so
		switch n := staging.Annotated(all); {
		case n == 0:
		case o.ofNodes:
			_, _ = fmt.Fprintf(stderr, "weave-npc: %s for enforced: the nodes run without --staged\n", annotated(n))
		case o.mode == "":
			_, _ = fmt.Fprintf(stderr, "weave-npc: %s for enforced, as nodes do without --staged: "+
				"give --staged=namespaces or all if they run with it\n", annotated(n))
		}
		r.groups = &staging.Groups{Enforced: all}
		return r, nil
	}
	r.groups = staging.Read(all, r.mode)
	for _, n := range r.groups.Refused {
		note(stderr, n.Key, n.Problem)
	}
	for _, p := range r.groups.Staged {
		if p.Problem != "" && (o.group == "" || o.group == p.Group) {
			note(stderr, p.Key, p.Problem)
		}
	}
	r.Objects = r.groups.Enforced
	if o.group == "" {
		return r, nil
	}
	var err error
	r.Objects, err = r.groups.In(o.group)
	return r, errors.Wrap(err, "--staged-group")
}

// ApplyOnly applies the only staged group, if none was asked for. It is an error if there are several.
func (r *Staged) ApplyOnly(stderr io.Writer) (err error) {
	names := r.groups.Names()
	switch {
	case r.group != "" || len(names) == 0:
		return nil
	case len(names) > 1:
		return errors.Errorf("--staged-group is missing, and policies are staged in several: give %s",
			strings.Join(names, " or "))
	}
	r.group = names[0]
	_, _ = fmt.Fprintf(stderr, "weave-npc: the staged policies of group %s are applied, the only group\n", r.group)
	r.Objects, err = r.groups.In(r.group)
	return err
}

func annotated(n int) string {
	if n == 1 {
		return "1 policy is annotated " + staged.Annotation + " and is taken"
	}
	return fmt.Sprintf("%d policies are annotated %s and are taken", n, staged.Annotation)
}

func note(stderr io.Writer, key staged.Key, text string) {
	kind := "policy"
	if key.Namespace == "" {
		kind = "ClusterNetworkPolicy"
	}
	_, _ = fmt.Fprintf(stderr, "weave-npc: %s %s: %s\n", kind, key.Policy(), text)
}

// RegisterAllNamespaces registers --all-namespaces as kubectl has it, for a command that shows all without --namespace.
func RegisterAllNamespaces(cmd *cobra.Command) {
	cmd.Flags().BoolP("all-namespaces", "A", false, "all namespaces, as without --namespace")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if f := cmd.Flags(); f.Changed("namespace") && f.Changed("all-namespaces") {
			return errors.New("--namespace and --all-namespaces: give one of them")
		}
		return nil
	}
}
