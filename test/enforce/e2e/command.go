package e2e

import (
	"bytes"
	"context"
	"testing"

	"github.com/weave-npc/weave-npc/test/lab"
)

// Feed runs a command with a text as its standard input.
func Feed(t *testing.T, n *lab.Node, text, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	cmd := n.Command(ctx, name, args...)
	cmd.Stdin = bytes.NewReader([]byte(text))
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %v on %s: %v\n%s\n%s", name, args, n, err, output, text)
	}
}

// Run runs a command on a host.
func Run(t *testing.T, h *lab.Host, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	output, err := h.Command(ctx, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v on %s: %v\n%s", name, args, h, err, output)
	}
	return string(output)
}

// Unprivileged returns what runs a command as a container's are run that is given NET_ADMIN and NET_RAW, and no new privileges.
func Unprivileged() []string {
	return []string{"setpriv", "--no-new-privs", "--bounding-set", "-all,+net_admin,+net_raw", "--inh-caps", "-all"}
}

// Execute runs weave-npc on a node until it ends.
func Execute(t *testing.T, n *lab.Node, env []string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	return ExecuteBinary(t, Command(), n, env, args...)
}

// ExecuteBinary runs a weave-npc of a given path, as Execute does.
func ExecuteBinary(t *testing.T, binary string, n *lab.Node, env []string, args ...string) (stdout, stderr string,
	status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*Timeout)
	defer cancel()
	var out, errs Output
	cmd := n.Command(ctx, binary, args...)
	cmd.Args[0] = "weave-npc"
	cmd.Env = append(append(cmd.Env, "HOSTNAME="), env...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("weave-npc %v does not end\n%s", args, errs.String())
	}
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.All(), errs.All(), cmd.ProcessState.ExitCode()
}
