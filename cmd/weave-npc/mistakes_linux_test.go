package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/rootcmd"
)

func TestMistakesAreAnswered(t *testing.T) {
	cases := []struct {
		name, args, env, want string
		code                  int
	}{
		{"flag", "--pod-interfac cni0", "", "unknown flag: --pod-interfac: did you mean --pod-interface?; see weave-npc --help", 1},
		{"flag with a value", "--nodename=a", "", "unknown flag: --nodename: did you mean --node-name?; see weave-npc --help", 1},
		{"part of a flag", "--cidr 10.0.0.0/8", "", "unknown flag: --cidr: did you mean --pod-cidr?; see weave-npc --help", 1},
		{"one dash", "-node-name a", "", "unknown flag: -node-name: did you mean --node-name?; see weave-npc --help", 1},
		{"nothing near", "--frobnicate", "", "unknown flag: --frobnicate; see weave-npc --help", 1},
		{"flag of a subcommand", "show matrix --prot tcp/80", "",
			"unknown flag: --prot: did you mean --port?; see weave-npc show matrix --help", 2},
		{"flag of explain", "explain --form a", "", "unknown flag: --form: did you mean --from?; see weave-npc explain --help", 2},
		{"no value", "--node-name", "", "--node-name: a value is missing; see weave-npc --help", 1},
		{"bool", "--allow-mcast=maybe", "", `--allow-mcast: "maybe" is neither true nor false; see weave-npc --help`, 1},
		{"number", "--nflog-group 70000", "", `--nflog-group: "70000" is no number from 0 to 65535; see weave-npc --help`, 1},
		{"whole number", "--max-list-size 1.5", "", `--max-list-size: "1.5" is no whole number; see weave-npc --help`, 1},
		{"list of numbers", "--counted-ports http", "",
			`--counted-ports: "http" is no list of numbers such as 80,443; see weave-npc --help`, 1},
		{"list", `--pod-cidr "a`, "", `--pod-cidr: "\"a" is no list such as a,b; see weave-npc --help`, 1},
		{"address", "--node-name n --metrics-addr 6781", "",
			`--metrics-addr: "6781" is no address and port such as :6781 or 127.0.0.1:6781`, 1},
		{"port", "--node-name n --pprof-addr 127.0.0.1:70000", "",
			`--pprof-addr: "127.0.0.1:70000" is no address and port such as :6781 or 127.0.0.1:6781`, 1},
		{"range", "--node-name n --pod-cidr 10.0.0.0/33", "", `--pod-cidr: "10.0.0.0/33" is no CIDR such as 10.32.0.0/24`, 1},
		{"helper", "--node-name n --allow-helpers ftp,-j", "", `--allow-helpers: "-j" is no name of a helper such as ftp`, 1},
		{"empty helper", "--node-name n --allow-helpers ftp,,sip", "",
			`--allow-helpers: "" is no name of a helper such as ftp`, 1},
		{"action that a hook makes useless", "--node-name n --forward-jump=false --allow-action RETURN", "",
			"--allow-action: RETURN has no effect with --forward-jump=false, where the CNI drops what returns: leave it out", 1},
		{"command", "shwo", "", `unknown command "shwo" for "weave-npc": did you mean show?; see weave-npc --help`, 1},
		{"command below another", "show matrics", "",
			`unknown command "matrics" for "weave-npc show": did you mean matrix?; see weave-npc show --help`, 2},
		{"command with a flag", "explian -f x", "", `unknown command "explian" for "weave-npc": did you mean explain?; see weave-npc --help`, 1},
		{"command below another with a flag", "show matrics --port 80", "",
			`unknown command "matrics" for "weave-npc show": did you mean matrix?; see weave-npc show --help`, 2},
		{"value apart from its flag", "--allow-mcast false", "",
			`"false" is no command: the value of a flag that is true or false is given as --FLAG=false`, 1},
		{"argument", "show pods shop", "",
			`"shop" is one too many: weave-npc show pods takes flags only; see weave-npc show pods --help`, 2},
		{"value apart from a flag of a command", "flows --follow false", "",
			`"false" is no command: the value of a flag that is true or false is given as --FLAG=false`, 1},
		{"directory for a file", "replay -f testdata/shop --flows testdata/shop", "",
			"--flows: testdata/shop is a directory: name a file in it", 2},
		{"empty path", "explain --manifests= --from a/b --to c/d --port 80", "",
			`--manifests: "" is refused: give a directory, a file, or - for standard input; see weave-npc explain --help`, 2},
		{"negative limit", "check testdata/shop --limit -1", "", "--limit: it must not be negative", 2},
		{"no state", "diff", "", "BEFORE and AFTER are missing: give two states, as in weave-npc diff cluster ./manifests", 2},
		{"one state", "diff shop", "", "AFTER is missing: give two states, as in weave-npc diff cluster ./manifests", 2},
		{"three states", "diff a b c", "", `"c" is one too many: give two states, as in weave-npc diff cluster ./manifests`, 2},
		{"no API server", "show pods", "KUBECONFIG=none", "no API server is known: give --kubeconfig FILE or --manifests DIR", 2},
		{"no API server for diff", "diff cluster testdata/shop", "KUBECONFIG=none", "no API server is known: give --kubeconfig FILE", 2},
		{"variable", "", "WEAVE_NPC_POD_INTERFAC=cni0", "$WEAVE_NPC_POD_INTERFAC: no flag of weave-npc: did you mean $WEAVE_NPC_POD_INTERFACE?", 1},
		{"variable that nothing is near", "", "WEAVE_NPC_ZZ=1", "$WEAVE_NPC_ZZ: no flag of weave-npc: unset it, or see weave-npc --help", 1},
		{"variable of another command", "", "WEAVE_NPC_CONTEXT=prod",
			"$WEAVE_NPC_CONTEXT: a flag of weave-npc check, which weave-npc does not have: unset it", 1},
		{"misspelt variable of a subcommand", "show pods", "WEAVE_NPC_NAMESPCE=shop",
			"$WEAVE_NPC_NAMESPCE: no flag of weave-npc show pods: did you mean $WEAVE_NPC_NAMESPACE?", 2},
		{"value of a variable", "", "WEAVE_NPC_MAX_LIST_SIZE=many",
			`$WEAVE_NPC_MAX_LIST_SIZE: --max-list-size: "many" is no whole number`, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if name, value, ok := strings.Cut(c.env, "="); ok {
				t.Setenv(name, value)
			}
			out, code := execute(t, strings.Fields(c.args)...)
			if want := "weave-npc: " + c.want + "\n"; out != want || code != c.code {
				t.Errorf("it ends with %d and prints\n%swant %d\n%s", code, out, c.code, want)
			}
		})
	}
}

// TestVariablesOfServicesAreNoFlags sets the variable that Kubernetes gives to containers for a Service called
// weave-npc. By its name, it is a flag of explain and show matrix.
func TestVariablesOfServicesAreNoFlags(t *testing.T) {
	t.Setenv("WEAVE_NPC_PORT", "tcp://10.96.0.7:6781")
	out, code := execute(t, "explain", "--manifests", "testdata/shop", "--from", "shop/web", "--to", "shop/db", "--port", "tcp/5432")
	if code != 1 {
		t.Errorf("explain ends with %d\n%s", code, out)
	}
	matrix, code := execute(t, "show", "matrix", "--manifests", "testdata/shop")
	if code != 2 || strings.Contains(matrix, "10.96") {
		t.Errorf("the Service's address is the port that is asked for: %d\n%s", code, matrix)
	}
}

// TestOtherCommandsRunAlongsideTheDaemon runs them in its environment, as by kubectl exec.
func TestOtherCommandsRunAlongsideTheDaemon(t *testing.T) {
	t.Setenv("WEAVE_NPC_POD_INTERFACE", "cni0")
	t.Setenv("WEAVE_NPC_TEST_COMMAND", "x")
	if out, code := execute(t, "show", "pods", "--manifests", "testdata/shop"); code != 0 {
		t.Errorf("show ends with %d\n%s", code, out)
	}
	kubectl := rootcmd.Plugin()
	kubectl.SetArgs([]string{})
	kubectl.SetOut(io.Discard)
	if err := kubectl.Execute(); err != nil {
		t.Errorf("the plug-in refuses it: %v", err)
	}
	t.Setenv("WEAVE_NPC_TYPO", "x")
	for _, args := range [][]string{{"version"}, {"--version"}, {"--help"}, {"completion", "bash"}, {"__complete", "sh"}} {
		if out, code := execute(t, args...); code != 0 || out == "" {
			t.Errorf("%v ends with %d for a variable that it does not read\n%s", args, code, out)
		}
	}
}

// TestNotesHaveTheNameOfTheProgram by which the user called it.
func TestNotesHaveTheNameOfTheProgram(t *testing.T) {
	for name, root := range map[string]*cobra.Command{"weave-npc": rootcmd.Command(), "kubectl npc": rootcmd.Plugin()} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			root.SetArgs([]string{"show", "pods", "-f", "testdata/workloads"})
			root.SetOut(io.Discard)
			root.SetErr(&stderr)
			if err := root.Execute(); err != nil || !strings.HasPrefix(stderr.String(), name+": 3 pods have") {
				t.Errorf("%v, %s", err, &stderr)
			}
		})
	}
}

func TestVersionIsAFlagToo(t *testing.T) {
	want, _ := execute(t, "version")
	if got, code := execute(t, "--version"); got != want || code != 0 || !strings.HasPrefix(got, "weave-npc ") {
		t.Errorf("--version prints %q and ends with %d, version prints %q", got, code, want)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out, code := execute(t, "completion", shell); code != 0 || !strings.Contains(out, "weave-npc") {
			t.Errorf("completion %s ends with %d and %d bytes", shell, code, len(out))
		}
	}
	for args, want := range map[string]string{
		"--fail-closed ":        "auto never always",
		"--allow-action ":       "ACCEPT RETURN",
		"--iptables-backend ":   "nft legacy",
		"--log-level ":          "debug info warning error",
		"--log-format ":         "text json",
		"show matrix --output ": "table json html",
		"show sets -o ":         "table json",
		"explain --staged ":     "off namespaces all",
		"explain --output ":     "text json yaml",
		"--node-name ":          "",
		"--metrics":             "--metrics-addr",
		"show po":               "pods policies",
	} {
		if got := completed(t, args); got != want {
			t.Errorf("%q is completed by %q, not by %q", args, got, want)
		}
	}
}

// completed returns the words that a shell offers for the last one.
func completed(t *testing.T, line string) string {
	t.Helper()
	var out bytes.Buffer
	root := rootcmd.Command()
	root.SetArgs(append([]string{"__complete"}, strings.Split(line, " ")...))
	root.SetOut(&out)
	root.SetErr(&bytes.Buffer{})
	if err := root.Execute(); err != nil {
		t.Errorf("%s: %v", line, err)
	}
	var words []string
	for l := range strings.Lines(out.String()) {
		if word, _, _ := strings.Cut(strings.TrimSpace(l), "\t"); !strings.HasPrefix(word, ":") {
			words = append(words, word)
		}
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}
