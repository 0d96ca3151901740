package convert

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/npc"
)

var sameAddr = cmpopts.EquateComparable(netip.Addr{})

func TestPodFacts(t *testing.T) {
	noon := metav1.NewTime(time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC))
	always := corev1.ContainerRestartPolicyAlways
	ports := func(name string, port int32, protocol corev1.Protocol) []corev1.ContainerPort {
		return []corev1.ContainerPort{{Name: name, ContainerPort: port, Protocol: protocol}}
	}
	for _, test := range []struct {
		name    string
		pod     corev1.Pod
		want    npc.Pod
		ignored []string
	}{
		{name: "nothing known yet"},
		{
			name: "everything",
			pod: corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", Labels: map[string]string{"a": "b"},
					CreationTimestamp: noon, DeletionTimestamp: &noon, Annotations: map[string]string{"x": "y"}},
				Spec: corev1.PodSpec{NodeName: "n1", HostNetwork: true},
				Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &noon, PodIP: "10.0.0.1", HostIP: "192.0.2.1",
					PodIPs:  []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}},
					HostIPs: []corev1.HostIP{{IP: "192.0.2.1"}, {IP: "2001:db8::1"}}},
			},
			want: npc.Pod{Namespace: "shop", Name: "web", UID: "u", Labels: map[string]string{"a": "b"}, Node: "n1",
				HostNetwork: true, Deleting: true, Created: noon.Time, Started: noon.Time,
				Addrs:     []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")},
				HostAddrs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}},
		},
		{
			name: "podIP and hostIP alone",
			pod:  corev1.Pod{Status: corev1.PodStatus{PodIP: "10.0.0.1", HostIP: "192.0.2.1"}},
			want: npc.Pod{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
				HostAddrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
		},
		{
			name: "mapped, doubled, with leading zeros, invalid",
			pod: corev1.Pod{Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "::ffff:10.0.0.1"}, {IP: "10.0.0.1"},
				{IP: "010.0.0.02"}, {IP: "fe80::1%eth0"}, {IP: "x"}, {IP: ""}}}},
			want: npc.Pod{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}},
			ignored: []string{`status.podIPs: "fe80::1%eth0" is no address`, `status.podIPs: "x" is no address`,
				`status.podIPs: "" is no address`},
		},
		{
			name: "invalid host address",
			pod:  corev1.Pod{Status: corev1.PodStatus{HostIP: "x"}}, ignored: []string{`status.hostIPs: "x" is no address`},
		},
		{
			name: "a container runs",
			pod: corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
				{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: noon}}}, {}}}},
			want: npc.Pod{LastStart: noon.Time},
		},
		{
			name: "a container waits to be started again, an init container has ended",
			pod: corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning,
				InitContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{StartedAt: metav1.NewTime(noon.Add(-time.Hour))}}}},
				ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}},
					LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: noon}}}}}},
			want: npc.Pod{LastStart: noon.Time},
		},
		{
			name: "the sandbox is not there",
			pod: corev1.Pod{Status: corev1.PodStatus{PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionFalse}, {Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse}}}},
			want: npc.Pod{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, StaleAddrs: true},
		},
		{
			name: "the sandbox is there",
			pod: corev1.Pod{Status: corev1.PodStatus{PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionFalse}, {Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue}}}},
			want: npc.Pod{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}},
		},
		{
			name: "the sandbox of a terminating pod is not there any more: it has its address until it has finished",
			pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &noon}, Status: corev1.PodStatus{PodIP: "10.0.0.1",
				Conditions: []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse}}}},
			want: npc.Pod{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Deleting: true},
		},
		{name: "succeeded", pod: corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}, want: npc.Pod{Finished: true}},
		{name: "failed", pod: corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}, want: npc.Pod{Finished: true}},
		{name: "unknown phase", pod: corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodUnknown}}},
		{
			name: "named ports",
			pod: corev1.Pod{Spec: corev1.PodSpec{
				InitContainers: []corev1.Container{
					{Ports: ports("init", 1, "TCP")},
					{Ports: ports("sidecar", 2, "UDP"), RestartPolicy: &always},
				},
				Containers: []corev1.Container{
					{Ports: ports("tcp", 80, "")}, {Ports: ports("tcp", 80, "TCP")}, {Ports: ports("sctp", 65535, "SCTP")},
					{Ports: ports("", 81, "TCP")}, {Ports: ports("other", 82, "ICMP")}, {Ports: ports("zero", 0, "TCP")},
					{Ports: ports("big", 65536, "TCP")},
				},
			}},
			want: npc.Pod{Ports: []npc.NamedPort{{Name: "sidecar", Protocol: 17, Port: 2},
				{Name: "tcp", Protocol: 6, Port: 80}, {Name: "sctp", Protocol: 132, Port: 65535}}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, ignored := OfPod(&test.pod)
			if diff := cmp.Diff(test.want, got, sameAddr); diff != "" {
				t.Errorf("facts (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.ignored, ignored); diff != "" {
				t.Errorf("ignored (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNodeFacts takes every address of the status, of whatever type, and no host name.
func TestNodeFacts(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", Labels: map[string]string{"zone": "x"}}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "a"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.1"},
		{Type: corev1.NodeExternalIP, Address: "2001:DB8::1"}, {Type: corev1.NodeHostName, Address: "192.0.2.2"}, {Type: "Other", Address: "192.0.2.3"},
		{Type: corev1.NodeExternalIP, Address: "::ffff:192.0.2.1"}, {Type: corev1.NodeInternalIP, Address: "0.0.0.0"},
		{Type: corev1.NodeInternalIP, Address: "::"}, {Type: corev1.NodeInternalDNS, Address: "a.example.com"}, {Type: corev1.NodeInternalIP}}
	want := npc.Node{Name: "a", UID: "u", Labels: map[string]string{"zone": "x"}}
	for _, a := range []string{"192.0.2.1", "2001:db8::1", "192.0.2.2", "192.0.2.3"} {
		want.Addrs = append(want.Addrs, netip.MustParseAddr(a))
	}
	if diff := cmp.Diff(want, OfNode(n), sameAddr); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
}

// TestWorkloads are what an operator calls them.
func TestWorkloads(t *testing.T) {
	yes := true
	for _, test := range []struct {
		name, kind, owner, hash string
		controls                *bool
		want                    string
	}{
		{"no owner", "", "", "", nil, ""},
		{"a Deployment's", "ReplicaSet", "web-6d4b", "6d4b", &yes, "Deployment/web"},
		{"a ReplicaSet's own", "ReplicaSet", "web", "", &yes, "ReplicaSet/web"},
		{"a ReplicaSet with another program's label", "ReplicaSet", "web", "6d4b", &yes, "ReplicaSet/web"},
		{"a ReplicaSet that is called as its hash", "ReplicaSet", "-6d4b", "6d4b", &yes, "ReplicaSet/-6d4b"},
		{"a StatefulSet's", "StatefulSet", "db", "", &yes, "StatefulSet/db"},
		{"a Job's", "Job", "backup-29012345", "", &yes, "Job/backup-29012345"},
		{"a kubelet's", "Node", "node1", "", &yes, ""},
		{"an owner that does not control it", "Thing", "x", "", nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pod-template-hash": test.hash}}}
			if test.kind != "" {
				p.OwnerReferences = []metav1.OwnerReference{{Kind: test.kind, Name: test.owner, Controller: test.controls}}
			}
			got, _ := OfPod(&p)
			text := ""
			if got.Workload != nil {
				text = got.Workload.String()
			}
			if text != test.want {
				t.Errorf("%q, want %q", text, test.want)
			}
		})
	}
}

func TestNamespaceFacts(t *testing.T) {
	for _, test := range []struct {
		name, annotation string
		want             bool
		ignored          int
	}{
		{"default deny", `{"ingress":{"isolation":"DefaultDeny"}}`, true, 0},
		{"other isolation", `{"ingress":{"isolation":"None"}}`, false, 0},
		{"other content", `{"egress":{}}`, false, 0},
		{"no JSON", `DefaultDeny`, false, 1},
		{"other type", `{"ingress":"DefaultDeny"}`, false, 1},
		{"empty", ``, false, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, ignored := OfNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "u",
				Labels: map[string]string{"a": "b"}, Annotations: map[string]string{isolationAnnotation: test.annotation}}})
			want := npc.Namespace{Name: "shop", UID: "u", Labels: map[string]string{"a": "b"}, DefaultDeny: test.want}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("facts (-want +got):\n%s", diff)
			}
			if len(ignored) != test.ignored {
				t.Errorf("ignored %q", ignored)
			}
		})
	}
}

// TestS76_LabelsThatAreTooLarge are not kept, which is said, and those of a large but ordinary pod are.
func TestS76_LabelsThatAreTooLarge(t *testing.T) {
	for _, c := range []struct {
		count, size int // of labels, and of each with its name
		kept        bool
	}{{1, 380, true}, {60, 80, true}, {20, 316, true}, {25, 316, false}, {64, 81, false}, {4000, 316, false}, {170, 3, false}} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{}}}
		for i := range c.count {
			key := fmt.Sprintf("k%d", i)
			p.Labels[key] = strings.Repeat("v", max(0, c.size-len(key)))
		}
		facts, ignored := OfPod(p)
		if facts.Unlabelled == c.kept || c.kept != (len(facts.Labels) == c.count) || c.kept != (len(ignored) == 0) {
			t.Errorf("%d labels of %d bytes: unlabelled %t, %d labels, %q", c.count, c.size, facts.Unlabelled, len(facts.Labels), ignored)
		}
		reduced := ReducePod(p)
		if again, _ := OfPod(reduced); again.Unlabelled != facts.Unlabelled || reduced.Size() > 3*maxLabels {
			t.Errorf("%d labels of %d bytes: reduced to %d bytes, unlabelled %t", c.count, c.size, reduced.Size(), again.Unlabelled)
		}
	}
}

// TestS76_PortsThatAreTooMany are not kept, also if the pod is reduced before, and the names of many are.
func TestS76_PortsThatAreTooMany(t *testing.T) {
	for _, c := range []struct {
		name                             string
		named, again, unnamed, init, got int
	}{
		{"many", 1024, 0, 0, 0, 1024},
		{"more", 1025, 0, 0, 0, 0},
		{"after others without names", 10, 0, 30_000, 0, 10},
		{"beside those of an init container", 1000, 0, 0, 25, 0},
		{"after the same again and again", 10, 1020, 0, 0, 0},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"app": "web"}},
			Spec: corev1.PodSpec{Containers: make([]corev1.Container, 1), InitContainers: make([]corev1.Container, 1)}}
		declare := func(of *corev1.Container, name string, port int) {
			of.Ports = append(of.Ports, corev1.ContainerPort{Name: name, ContainerPort: int32(port), Protocol: "TCP"})
		}
		for i := range c.unnamed {
			declare(&p.Spec.Containers[0], "", i+1)
		}
		for range c.again {
			declare(&p.Spec.Containers[0], "again", 1)
		}
		for i := range c.named {
			declare(&p.Spec.Containers[0], fmt.Sprint("p", i), i+1)
		}
		for i := range c.init {
			declare(&p.Spec.InitContainers[0], fmt.Sprint("i", i), i+1)
		}
		reduced := ReducePod(p)
		for what, p := range map[string]*corev1.Pod{"as it is": p, "reduced": reduced} {
			facts, ignored := OfPod(p)
			if closed := c.got == 0; len(facts.Ports) != c.got || facts.Unlabelled != closed || (len(ignored) > 0) != closed {
				t.Errorf("%s, %s: %d ports, unlabelled = %t, %q", c.name, what, len(facts.Ports), facts.Unlabelled, ignored)
			}
		}
		if reduced.Size() > 2*(maxPorts+1)*32 {
			t.Errorf("%s: reduced to %d bytes", c.name, reduced.Size())
		}
	}
}
