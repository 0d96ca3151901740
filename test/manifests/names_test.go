package manifests

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// TestChartNames are those of the release and of the chart, unless they are given.
func TestChartNames(t *testing.T) {
	for _, c := range []struct{ name, release, values, want, label string }{
		{"the_chart's", "weave-npc", "", "weave-npc", "weave-npc"},
		{"a_release_with_it", "weave-npc-edge", "", "weave-npc-edge", "weave-npc"},
		{"another_release", "edge", "", "edge-weave-npc", "weave-npc"},
		{"another_name", "edge", "nameOverride: policies", "edge-policies", "policies"},
		{"another_name_of_the_release", "policies", "nameOverride: policies", "policies", "policies"},
		{"another_full_name", "edge", "{nameOverride: policies, fullnameOverride: npc}", "npc", "policies"},
		{"a_long_release", strings.Repeat("r", 53), "", strings.Repeat("r", 50), "weave-npc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text, notes, err := renderAs(t, c.release, c.values)
			if err != nil {
				t.Fatal(err)
			}
			all := read(t, []byte(text))
			d := decode[appsv1.DaemonSet](t, all, "DaemonSet "+c.want)
			if got := d.Spec.Selector.MatchLabels["app.kubernetes.io/name"]; got != c.label || d.Labels["app.kubernetes.io/name"] != c.label {
				t.Errorf("it is labelled %s", got)
			}
			if !strings.Contains(notes, "daemonset/"+c.want+"\n") {
				t.Errorf("the notes are\n%s", notes)
			}
		})
	}
}

// TestChartRefersToItsNames renders all objects with other names, and follows what names them.
func TestChartRefersToItsNames(t *testing.T) {
	const values = "{nameOverride: policies, fullnameOverride: npc, relay: {enabled: true}, readers: {cluster: true, namespaces: [shop]}, " +
		"podMonitor: {enabled: true}, prometheusRule: {enabled: true}, dashboard: {enabled: true}, checkNodes: [n1]}"
	text, _, err := renderAs(t, "edge", values)
	if err != nil {
		t.Fatal(err)
	}
	all := read(t, []byte(text))
	want := strings.Fields(`ClusterRole/npc ClusterRole/npc-reader ClusterRole/npc-relay ClusterRoleBinding/npc ClusterRoleBinding/npc-relay
		ConfigMap/npc-dashboard DaemonSet/npc Deployment/npc-relay Job/npc-check-node-0 PodDisruptionBudget/npc-relay PodMonitor/npc
		PodMonitor/npc-relay PrometheusRule/npc Role/npc-reader Role/npc-relay-endpoints RoleBinding/npc-relay-endpoints Service/npc-relay
		ServiceAccount/npc ServiceAccount/npc-relay`)
	var got []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		got = append(got, strings.ReplaceAll(name, " ", "/"))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("names (-want +got):\n%s", d)
	}
	agent := decode[appsv1.DaemonSet](t, all, "DaemonSet npc").Spec
	relay := decode[appsv1.Deployment](t, all, "Deployment npc-relay").Spec
	service := decode[corev1.Service](t, all, "Service npc-relay")
	binding := decode[rbacv1.ClusterRoleBinding](t, all, "ClusterRoleBinding npc")
	endpoints := decode[rbacv1.RoleBinding](t, all, "RoleBinding npc-relay-endpoints")
	refers := []string{agent.Template.Spec.ServiceAccountName, binding.RoleRef.Name, binding.Subjects[0].Name, endpoints.RoleRef.Name,
		endpoints.Subjects[0].Name, relay.Template.Spec.ServiceAccountName, relay.Template.Spec.Containers[0].Args[0],
		relay.Template.Spec.Volumes[0].Secret.SecretName, agent.Template.Spec.Volumes[0].ConfigMap.Name,
		agent.Template.Spec.Containers[0].Env[0].Value, agent.Template.Spec.Containers[0].Name}
	if got, want := fmt.Sprint(refers), "[npc npc npc npc-relay-endpoints npc npc-relay --agent=kube-system/npc npc-relay-tls npc-relay-ca "+
		"kube-system/npc-relay weave-npc]"; got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	const label = "app.kubernetes.io/name"
	labels := []string{agent.Selector.MatchLabels[label], agent.Template.Labels[label], relay.Selector.MatchLabels[label],
		relay.Template.Labels[label], service.Spec.Selector[label]}
	if got := fmt.Sprint(labels); got != "[policies policies policies-relay policies-relay policies-relay]" {
		t.Errorf("the labels are %s", got)
	}
	if left := regexp.MustCompile(`(?m)^.*app\.kubernetes\.io/name: weave-npc.*$`).FindAllString(text, -1); len(left) > 0 {
		t.Errorf("%q", left)
	}
}
