package speed

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/synthetic"
)

// objects returns the API objects of a cluster and those of the probe, by the last part of the path of their kind.
func objects(b *testing.B, c synthetic.Cluster) map[string][]runtime.Object {
	out := map[string][]runtime.Object{}
	for i := range c.Namespaces {
		out["namespaces"] = append(out["namespaces"], apiNamespace(synthetic.Namespace(i)))
	}
	for i := range c.Pods + c.Local {
		out["pods"] = append(out["pods"], apiPod(c.Pod(i)))
	}
	out["pods"] = append(out["pods"], probe(false), probed())
	for i := range c.Policies {
		p := c.Policy(i)
		p.ObjectMeta = about("np", p.Namespace, p.Name)
		out["networkpolicies"] = append(out["networkpolicies"], p)
	}
	out["networkpolicies"] = append(out["networkpolicies"], probePolicy(b))
	return out
}

// about returns the metadata of an object, of the size that they usually have.
func about(kind, namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(fmt.Sprintf("%-36s", kind+name)), ResourceVersion: "1",
		CreationTimestamp: metav1.NewTime(time.Unix(1<<30, 0)), ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "speed",
			Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(string(make([]byte, 400)))}}}
}

func apiNamespace(n npc.Namespace) *corev1.Namespace {
	o := &corev1.Namespace{ObjectMeta: about("ns", "", n.Name)}
	o.Labels = n.Labels
	return o
}

// apiPod returns a running pod, whose object has the size that they usually have.
func apiPod(pod npc.Pod) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: about("pod", pod.Namespace, pod.Name)}
	p.Labels = pod.Labels
	p.Annotations = map[string]string{"example.com/restarted-at": "2026-01-01T00:00:00Z"}
	p.Spec = corev1.PodSpec{NodeName: pod.Node, ServiceAccountName: "default", Containers: []corev1.Container{{Name: "app",
		Image: "registry.example/app:1", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80, Protocol: corev1.ProtocolTCP}}}}}
	for i := range 8 {
		p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", i), Value: "value"})
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: fmt.Sprintf("node.kubernetes.io/condition-%d", i)})
	}
	addr, host := pod.Addrs[0].String(), pod.HostAddrs[0].String()
	started := metav1.NewTime(time.Unix(1<<30, 0))
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: addr, PodIPs: []corev1.PodIP{{IP: addr}}, HostIP: host,
		HostIPs: []corev1.HostIP{{IP: host}}, StartTime: &started, ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Ready: true,
			ImageID: "registry.example/app@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}}}
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue})
	}
	return p
}

// probeAddr is that of the pod that the probed pod lets in, while it has the label.
const probeAddr = "10.200.0.1"

func probe(in bool) *corev1.Pod {
	return apiPod(fixture.Pod(fmt.Sprintf("%s/probe node-0@192.168.0.0 %s probe=%t", synthetic.NamespaceName(0), probeAddr, in)))
}

func probed() *corev1.Pod {
	key := synthetic.NamespaceName(0) + "/probed"
	return apiPod(fixture.Pod(key + " " + synthetic.Node + "@192.168.255.1 10.32.1.200 role=probed"))
}

func probePolicy(b *testing.B) *networkingv1.NetworkPolicy {
	p := fixture.Policy(b, synthetic.NamespaceName(0)+"/probe", `{podSelector: {matchLabels: {role: probed}},
		ingress: [{from: [{podSelector: {matchLabels: {probe: "true"}}}]}]}`)
	p.ObjectMeta = about("np", p.Namespace, p.Name)
	return p
}
