package apiclient

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sourcetest "github.com/weave-npc/weave-npc/test/source"
)

const kubeconfigText = `apiVersion: v1
kind: Config
current-context: c
contexts:
- {name: c, context: {cluster: k, user: u}}
clusters:
- {name: k, cluster: {server: "https://192.0.2.1:6443", insecure-skip-tls-verify: true}}
users:
- {name: u, user: {token: t}}
`

func TestClientErrorsAreOneLineWithTheWayOut(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"garbage", "{{{", []string{"KUBECONFIG", "cannot be read", "--kubeconfig"}},
		{"empty", "", []string{"KUBECONFIG", "no contexts", "--kubeconfig"}},
		{"no current-context", strings.Replace(kubeconfigText, "current-context: c\n", "", 1),
			[]string{"KUBECONFIG", "no current-context", "use-context"}},
		{"unknown context", strings.Replace(kubeconfigText, "current-context: c\n", "current-context: d\n", 1),
			[]string{"KUBECONFIG", `"d"`, "--kubeconfig"}},
		{"no cluster", strings.Replace(kubeconfigText, "cluster: k,", "", 1), []string{"KUBECONFIG", "--kubeconfig"}},
		{"address that is none", strings.Replace(kubeconfigText, "192.0.2.1:6443", "192.0.2.1:6443:x", 1), []string{"KUBECONFIG", "making a client"}},
		{"missing certificate", strings.Replace(kubeconfigText, "user: {token: t}", "user: {client-certificate: c.pem,"+
			" client-key: k.pem}", 1), []string{"KUBECONFIG", "c.pem"}},
		{"missing", "-", []string{"KUBECONFIG", "no such file", "--kubeconfig"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config")
			if test.text != "-" {
				sourcetest.WriteFile(t, path, test.text)
			}
			_, _, err := New(path, "1.0")
			checkLine(t, err, path, test.want)
		})
	}
}

func TestClientOutsideACluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBERNETES_SERVICE_PORT", "")
	_, _, err := New("", "1.0")
	checkLine(t, err, "", []string{"KUBERNETES_SERVICE_HOST", "--kubeconfig", "--manifests"})
}

func TestClientInAClusterWithoutServiceAccount(t *testing.T) {
	if _, err := os.Stat("/var/run/secrets/kubernetes.io/serviceaccount/token"); err == nil {
		t.Fatal("this test must not run in a pod with a service account")
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	_, _, err := New("", "1.0")
	checkLine(t, err, "", []string{"service account", "/var/run/secrets", "--kubeconfig"})
}

func checkLine(t *testing.T, err error, path string, want []string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %q", err)
	}
	for _, w := range want {
		if w = strings.ReplaceAll(w, "KUBECONFIG", path); !strings.Contains(err.Error(), w) {
			t.Errorf("%q lacks %q", err, w)
		}
	}
}

func TestClient(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	sourcetest.WriteFile(t, path, kubeconfigText)
	client, config, err := New(path, "1.2.3")
	if err != nil || client == nil {
		t.Fatal(err)
	}
	if config.Host != "https://192.0.2.1:6443" || config.UserAgent != "weave-npc/1.2.3" ||
		config.ContentType != "application/vnd.kubernetes.protobuf" ||
		!strings.Contains(config.AcceptContentTypes, "application/json") {
		t.Errorf("%+v", config)
	}
}

// TestClientForUsers shows where the commands that a user runs look for an API server, and what they answer if there is
// none.
func TestClientForUsers(t *testing.T) {
	two := strings.Replace(kubeconfigText, "contexts:\n", "contexts:\n- {name: d, context: {cluster: gone, user: u}}\n", 1)
	for _, test := range []struct {
		name, flag, variable, context string
		want                          []string // what the error has; nil for a client
	}{
		{"the flag", two, "{{{", "", nil},
		{"the variable", "", two, "", nil},
		{"a context by name", two, "", "c", nil},
		{"a context whose cluster is missing", two, "", "d", []string{"no API server is known", "--kubeconfig"}},
		{"an unknown context", two, "", "e", []string{"reading the kubeconfig", `"e"`, "--kubeconfig"}},
		{"garbage", "{{{", "", "", []string{"reading the kubeconfig", "--kubeconfig"}},
		{"an address that is none", strings.Replace(kubeconfigText, "192.0.2.1:6443", "192.0.2.1:6443:x", 1), "", "", []string{"making a client"}},
		{"nothing at all", "", "", "", []string{"no API server is known", "--kubeconfig FILE"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("HOME", dir)
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			write := func(name, text string) string {
				if text == "" {
					return ""
				}
				path := filepath.Join(dir, name)
				sourcetest.WriteFile(t, path, text)
				return path
			}
			t.Setenv("KUBECONFIG", write("variable", test.variable))
			client, _, err := ForUser(Access{Kubeconfig: write("flag", test.flag), Context: test.context}, "1.0")
			if test.want != nil {
				checkLine(t, err, "", test.want)
			} else if err != nil || client.CoreV1().RESTClient().Get().URL().Host != "192.0.2.1:6443" {
				t.Errorf("%v, %v", client, err)
			}
		})
	}
}

// TestNamespaceOfUser is that of the context, if it names one.
func TestNamespaceOfUser(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	sourcetest.WriteFile(t, path, strings.Replace(kubeconfigText, "contexts:\n", "contexts:\n- {name: d, context: {cluster: k, user: u, namespace: shop}}\n", 1))
	for context, want := range map[string]string{"": "", "c": "", "d": "shop", "none": ""} {
		if got := NamespaceOfUser(Access{Kubeconfig: path, Context: context}); got != want {
			t.Errorf("context %q: %q, want %q", context, got, want)
		}
	}
}

// TestAccess is by the cluster, the user and the impersonated ones of the flags, also for kubectl.
func TestAccess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	text := strings.Replace(kubeconfigText, "clusters:\n", "clusters:\n- {name: l, cluster: {server: \"https://192.0.2.2:6443\"}}\n", 1)
	sourcetest.WriteFile(t, path, text+"- {name: v, user: {token: other}}\n")
	a := Access{Kubeconfig: path, Cluster: "l", User: "v", As: "ann", Groups: []string{"a", "b"}, Timeout: "7"}
	_, got, err := ForUser(a, "1.0")
	if err != nil || got.Host != "https://192.0.2.2:6443" || got.BearerToken != "other" || got.Timeout != 7*time.Second ||
		got.Impersonate.UserName != "ann" || strings.Join(got.Impersonate.Groups, " ") != "a b" {
		t.Errorf("%+v, %v", got, err)
	}
	if got := strings.Join(a.Arguments(), " "); got != "--kubeconfig="+path+
		" --cluster=l --user=v --as=ann --request-timeout=7 --as-group=a --as-group=b" {
		t.Error(got)
	}
	other := filepath.Join(t.TempDir(), "pod.yaml")
	sourcetest.WriteFile(t, other, "apiVersion: v1\nkind: Pod\n")
	for _, tc := range []struct {
		change func(*Access)
		want   string
	}{
		{func(a *Access) { a.Timeout = "soon" }, `--request-timeout: "soon" is no time such as 30s or 2m`},
		{func(a *Access) { a.Kubeconfig = other }, "its kind is Pod, not Config"},
		{func(a *Access) { a.Cluster = "none" }, `"none"`},
		{func(a *Access) { a.User = "none" }, `"none"`},
		{func(a *Access) { a.As = "" }, "impersonat"},
	} {
		a := a
		tc.change(&a)
		_, _, err := ForUser(a, "1.0")
		checkLine(t, err, "", []string{tc.want})
	}
}
