package speed

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// cluster is a synthetic one, as seen from one of its nodes.
type cluster struct{ pods, namespaces, policies, local int }

func (c cluster) String() string {
	return fmt.Sprintf("pods=%d/namespaces=%d/policies=%d/local=%d", c.pods, c.namespaces, c.policies, c.local)
}

// node is the node that the benchmarks are about.
const node = "node-local"

// apps is how many applications a namespace has.
const apps = 20

// objects returns the objects of a kind, by the last part of its path.
func (c cluster) objects() map[string][]runtime.Object {
	out := map[string][]runtime.Object{}
	for i := range c.namespaces {
		out["namespaces"] = append(out["namespaces"], namespace(i))
	}
	for i := range c.pods + c.local {
		out["pods"] = append(out["pods"], c.pod(i))
	}
	out["pods"] = append(out["pods"], probe(false), probed())
	for i := range c.policies {
		out["networkpolicies"] = append(out["networkpolicies"], c.policy(i))
	}
	out["networkpolicies"] = append(out["networkpolicies"], probePolicy())
	return out
}

func spaceOf(i int) string { return fmt.Sprintf("ns-%04d", i) }

func about(kind, namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(fmt.Sprintf("%-36s", kind+name)), ResourceVersion: "1",
		CreationTimestamp: metav1.NewTime(time.Unix(1<<30, 0)), ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "speed",
			Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(string(make([]byte, 400)))}}}
}

func namespace(i int) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: about("ns", "", spaceOf(i))}
	n.Labels = map[string]string{"kubernetes.io/metadata.name": n.Name, "team": fmt.Sprintf("team-%d", i%10), "tier": []string{"dev", "prod"}[i%2]}
	return n
}

// pod returns a pod by its number; the last ones are local.
func (c cluster) pod(i int) *corev1.Pod {
	nodeName, host, k := fmt.Sprintf("node-%04d", i/100), fmt.Sprintf("192.168.%d.%d", i/100>>8, i/100&255), i
	addr := fmt.Sprintf("10.%d.%d.%d", 64+i>>16, i>>8&255, i&255)
	if i >= c.pods {
		k = i - c.pods
		nodeName, host, addr = node, "192.168.255.1", fmt.Sprintf("10.32.1.%d", k+10)
	}
	p := runningPod(spaceOf(k%c.namespaces), fmt.Sprintf("pod-%06d", i), nodeName, host, addr)
	p.Labels = map[string]string{"app": fmt.Sprintf("app-%d", k/c.namespaces%apps), "version": fmt.Sprintf("v%d", k%3),
		"pod-template-hash": fmt.Sprintf("%08x", k)}
	return p
}

// runningPod returns a pod object of a usual size.
func runningPod(namespace, name, nodeName, host, addr string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: about("pod", namespace, name)}
	p.Annotations = map[string]string{"example.com/restarted-at": "2026-01-01T00:00:00Z"}
	p.Spec = corev1.PodSpec{NodeName: nodeName, ServiceAccountName: "default", Containers: []corev1.Container{{Name: "app",
		Image: "registry.example/app:1", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80, Protocol: corev1.ProtocolTCP}}}}}
	for i := range 8 {
		p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", i), Value: "value"})
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: fmt.Sprintf("node.kubernetes.io/condition-%d", i)})
	}
	started := metav1.NewTime(time.Unix(1<<30, 0))
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: addr, PodIPs: []corev1.PodIP{{IP: addr}}, HostIP: host,
		HostIPs: []corev1.HostIP{{IP: host}}, StartTime: &started, ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Ready: true,
			ImageID: "registry.example/app@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}}}
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue})
	}
	return p
}

func selecting(labels map[string]string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: labels}
}

// policy has rules with peers of three kinds; every other one has an egress rule too.
func (c cluster) policy(i int) *networkingv1.NetworkPolicy {
	k := i / c.namespaces
	app := func(n int) *metav1.LabelSelector {
		return selecting(map[string]string{"app": fmt.Sprintf("app-%d", n%apps)})
	}
	rule := func(port int, peer networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicyIngressRule {
		number, tcp := intstr.FromInt(port), corev1.ProtocolTCP
		return networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{peer},
			Ports: []networkingv1.NetworkPolicyPort{{Protocol: &tcp, Port: &number}}}
	}
	p := &networkingv1.NetworkPolicy{ObjectMeta: about("np", spaceOf(i%c.namespaces), fmt.Sprintf("np-%05d", i))}
	p.Spec.PodSelector = *app(k)
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{
		rule(80, networkingv1.NetworkPolicyPeer{PodSelector: app(k + 1)}),
		rule(8080, networkingv1.NetworkPolicyPeer{NamespaceSelector: selecting(map[string]string{"team": fmt.Sprintf("team-%d", k%10)})}),
		rule(9090, networkingv1.NetworkPolicyPeer{PodSelector: app(k + 3), NamespaceSelector: selecting(map[string]string{"tier": "prod"})}),
	}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	if i%2 == 1 {
		p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		p.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{
			IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: []string{"10.9.0.0/16"}}}}}}
	}
	return p
}

// probeAddr is that of the pod that the probed pod lets in, while it has the label.
const probeAddr = "10.200.0.1"

func probe(in bool) *corev1.Pod {
	p := runningPod(spaceOf(0), "probe", "node-0000", "192.168.0.0", probeAddr)
	p.Labels = map[string]string{"probe": fmt.Sprint(in)}
	return p
}

func probed() *corev1.Pod {
	p := runningPod(spaceOf(0), "probed", node, "192.168.255.1", "10.32.1.2")
	p.Labels = map[string]string{"role": "probed"}
	return p
}

func probePolicy() *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: about("np", spaceOf(0), "probe")}
	p.Spec.PodSelector = *selecting(map[string]string{"role": "probed"})
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{
		{PodSelector: selecting(map[string]string{"probe": "true"})}}}}
	return p
}
