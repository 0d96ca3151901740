package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/relay"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/source"
	"github.com/weave-npc/weave-npc/test/lab/apiserver"
)

// largePod returns a pod as a Deployment makes it, of about 3 kB.
func largePod(i int) *corev1.Pod {
	yes, started := true, metav1.Unix(1_700_000_000+int64(i), 0)
	ip := fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("team-%d", i%200), Name: fmt.Sprintf("service-%d-5d4f8c7b9d-%05d", i%1000, i),
		UID: types.UID(fmt.Sprintf("11111111-2222-3333-4444-%012d", i)), ResourceVersion: strconv.Itoa(i + 1), CreationTimestamp: started,
		Labels:          map[string]string{"app": fmt.Sprintf("service-%d", i%1000), "pod-template-hash": "5d4f8c7b9d", "tier": "backend", "team": fmt.Sprintf("team-%d", i%200)},
		Annotations:     map[string]string{"checksum/config": strings.Repeat("a", 64), "prometheus.io/scrape": "true"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: fmt.Sprintf("service-%d-5d4f8c7b9d", i%1000), Controller: &yes}},
		ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(`{"f:status":"` + strings.Repeat("x", 1200) + `"}`)}}},
		Spec: corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", i%1000), ServiceAccountName: "default"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}, HostIP: "192.0.2.1", HostIPs: []corev1.HostIP{{IP: "192.0.2.1"}},
			StartTime: &started, ContainerStatuses: []corev1.ContainerStatus{{Name: "main", ImageID: strings.Repeat("b", 100),
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}}}}}}
	c := corev1.Container{Name: "main", Image: "registry.example.com/team/service:1.2.3", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}
	for j := range 10 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", j), Value: strings.Repeat("v", 40)})
	}
	p.Spec.Containers = []corev1.Container{c}
	for _, condition := range []corev1.PodConditionType{"Initialized", "Ready", "ContainersReady", "PodScheduled", "PodReadyToStartContainers"} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: condition, Status: "True", LastTransitionTime: started})
	}
	return p
}

// heap returns how much memory is in use, in MB.
func heap() float64 {
	for range 3 {
		runtime.GC()
	}
	debug.FreeOSMemory()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return float64(s.HeapAlloc) / 1e6
}

// TestMemory measures what a relay, an agent and an informer of client-go hold of many pods (make bench-relay).
func TestMemory(t *testing.T) {
	if os.Getenv(measureVariable) == "" {
		t.Skip("measures for minutes: runs only with " + measureVariable + "=1 (make bench-relay)")
	}
	quiet := slog.New(slog.DiscardHandler)
	for _, pods := range []int{10_000, 100_000} {
		config := many(t, pods)
		for name, hold := range map[string]func(context.Context) func() bool{
			"relay": func(ctx context.Context) func() bool {
				dir := t.TempDir()
				writeCertificate(t, dir)
				r, err := relay.New(relay.Config{API: config, CertFile: filepath.Join(dir, apiserver.ServerCertFile),
					KeyFile: filepath.Join(dir, apiserver.ServerKeyFile), AskKinds: time.Second}, quiet)
				if err != nil {
					t.Fatal(err)
				}
				go func() { _ = r.Follow(ctx) }()
				return func() bool {
					answer := httptest.NewRecorder()
					r.Metrics().ServeHTTP(answer, httptest.NewRequest("GET", "/readyz", nil))
					return !strings.Contains(answer.Body.String(), "not listed") && strings.Count(answer.Body.String(), "known") <= 1
				}
			},
			"agent": func(ctx context.Context) func() bool {
				client, err := kubernetes.NewForConfig(config)
				if err != nil {
					t.Fatal(err)
				}
				m := controller.New(enforce.Config{NodeName: "node-1"})
				s := source.FromAPI(client, nil, "node-1")
				go func() { _ = s.Run(ctx, m, quiet) }()
				return func() bool { return s.WhyUnsynced() == "" }
			},
			"client-go's informers": func(ctx context.Context) func() bool {
				client, err := kubernetes.NewForConfig(config)
				if err != nil {
					t.Fatal(err)
				}
				factory := informers.NewSharedInformerFactory(client, 0)
				synced := factory.Core().V1().Pods().Informer().HasSynced
				factory.Start(ctx.Done())
				return synced
			},
		} {
			before := heap()
			ctx, cancel := context.WithCancel(t.Context())
			ready := hold(ctx)
			for deadline := time.Now().Add(90 * time.Second); !ready(); time.Sleep(100 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%s is not ready", name)
				}
			}
			time.Sleep(time.Second)
			fmt.Printf("%d pods: %s holds %.0f MB\n", pods, name, heap()-before)
			runtime.KeepAlive(ready)
			cancel()
			time.Sleep(500 * time.Millisecond)
		}
	}
}
