package source

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
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
		{"missing certificate", strings.Replace(kubeconfigText, "user: {token: t}", "user: {client-certificate: c.pem,"+
			" client-key: k.pem}", 1), []string{"KUBECONFIG", "c.pem"}},
		{"missing", "-", []string{"KUBECONFIG", "no such file", "--kubeconfig"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config")
			if test.text != "-" {
				writeFile(t, path, test.text)
			}
			_, _, err := Client(path, "1.0")
			checkLine(t, err, path, test.want)
		})
	}
}

func TestClientOutsideACluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBERNETES_SERVICE_PORT", "")
	_, _, err := Client("", "1.0")
	checkLine(t, err, "", []string{"KUBERNETES_SERVICE_HOST", "--kubeconfig", "--manifests"})
}

func TestClientInAClusterWithoutServiceAccount(t *testing.T) {
	if _, err := os.Stat("/var/run/secrets/kubernetes.io/serviceaccount/token"); err == nil {
		t.Fatal("this test must not run in a pod with a service account")
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	_, _, err := Client("", "1.0")
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
	writeFile(t, path, kubeconfigText)
	client, config, err := Client(path, "1.2.3")
	if err != nil || client == nil {
		t.Fatal(err)
	}
	if config.Host != "https://192.0.2.1:6443" || config.UserAgent != "weave-npc/1.2.3" ||
		config.ContentType != "application/vnd.kubernetes.protobuf" ||
		!strings.Contains(config.AcceptContentTypes, "application/json") {
		t.Errorf("%+v", config)
	}
}

func TestNodeRanges(t *testing.T) {
	node := func(name string, spec corev1.NodeSpec) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	}
	client := fake.NewClientset(
		node("none", corev1.NodeSpec{}),
		node("one", corev1.NodeSpec{PodCIDR: "10.1.0.0/24"}),
		node("both", corev1.NodeSpec{PodCIDR: "10.1.0.0/24", PodCIDRs: []string{"10.1.0.0/24", "fd00:1::/64"}}),
		node("broken", corev1.NodeSpec{PodCIDRs: []string{"x"}}),
	)
	for _, test := range []struct {
		node string
		want []netip.Prefix
	}{
		{"none", nil},
		{"one", []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}},
		{"both", []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("fd00:1::/64")}},
	} {
		got, err := NodeRanges(context.Background(), client, test.node)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, %v", test.node, got, err)
		}
	}
	_, err := NodeRanges(context.Background(), client, "absent")
	if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "--node-name") {
		t.Errorf("absent: %v", err)
	}
	_, err = NodeRanges(context.Background(), client, "broken")
	if err == nil || apierrors.IsNotFound(err) {
		t.Errorf("broken: %v", err)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
