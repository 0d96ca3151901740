package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

const page = "../../docs/relay.md"

// TestFlagsAreExplained in docs/relay.md, with their defaults.
func TestFlagsAreExplained(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	explained := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| (?:`([^`]*)`)? *\\|").FindAllStringSubmatch(string(text), -1) {
		explained[row[1]] = row[2]
	}
	root := command()
	check := func(f *pflag.Flag) {
		def := strings.Trim(f.DefValue, "[]")
		if got, ok := explained[f.Name]; !ok || got != def {
			t.Errorf("--%s: the page has %q, the default is %q", f.Name, got, def)
		}
		delete(explained, f.Name)
	}
	root.Flags().VisitAll(check)
	for _, c := range root.Commands() {
		c.Flags().VisitAll(check)
	}
	for name := range explained {
		t.Errorf("there is no flag --%s", name)
	}
}

func TestMistakesAreSaidInOneLine(t *testing.T) {
	for _, c := range []struct {
		name, want string
		args       []string
	}{
		{"an_account_without_a_namespace", `--agent "weave-npc": want NAMESPACE/NAME of a service account`, []string{"--agent=weave-npc"}},
		{"an_account_of_too_much", `--agent "a/b/c": want NAMESPACE/NAME of a service account`, []string{"--agent=a/b/c"}},
		{"no_account", "--agent: want at least one service account", []string{"--agent="}},
		{"no_audience", "--audience must not be empty", []string{"--audience="}},
		{"a_negative_time", "--ready-after not negative", []string{"--ready-after=-1s"}},
		{"a_level", `--log-level "loud": want debug, info, warn or error`, []string{"--log-level=loud"}},
		{"no_such_kubeconfig", "kubeconfig /none: no such file", []string{"--kubeconfig=/none"}},
		{"an_argument", "unknown command", []string{"more"}},
		{"days", "--days 0: want 1 to 3650", []string{"certificate", "--days=0"}},
		{"nothing_to_trust", "reading what agents go on to trust; --trusted names it", []string{"certificate", "--trusted=/none"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := command()
			root.SetArgs(c.args)
			err := root.ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error: %v", err)
			}
		})
	}
}
