package main

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
	// variablePrefix is what the names of all variables that are flags begin with.
	variablePrefix = "WEAVE_NPC_"
	// testPrefix is what the names of variables of weave-npc's own tests begin with.
	testPrefix = variablePrefix + "TEST_"
)

// variable returns the environment variable that a flag can be given as.
func variable(f *pflag.Flag) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}

// fromEnvironment sets the flags of a command that were not given from WEAVE_NPC_... variables, and refuses such variables that are no flag's.
func fromEnvironment(cmd *cobra.Command) error {
	if !readsEnvironment(cmd) {
		return nil
	}
	if err := checkEnvironment(cmd, os.Environ()); err != nil {
		return err
	}
	var err error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name := variable(f)
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

// readsEnvironment reports whether a command is one of those whose flags can be given as variables.
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

// checkEnvironment refuses variables ("NAME=value") that nothing reads. The daemon itself refuses all that are not its own flags; other
// commands are run beside it, in its environment, and accept the flags of all.
func checkEnvironment(cmd *cobra.Command, environment []string) error {
	known := map[string]string{} // variable -> a command that has it as a flag
	addVariables(known, command())
	own := map[string]bool{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { own[variable(f)] = hasVariable(f) })
	var names, mistakes []string // names are without the prefix that all have
	for name := range known {
		if own[name] || cmd.HasParent() {
			names = append(names, strings.TrimPrefix(name, variablePrefix))
		}
	}
	for _, entry := range slices.Sorted(slices.Values(environment)) {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, variablePrefix) || strings.HasPrefix(name, testPrefix) || own[name] || ofService(name, value) ||
			known[name] != "" && (cmd.HasParent() || isPlugin(cmd)) {
			continue
		}
		mistakes = append(mistakes, variableMistake(cmd, name, known[name], names))
	}
	if len(mistakes) == 0 {
		return nil
	}
	return errors.New(strings.Join(mistakes, "; "))
}

// addVariables adds the flags of a command and of those below it.
func addVariables(known map[string]string, cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if name := variable(f); hasVariable(f) && known[name] == "" {
			known[name] = cmd.CommandPath()
		}
	})
	for _, sub := range cmd.Commands() {
		if readsEnvironment(sub) {
			addVariables(known, sub)
		}
	}
}

// variableMistake describes what is wrong with a variable that is not a flag of a command; of is another command that has it.
func variableMistake(cmd *cobra.Command, name, of string, names []string) string {
	shown := "$" + strings.Trim(strconv.QuoteToASCII(name), `"`)
	if of != "" {
		return shown + ": a flag of " + of + ", which " + cmd.CommandPath() + " does not have: unset it"
	}
	text := shown + ": no flag of " + cmd.CommandPath()
	if near := nearest(strings.TrimPrefix(name, variablePrefix), names); near != "" {
		return text + ": did you mean $" + variablePrefix + near + "?"
	}
	return text + ": unset it, or see " + cmd.CommandPath() + " --help"
}

// serviceVariable matches the names of the variables that Kubernetes gives to containers for a Service whose name begins with weave-npc.
var serviceVariable = regexp.MustCompile(`^WEAVE_NPC_(?:[A-Z0-9_]+?_)??(?:` +
	`(?P<address>SERVICE_HOST|PORT_\d+_(?:TCP|UDP|SCTP)_ADDR)|` +
	`(?P<number>SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT_\d+_(?:TCP|UDP|SCTP)_PORT)|` +
	`(?P<protocol>PORT_\d+_(?:TCP|UDP|SCTP)_PROTO)|` +
	`(?P<url>PORT(?:_\d+_(?:TCP|UDP|SCTP))?))$`)

// serviceURL matches what such a variable has for a port.
var serviceURL = regexp.MustCompile(`^(?:tcp|udp|sctp)://.+:\d+$`)

// ofService reports whether a variable is one that Kubernetes sets for a Service, by its name and its value.
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
