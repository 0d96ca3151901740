package cli

import (
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	// variablePrefix begins the names of all variables that set flags.
	variablePrefix = "WEAVE_NPC_"
	// testPrefix begins the names of the variables of weave-npc's own tests.
	testPrefix = variablePrefix + "TEST_"
)

// Variable returns the environment variable as which a flag can be given.
func Variable(flag string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// setFromEnvironment sets those flags of a command that were not given from WEAVE_NPC_... variables, and refuses such
// variables that belong to no flag. The tree has all commands; its root is the daemon.
func setFromEnvironment(cmd, tree *cobra.Command) error {
	if !readsEnvironment(cmd) {
		return nil
	}
	if err := checkEnvironment(cmd, tree, os.Environ()); err != nil {
		return err
	}
	var err error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name := Variable(f.Name)
		value, ok := os.LookupEnv(name)
		if !ok || f.Changed || err != nil || !hasVariable(f) || ofService(name, value) {
			return
		}
		if e := cmd.Flags().Set(f.Name, value); e != nil {
			err = errors.New("$" + name + ": " + flagMistake(cmd, e))
		}
	})
	return err
}

// readsEnvironment reports whether the flags of a command can be given as variables.
func readsEnvironment(cmd *cobra.Command) bool {
	for c := cmd; c != nil; c = c.Parent() {
		switch c.Name() {
		case "version", "help", "completion", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd:
			return false
		}
	}
	return true
}

// hasVariable reports whether a flag can be given as a variable.
func hasVariable(f *pflag.Flag) bool { return f.Name != "help" && f.Name != "version" }

// checkEnvironment refuses variables ("NAME=value") that belong to no flag. The daemon accepts only its own flags;
// other commands may run in the daemon's environment, as by kubectl exec, and accept the flags of every command of the
// tree.
func checkEnvironment(cmd, tree *cobra.Command, environment []string) error {
	daemon := cmd.Name() == tree.Name() && !cmd.HasParent()
	known := map[string]string{} // variable -> path of a command that has it as a flag
	addVariables(known, tree)
	own := map[string]bool{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { own[Variable(f.Name)] = hasVariable(f) })
	var candidates, mistakes []string // candidates are without the common prefix
	for name := range known {
		if own[name] || cmd.HasParent() {
			candidates = append(candidates, strings.TrimPrefix(name, variablePrefix))
		}
	}
	for _, entry := range slices.Sorted(slices.Values(environment)) {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, variablePrefix) || strings.HasPrefix(name, testPrefix) || own[name] ||
			ofService(name, value) || known[name] != "" && !daemon {
			continue
		}
		mistakes = append(mistakes, variableMistake(cmd, name, known[name], candidates))
	}
	if len(mistakes) == 0 {
		return nil
	}
	return errors.New(strings.Join(mistakes, "; "))
}

// addVariables adds the flags of a command and of its subcommands.
func addVariables(known map[string]string, cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if name := Variable(f.Name); hasVariable(f) && known[name] == "" {
			known[name] = cmd.CommandPath()
		}
	})
	for _, sub := range cmd.Commands() {
		if readsEnvironment(sub) {
			addVariables(known, sub)
		}
	}
}

// variableMistake describes a variable that sets no flag of a command. The path of another command that has such a flag
// is in owner, the variables with similar names are in candidates.
func variableMistake(cmd *cobra.Command, name, owner string, candidates []string) string {
	shown := "$" + strings.Trim(strconv.QuoteToASCII(name), `"`)
	if owner != "" {
		return shown + ": a flag of " + owner + ", which " + cmd.CommandPath() + " does not have: unset it"
	}
	text := shown + ": no flag of " + cmd.CommandPath()
	if near := nearest(strings.TrimPrefix(name, variablePrefix), candidates); near != "" {
		return text + ": did you mean $" + variablePrefix + near + "?"
	}
	return text + ": unset it, or see " + cmd.CommandPath() + " --help"
}

// serviceVariable matches the names of the variables that Kubernetes gives to containers for a Service whose name
// begins with weave-npc.
var serviceVariable = regexp.MustCompile(`^WEAVE_NPC_(?:[A-Z0-9_]+?_)??(?:` +
	`(?P<address>SERVICE_HOST|PORT_\d+_(?:TCP|UDP|SCTP)_ADDR)|` +
	`(?P<number>SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT_\d+_(?:TCP|UDP|SCTP)_PORT)|` +
	`(?P<protocol>PORT_\d+_(?:TCP|UDP|SCTP)_PROTO)|` +
	`(?P<url>PORT(?:_\d+_(?:TCP|UDP|SCTP))?))$`)

// serviceURL matches the value of such a variable for a port.
var serviceURL = regexp.MustCompile(`^(?:tcp|udp|sctp)://.+:\d+$`)

// ofService reports whether Kubernetes sets a variable for a Service. It decides by the name and the value.
func ofService(name, value string) bool {
	m := serviceVariable.FindStringSubmatch(name)
	if m == nil {
		return false
	}
	has := func(group string) bool { return m[serviceVariable.SubexpIndex(group)] != "" }
	switch {
	case has("address"):
		_, err := netip.ParseAddr(value)
		return err == nil
	case has("number"):
		_, err := strconv.ParseUint(value, 10, 16)
		return err == nil
	case has("protocol"):
		return value == "tcp" || value == "udp" || value == "sctp"
	}
	return serviceURL.MatchString(value)
}
