package kubectl_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl"
	"github.com/weave-npc/weave-npc/npc/source/apiclient"
	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/lab"
	"github.com/weave-npc/weave-npc/test/lab/apiserver"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// cluster is a real API server with users.
type cluster struct {
	*testing.T
	admin      kubernetes.Interface
	kubeconfig string
	// addr forwards to the server, whose certificate is for name.
	addr, name string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	server := apiserver.Alone(t)
	c := &cluster{T: t, kubeconfig: server.Kubeconfig()}
	var err error
	c.admin, err = kubernetes.NewForConfig(server.Client())
	c.must(err)
	c.define(server)
	c.forward(server)
	return c
}

// forward listens outside the network namespace of the server, and forwards connections to it.
func (c *cluster) forward(server *apiserver.Server) {
	c.Helper()
	near, err := (&net.ListenConfig{}).Listen(c.Context(), "tcp", "127.0.0.1:0")
	c.must(err)
	c.Cleanup(func() { _ = near.Close() })
	to, err := url.Parse(server.URL())
	c.must(err)
	c.addr, c.name = near.Addr().String(), to.Hostname()
	go func() {
		for {
			from, err := near.Accept()
			if err != nil {
				return
			}
			go join(from, func() (net.Conn, error) { return server.Client().Dial(context.Background(), "tcp", to.Host) })
		}
	}()
}

// join copies what is sent in both directions until one end closes.
func join(from net.Conn, dial func() (net.Conn, error)) {
	defer from.Close()
	to, err := dial()
	if err != nil {
		return
	}
	defer to.Close()
	go func() {
		_, _ = io.Copy(to, from)
		_ = to.Close()
	}()
	_, _ = io.Copy(from, to)
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// define creates the resource definition of ClusterNetworkPolicies.
func (c *cluster) define(server *apiserver.Server) {
	c.Helper()
	var definition map[string]any
	c.read("../../../../npc/source/testdata/crd.yaml", &definition)
	objects, err := dynamic.NewForConfig(server.Client())
	c.must(err)
	_, err = objects.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}).
		Create(c.Context(), &unstructured.Unstructured{Object: definition}, metav1.CreateOptions{})
	c.must(err)
	policies, err := apiclient.NewPolicyClient(c.admin, server.Client())
	c.must(err)
	await.That(c, "ClusterNetworkPolicies are served", func() bool {
		_, err := policies.List(c.Context(), metav1.ListOptions{})
		return err == nil
	})
}

func (c *cluster) read(path string, into any) {
	c.Helper()
	text, err := os.ReadFile(path)
	c.must(err)
	c.must(yaml.Unmarshal(text, into))
}

// addPod creates a namespace, if it is not there, and a pod with the label app of its name.
func (c *cluster) addPod(namespace, name, addr string) {
	c.Helper()
	_, err := c.admin.CoreV1().Namespaces().Create(c.Context(), fixture.NamespaceObject(fixture.Namespace(namespace+" team="+namespace)),
		metav1.CreateOptions{})
	if err == nil {
		_, err = c.admin.CoreV1().ServiceAccounts(namespace).Create(c.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
			metav1.CreateOptions{})
		c.must(err)
	}
	no := false
	p := fixture.PodObject(fixture.Pod(fmt.Sprintf("%s/%[2]s node1@172.31.0.1 %s app=%[2]s", namespace, name, addr)))
	p.Spec.AutomountServiceAccountToken = &no
	created, err := c.admin.CoreV1().Pods(namespace).Create(c.Context(), p, metav1.CreateOptions{})
	c.must(err)
	created.Status = p.Status
	_, err = c.admin.CoreV1().Pods(namespace).UpdateStatus(c.Context(), created, metav1.UpdateOptions{})
	c.must(err)
}

func (c *cluster) addPolicy(key, spec string) {
	c.Helper()
	p := fixture.Policy(c, key, spec)
	_, err := c.admin.NetworkingV1().NetworkPolicies(p.Namespace).Create(c.Context(), p, metav1.CreateOptions{})
	c.must(err)
}

// grant gives a user the shipped ClusterRole, in one namespace or, if that is empty, everywhere.
func (c *cluster) grant(user, namespace string) {
	c.Helper()
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}
	if namespace == "" {
		var role rbacv1.ClusterRole
		c.read("../../../../prod/readers/clusterrole.yaml", &role)
		_, err := c.admin.RbacV1().ClusterRoles().Create(c.Context(), &role, metav1.CreateOptions{})
		c.must(err)
		_, err = c.admin.RbacV1().ClusterRoleBindings().Create(c.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}, Subjects: subjects}, metav1.CreateOptions{})
		c.must(err)
		return
	}
	var role rbacv1.Role
	c.read("../../../../prod/readers/namespace/role.yaml", &role)
	_, err := c.admin.RbacV1().Roles(namespace).Create(c.Context(), &role, metav1.CreateOptions{})
	c.must(err)
	_, err = c.admin.RbacV1().RoleBindings(namespace).Create(c.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}, Subjects: subjects}, metav1.CreateOptions{})
	c.must(err)
}

// as runs a command as a user, with a kubeconfig whose context has a namespace.
func (c *cluster) as(user, namespace, command string) (out string, status int) {
	c.Helper()
	config, err := clientcmd.LoadFromFile(c.kubeconfig)
	c.must(err)
	for _, auth := range config.AuthInfos {
		auth.Impersonate = user
	}
	for _, of := range config.Clusters {
		of.Server, of.TLSServerName = "https://"+c.addr, c.name
	}
	config.Contexts[config.CurrentContext].Namespace = namespace
	path := filepath.Join(c.TempDir(), "kubeconfig")
	c.must(clientcmd.WriteToFile(*config, path))
	root := &cobra.Command{Use: "weave-npc", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(append(kubectl.Commands(), kubectl.Explain(nil), kubectl.Show())...)
	var text bytes.Buffer
	root.SetOut(&text)
	root.SetErr(&text)
	root.SetArgs(append(strings.Fields(command), "--kubeconfig", path))
	ran, err := root.ExecuteContextC(context.Background())
	if err == nil {
		return text.String(), 0
	}
	fmt.Fprintln(&text, "weave-npc:", err)
	return text.String(), cli.Status(ran, err)
}

// TestRightsOfReaders asks a real API server as users who have the shipped ClusterRole, the Role of one namespace, and
// nothing.
func TestRightsOfReaders(t *testing.T) {
	c := newCluster(t)
	c.addPod("shop", "web", "10.32.0.2")
	c.addPod("shop", "api", "10.32.0.3")
	c.addPod("pay", "db", "10.32.0.4")
	c.addPolicy("shop/api", `{podSelector: {matchLabels: {app: api}}, policyTypes: [Ingress], ingress: [
		{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 80}]}, {from: [{namespaceSelector: {matchLabels: {team: pay}}}], ports: [{port: 81}]}]}`)
	c.addPolicy("shop/closed", `{podSelector: {matchLabels: {app: api}}, policyTypes: [Egress]}`)
	c.addPolicy("pay/db", `{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{namespaceSelector: {matchLabels: {team: shop}}}], ports: [{port: 5432}]}]}`)
	c.grant("anna", "")
	c.grant("ben", "shop")
	change, expectations := filepath.Join(t.TempDir(), "change.yaml"), filepath.Join(t.TempDir(), "expectations.yaml")
	c.must(os.WriteFile(change, []byte("{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: pay, name: more}, "+
		"spec: {podSelector: {}, ingress: [{from: [{namespaceSelector: {}}], ports: [{port: 22}]}]}}\n"), 0o600))
	c.must(os.WriteFile(expectations, []byte("{apiVersion: weave-npc/v1alpha1, kind: Expectations, expectations: ["+
		"shop/web reaches pay/db on 5432, pay/* never reaches shop/web]}\n"), 0o600))
	const notAll, notTiers = `is forbidden: User "ben" cannot list`, "ClusterNetworkPolicies are not considered"
	for _, test := range []struct {
		name, user, command string
		status              int
		want, without       []string
	}{
		{"all", "anna", "explain --from shop/web --to pay/db --port 5432", 0, []string{"shop/web (10.32.0.2) -> pay/db (10.32.0.4), tcp/5432: allowed\n"}, []string{"weave-npc:"}},
		{"all_by_address", "anna", "explain --from 10.32.0.2 --to 10.32.0.4 --port 5432", 0, []string{": allowed"}, []string{"weave-npc:"}},
		{"all_pods", "anna", "show pods", 0, []string{"shop/web", "pay/db"}, []string{"weave-npc:"}},
		{"who_of_all", "anna", "who-can-reach shop/api", 0, []string{"pay/db", "tcp/81"}, []string{"weave-npc:", "unknown"}},
		{"what_of_all", "anna", "what-reaches shop/web", 0, []string{"pay/db", "tcp/5432"}, []string{"weave-npc:", "unknown"}},
		{"diff", "anna", "diff cluster " + change, 1, []string{"shop/web -> pay/db: tcp/22", "closes nothing"}, []string{"shop/api"}},
		{"diff_of_nothing_else", "anna", "diff cluster " + change + " --prune", 1, []string{"-> pay/db: tcp/22", "- shop/web -> pay/db: tcp/5432"}, nil},
		{"diff_with_the_cluster", "anna", "diff " + change + " " + change + " --base cluster", 0, []string{"no difference"}, []string{"weave-npc:"}},
		{"check", "anna", "check cluster " + expectations + " --only expectations", 1, []string{"passed: shop/web reaches pay/db", "failed: pay/* never reaches"}, nil},
		{"diff_needs_all", "ben", "diff cluster " + change, 2, []string{"listing namespaces: "}, nil},
		{"other_namespace", "ben", "explain --from shop/web --to pay/db --port 5432", 2, []string{"shop/web (10.32.0.2) -> pay/db, tcp/5432: unknown\n",
			"egress from shop/web: allowed: no policy isolates it", "ingress to pay/db: unknown: pod pay/db cannot be read: forbidden",
			"weave-npc: the answer is not known", notAll, notTiers}, nil},
		{"known_side_denies", "ben", "explain --from shop/api --to pay/db --port 5432", 1, []string{"tcp/5432: denied\n", notAll}, nil},
		{"own_namespace", "ben", "explain --from shop/web --to shop/api --port 80", 0, []string{"tcp/80: allowed\n", notAll}, []string{"nearest change"}},
		{"own_namespace_denied", "ben", "explain --from shop/web --to shop/api --port 81", 1, []string{"tcp/81: denied\n"}, []string{"unknown:"}},
		{"who", "ben", "who-can-reach shop/api", 0, []string{"shop/web", "tcp/80", "pods that cannot be read", "tcp/81", "unknown"}, []string{"pay/db"}},
		{"what", "ben", "what-reaches shop/web", 0, []string{"shop/api", "pods that cannot be read"}, []string{"pay/db"}},
		{"what_closed", "ben", "what-reaches shop/api", 0, []string{"refused on all ports: 1 pod"}, []string{"unknown"}},
		{"pods", "ben", "show pods", 0, []string{"shop/web", "shop/api", "pods are read only in shop: "}, []string{"pay/db"}},
		{"policies", "ben", "show policies -n shop", 0, []string{"shop/api", "shop/closed"}, []string{"pay/db"}},
		{"other_pods", "ben", "show pods -n pay", 2, []string{"namespace pay cannot be read: forbidden"}, nil},
		{"matrix", "ben", "show matrix --port 80", 0, []string{"? unknown", "shop/web"}, []string{"pay/db"}},
		{"namespace_without_rights", "ben", "who-can-reach pay/db", 2, []string{"who it is, is not known: pod pay/db cannot be read: forbidden"}, nil},
		{"what_needs_all", "ben", "show matrix --port 80 -o html", 2, []string{"listing namespaces: "}, nil},
		{"nothing", "carl", "explain --from shop/web --to shop/api --port 80", 2, []string{"neither pods nor network policies can be listed, in all namespaces or in shop"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, status := c.as(test.user, "shop", test.command)
			if status != test.status {
				t.Errorf("status %d, want %d", status, test.status)
			}
			for _, want := range test.want {
				if !strings.Contains(out, want) {
					t.Errorf("%q is missing", want)
				}
			}
			for _, not := range test.without {
				if strings.Contains(out, not) {
					t.Errorf("%q is there", not)
				}
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}
