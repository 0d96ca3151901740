package completion

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	sourcetest "github.com/weave-npc/weave-npc/test/source"
)

// kubeconfig writes one for a server that answers with two namespaces and the pods of one, and returns its path.
func kubeconfig(t *testing.T) string {
	t.Helper()
	list := func(kind, items string) string {
		return `{"apiVersion":"v1","kind":"` + kind + `","metadata":{"resourceVersion":"1"},"items":[` + items + `]}`
	}
	_, config := sourcetest.Answers(t, map[string]string{
		"/api/v1/namespaces":           list("NamespaceList", `{"metadata":{"name":"ops"}},{"metadata":{"name":"shop"}}`),
		"/api/v1/namespaces/shop/pods": list("PodList", `{"metadata":{"name":"web-1"}},{"metadata":{"name":"db-0"}}`),
	})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	sourcetest.WriteFile(t, path, "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}},"+
		" {name: 'arn:aws:eks:eu-1:7:cluster/x', context: {cluster: c, user: u}}, {name: 'a $(b)', context: {cluster: c, user: u}}]\n"+
		"clusters: [{name: c, cluster: {server: '"+config.Host+"'}}]\nusers: [{name: u, user: {}}]\n")
	return path
}

// TestWhatIsOffered for flags and for a first argument, of manifests and of an API server, and that nothing is said
// where nothing is known.
func TestWhatIsOffered(t *testing.T) {
	manifests := sourcetest.WriteFiles(t, map[string]string{
		"a.yaml": sourcetest.Pod("web", ""),
		"b.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: empty}\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: api, namespace: shop}\n" +
			"spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}\n",
	})
	broken := sourcetest.WriteFiles(t, map[string]string{"a.yaml": sourcetest.Pod("web", ""), "b.yaml": "kind: ["})
	cluster := kubeconfig(t)
	for _, c := range []struct{ name, line, want string }{
		{"namespaces", "ask -f " + manifests + " -n ", "empty shop :4"},
		{"a_namespace", "ask -f " + manifests + " -n sh", "shop :4"},
		{"ends", "ask -f " + manifests + " --from ", "empty/ shop/ :6"},
		{"pods", "ask -f " + manifests + " --to shop/", "shop/api shop/web :4"},
		{"a_pod", "ask -f " + manifests + " --to shop/w", "shop/web :4"},
		{"an_argument", "ask -f " + manifests + " shop/", "shop/api shop/web :4"},
		{"a_second_argument", "ask -f " + manifests + " shop/web ", ":4"},
		{"no_such_namespace", "ask -f " + manifests + " --to none/", ":4"},
		{"broken_manifests", "ask -f " + broken + " --to ", "shop/ :6"},
		{"no_manifests", "ask -f /nonexistent --to ", ":6"},
		{"standard_input", "ask -f - --to ", ":6"},
		{"namespaces_of_a_server", "ask --kubeconfig " + cluster + " -n ", "ops shop :4"},
		{"ends_of_a_server", "ask --kubeconfig " + cluster + " --to ", "ops/ shop/ :6"},
		{"pods_of_a_server", "ask --kubeconfig " + cluster + " --to shop/", "shop/db-0 shop/web-1 :4"},
		{"a_server_that_refuses", "ask --kubeconfig " + cluster + " --to ops/", ":4"},
		{"no_such_context", "ask --kubeconfig " + cluster + " --context x --to ", ":6"},
		{"contexts", "ask --kubeconfig " + cluster + " --context ", "arn:aws:eks:eu-1:7:cluster/x c :4"},
		{"no_kubeconfig", "ask --kubeconfig /nonexistent --context ", ":4"},
		{"another_command", "other --from ", ":0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := offered(t, c.line); got != c.want {
				t.Errorf("%q is offered, not %q", got, c.want)
			}
		})
	}
}

// offered returns what is offered for the last word of a line, in order, with cobra's directive.
func offered(t *testing.T, line string) string {
	t.Helper()
	root := &cobra.Command{Use: "tool"}
	ask := &cobra.Command{Use: "ask NAMESPACE/POD", Run: func(*cobra.Command, []string) {}}
	for _, name := range []string{"from", "to", contextFlag, kubeconfigFlag} {
		ask.Flags().String(name, "", "")
	}
	ask.Flags().StringP(manifestsFlag, "f", "", "")
	ask.Flags().StringP("namespace", "n", "", "")
	other := &cobra.Command{Use: "other", Run: func(*cobra.Command, []string) {}}
	other.Flags().String("from", "", "")
	root.AddCommand(ask, other)
	if err := Prepare(root); err != nil {
		t.Fatal(err)
	}
	var out, said bytes.Buffer
	root.SetArgs(append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Split(line, " ")...))
	root.SetOut(&out)
	root.SetErr(&said)
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(said.String(), "rror") {
		t.Errorf("it says %q", said.String())
	}
	words := strings.Fields(out.String())
	slices.Sort(words[:len(words)-1])
	return strings.Join(words, " ")
}

// TestCompletionIsPrompt checks that completion does not wait for what is not known soon.
func TestCompletionIsPrompt(t *testing.T) {
	started := time.Now()
	never := lister(func(context.Context, inputs, string) ([]string, bool) { select {} })
	names, _ := never.within(t.Context(), 50*time.Millisecond, inputs{}, "")
	if took := time.Since(started); len(names) > 0 || took > 10*time.Second || timeout > 2*time.Second {
		t.Errorf("%q after %s, and the timeout is %s", names, took, timeout)
	}
}

// TestOnlyWhatCanBeTypedIsOffered: a name never becomes a command of the shell.
func TestOnlyWhatCanBeTypedIsOffered(t *testing.T) {
	got := fitting([]string{"a", "a b", "a\tb", "a\n:4", "a$(id)", "a`id`", "a;id", "a'b", "a\x1b[2J", "aé", "a.b-c/d:e_f", "b"}, "a")
	if want := []string{"a", "a.b-c/d:e_f"}; !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}
