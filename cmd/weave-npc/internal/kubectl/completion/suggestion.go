package completion

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// timeout is how long objects are waited for.
const timeout = 2 * time.Second

// most is how many objects of a kind are asked for.
const most = 500

// Prepare makes shells complete the flags of a command and of its subcommands that name objects of a cluster, where
// others say which cluster.
func Prepare(cmd *cobra.Command) error {
	for _, sub := range cmd.Commands() {
		if err := Prepare(sub); err != nil {
			return err
		}
	}
	if cmd.Flag(manifestsFlag) == nil || cmd.Flag(contextFlag) == nil {
		return nil
	}
	for name, complete := range map[string]lister{"from": endpoints, "to": endpoints, "namespace": namespaces,
		"from-namespace": namespaces, "to-namespace": namespaces, contextFlag: contexts} {
		if cmd.Flag(name) == nil {
			continue
		}
		if err := cmd.RegisterFlagCompletionFunc(name, complete.function()); err != nil {
			return err
		}
	}
	if cmd.ValidArgsFunction == nil && strings.Contains(cmd.Use, " NAMESPACE/POD") {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string,
		) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return lister(endpoints).function()(cmd, args, typed)
		}
	}
	return nil
}

// lister lists the names of objects that may complete what is typed. They are prefixes if more follows each.
type lister func(ctx context.Context, w inputs, typed string) (names []string, prefixes bool)

// function returns how a flag is completed by a lister.
func (l lister) function() cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx := cmd.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		names, prefixes := l.within(ctx, timeout, inputsOf(cmd), typed)
		directive := cobra.ShellCompDirectiveNoFileComp
		if prefixes {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		return names, directive
	}
}

// within returns what is known within some time. What reads on ends with the program.
func (l lister) within(ctx context.Context, limit time.Duration, w inputs, typed string) ([]string, bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	type answer struct {
		names    []string
		prefixes bool
	}
	answers := make(chan answer, 1)
	go func() {
		names, prefixes := l(ctx, w, typed)
		answers <- answer{names, prefixes}
	}()
	select {
	case a := <-answers:
		return fitting(a.names, typed), a.prefixes
	case <-ctx.Done():
		return nil, false
	}
}

// fitting returns the names that begin with what is typed, and can be typed.
func fitting(names []string, typed string) (fit []string) {
	odd := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"'`$\\;&|<>(){}*?!", r) }
	for _, n := range names {
		if strings.HasPrefix(n, typed) && !strings.ContainsFunc(n, odd) {
			fit = append(fit, n)
		}
	}
	return fit
}

// namespaces lists namespaces.
func namespaces(ctx context.Context, w inputs, _ string) ([]string, bool) {
	return w.namespaces(ctx), false
}

// endpoints lists namespaces, and after one and a slash its pods.
func endpoints(ctx context.Context, w inputs, typed string) (names []string, prefixes bool) {
	namespace, _, slash := strings.Cut(typed, "/")
	if !slash {
		for _, n := range w.namespaces(ctx) {
			names = append(names, n+"/")
		}
		return names, true
	}
	for _, n := range w.pods(ctx, namespace) {
		names = append(names, namespace+"/"+n)
	}
	return names, false
}

// contexts lists the contexts of the kubeconfig.
func contexts(_ context.Context, w inputs, _ string) ([]string, bool) {
	return w.access.Contexts(), false
}
