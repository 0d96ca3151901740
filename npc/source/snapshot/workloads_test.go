package snapshot

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/npc/source/manifest"
)

// owner is an owner reference as group/version kind name; empty for none.
func owner(text string) []metav1.OwnerReference {
	parts := strings.Fields(text)
	if len(parts) == 0 {
		return nil
	}
	controller := true
	return []metav1.OwnerReference{{APIVersion: parts[0], Kind: parts[1], Name: parts[2], Controller: &controller}}
}

// workload returns a workload from a text such as "apps/v1 ReplicaSet web < apps/v1 Deployment web", the owner last.
func workload(text string) *manifest.Workload {
	self, by, _ := strings.Cut(text, "<")
	parts := strings.Fields(self)
	return &manifest.Workload{PodTemplate: corev1.PodTemplate{TypeMeta: metav1.TypeMeta{APIVersion: parts[0], Kind: parts[1]},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: parts[2], OwnerReferences: owner(by)}}}
}

// pod returns a pod from a text such as "web-1 10.1.0.1 Running < apps/v1 StatefulSet web", where - is no address.
func pod(text string) *corev1.Pod {
	self, by, _ := strings.Cut(text, "<")
	parts := strings.Fields(self)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: parts[0], OwnerReferences: owner(by)}}
	if parts[1] != "-" {
		p.Status.PodIP = parts[1]
	}
	p.Status.Phase = corev1.PodPhase(parts[2])
	if i := strings.LastIndex(by, "-"); i >= 0 {
		p.Labels = map[string]string{"pod-template-hash": by[i+1:]}
	}
	return p
}

func TestPodsOfWorkloads(t *testing.T) {
	for _, c := range []struct {
		name            string
		workloads, pods []string
		ipv6            bool
		mentioned       string
		want            string
	}{
		{name: "none"},
		{name: "sorted_by_name", workloads: []string{"apps/v1 StatefulSet web", "apps/v1 DaemonSet db"},
			want: "db DaemonSet [10.254.0.1] Running, web StatefulSet [10.254.0.2] Running"},
		{name: "its_pod_is_there", workloads: []string{"apps/v1 StatefulSet web"}, pods: []string{"web-0 - Pending < apps/v1 StatefulSet web"}},
		{name: "its_pod_is_there_by_another_version", workloads: []string{"apps/v1 StatefulSet web"}, pods: []string{"web-0 - Pending < apps/v1beta1 StatefulSet web"}},
		{name: "its_pod_is_there_by_a_ReplicaSet_that_is_not", workloads: []string{"apps/v1 Deployment web"},
			pods: []string{"web-5c-1 - Pending < apps/v1 ReplicaSet web-5c"}},
		{name: "its_pod_has_finished", workloads: []string{"batch/v1 Job web"}, pods: []string{"web-0 - Succeeded < batch/v1 Job web"},
			want: "web Job [10.254.0.1] Running"},
		{name: "a_pod_of_another_group", workloads: []string{"batch/v1 Job web"}, pods: []string{"web-0 - Pending < batch.example.com/v1 Job web"},
			want: "web Job [10.254.0.1] Running"},
		{name: "a_workload_made_it", workloads: []string{"apps/v1 Deployment web", "apps/v1 ReplicaSet web-5c < apps/v1 Deployment web"},
			want: "web Deployment [10.254.0.1] Running"},
		{name: "what_made_it_is_not_there", workloads: []string{"batch/v1 Job web-1 < batch/v1 CronJob web"},
			want: "web-1 Job [10.254.0.1] Running"},
		{name: "a_pod_of_what_it_made", workloads: []string{"batch/v1 CronJob web", "batch/v1 Job web-1 < batch/v1 CronJob web"},
			pods: []string{"web-1-x - Running < batch/v1 Job web-1"}},
		{name: "they_own_each_other", workloads: []string{"apps/v1 StatefulSet a < apps/v1 StatefulSet b", "apps/v1 StatefulSet b < apps/v1 StatefulSet a"},
			pods: []string{"x - Running < apps/v1 StatefulSet a"}},
		{name: "names", workloads: []string{"batch/v1 Job web", "apps/v1 Deployment web", "apps/v1 StatefulSet db"},
			pods: []string{"db - Pending", "db.statefulset - Pending"},
			want: "db.statefulset.2 StatefulSet [10.254.0.1] Running, web Deployment [10.254.0.2] Running, web.job Job [10.254.0.3] Running; " +
				"pod shop/db.statefulset.2 is that of StatefulSet shop/db: another pod is named shop/db; " +
				"pod shop/web.job is that of Job shop/web: another pod is named shop/web"},
		{name: "both_families", workloads: []string{"v1 ReplicationController web"}, ipv6: true,
			want: "web ReplicationController [10.254.0.1 fdfe:dcba:9876::1] Running"},
		{name: "the_family_of_the_pods", workloads: []string{"apps/v1 DaemonSet web"}, pods: []string{"x fd00::1 Running"},
			want: "web DaemonSet [fdfe:dcba:9876::1] Running"},
		{name: "mentioned", workloads: []string{"apps/v1 DaemonSet web"}, ipv6: true,
			mentioned: "clusterIPs: [10.254.0.1, 'FDFE:DCBA:9876::1'], a range 10.254.0.4/30, 10.254.0.2/31 and 10.0.0.0/8 or 10.252.0.0/14; 110.254.0.8",
			want:      "web DaemonSet [10.254.0.8 fdfe:dcba:9876::2] Running"},
		{name: "none_left", workloads: []string{"apps/v1 DaemonSet web"}, mentioned: "10.254.0.0/15",
			want: "web DaemonSet [] ; 1 pods have no address, or not one of each family: the manifests mention all of 10.254.0.0/15"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := workloadRequest{Mentioned: newMentionedPods(), IPv6: c.ipv6}
			r.Mentioned.Add([]byte(c.mentioned))
			for _, text := range c.workloads {
				r.Workloads = append(r.Workloads, workload(text))
			}
			for _, text := range c.pods {
				r.Pods = append(r.Pods, pod(text))
			}
			made := r.Make()
			var pods []string
			for _, p := range made.Pods[len(r.Pods):] {
				var ips []string
				for _, ip := range p.Status.PodIPs {
					ips = append(ips, ip.IP)
				}
				pods = append(pods, fmt.Sprintf("%s %s %v %s", p.Name, metav1.GetControllerOf(p).Kind, ips, p.Status.Phase))
			}
			got := []string{strings.Join(pods, ", ")}
			for _, n := range made.Notes {
				if !strings.Contains(n, "made up") {
					got = append(got, n)
				}
			}
			if got := strings.Join(got, "; "); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestPodsOnTheNetworkOfTheirNode have no address of their own, and nothing is said of one.
func TestPodsOnTheNetworkOfTheirNode(t *testing.T) {
	w := workload("apps/v1 DaemonSet agent")
	w.Template.Spec.HostNetwork = true
	made := workloadRequest{Workloads: []*manifest.Workload{w}, Mentioned: newMentionedPods()}.Make()
	if len(made.Pods) != 1 || len(made.Pods[0].Status.PodIPs) > 0 || !made.Pods[0].Spec.HostNetwork || len(made.Notes) > 0 {
		t.Errorf("%+v", made)
	}
}

// TestAddressesAreDistinct, also beyond the first byte.
func TestAddressesAreDistinct(t *testing.T) {
	r := workloadRequest{Mentioned: newMentionedPods(), IPv6: true, Decisive: true}
	const n = 700
	for i := range n {
		r.Workloads = append(r.Workloads, workload(fmt.Sprintf("apps/v1 Deployment w%d", i)))
	}
	seen := map[string]bool{}
	made := r.Make()
	for _, p := range made.Pods {
		for _, ip := range p.Status.PodIPs {
			seen[ip.IP] = true
		}
	}
	want := "700 pods have addresses that are made up, in 10.254.0.0/15 and fdfe:dcba:9876::/64: " +
		"rules for ranges of addresses may decide otherwise about the real ones"
	if len(seen) != 2*n || strings.Join(made.Notes, " ") != want {
		t.Errorf("%d addresses; %v", len(seen), made.Notes)
	}
}
