package apiserver_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/weave-npc/weave-npc/test/lab"
	"github.com/weave-npc/weave-npc/test/lab/apiserver"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

func TestObjectsAreKeptOverARestartAndNothingIsLeft(t *testing.T) {
	w, err := lab.New(lab.Config{Nodes: 1, IPv4: true, IPv6: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	host, err := w.AddHost("control-plane", w.Node("node1").Addr4().Prev(), w.Node("node1").Addr6().Prev())
	if err != nil {
		t.Fatal(err)
	}
	server := apiserver.Started(t, host, w.Dir())
	client, err := kubernetes.NewForConfig(server.Client())
	if err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"},
		Spec:       corev1.PodSpec{NodeName: "node1", Containers: []corev1.Container{{Name: "web", Image: "web"}}},
	}
	if _, err := client.CoreV1().Pods("shop").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	reachesFromNode(t, w, server)

	if err := server.StopAPI(); err != nil {
		t.Fatal(err)
	}
	if err := server.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Pods("shop").Get(t.Context(), "web", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}

	kubeconfig := server.Kubeconfig()
	if err := server.Stop(); err != nil {
		t.Error(err)
	}
	if left := commandsWith(t, filepath.Dir(kubeconfig)); len(left) != 0 {
		t.Errorf("still running: %q", left)
	}
	if _, err := os.Stat(filepath.Dir(kubeconfig)); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", filepath.Dir(kubeconfig), err)
	}
}

// reachesFromNode checks that the kubeconfig's address is one for nodes.
func reachesFromNode(t *testing.T, w *lab.Network, server *apiserver.Server) {
	t.Helper()
	addr := strings.TrimPrefix(server.URL(), "https://")
	conn, err := w.Node("node1").DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

// commandsWith lists the running commands that have a string in their arguments.
func commandsWith(t *testing.T, part string) []string {
	t.Helper()
	var found []string
	for range 20 { // a process that has ended may be seen for a moment
		found = nil
		paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if command, err := os.ReadFile(path); err == nil && strings.Contains(string(command), part) {
				found = append(found, strings.ReplaceAll(string(command), "\x00", " "))
			}
		}
		if len(found) == 0 {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return found
}
