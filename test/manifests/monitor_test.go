package manifests

import (
	"os"
	"regexp"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// TestPodMonitorFindsThePort by the name that the container gives it, and the alerts their job.
func TestPodMonitorFindsThePort(t *testing.T) {
	ds := decode[appsv1.DaemonSet](t, kustomized(t, prod+"/base"), "DaemonSet weave-npc")
	port := container(t, ds.Spec.Template.Spec, "weave-npc").Ports[0].Name
	e := checkMonitor(t, prod+"/monitoring/podmonitor.yaml", ds.Spec.Template.Labels, port)
	alerts, err := os.ReadFile(prod + "/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if r := e.Relabelings[0]; r.TargetLabel != "job" || !regexp.MustCompile(`job="`+r.Replacement+`"`).Match(alerts) {
		t.Errorf("the job is %q, which the alerts do not expect", r.Replacement)
	}
}

// TestPodMonitorFindsRelays by their label, at the port that their probes ask too, and names them by their nodes, as it
// does agents.
func TestPodMonitorFindsRelays(t *testing.T) {
	all := kustomized(t, withComponents(t, "../relay"))
	template := decode[appsv1.Deployment](t, all, "Deployment weave-npc-relay").Spec.Template
	port := container(t, template.Spec, "weave-npc-relay").ReadinessProbe.HTTPGet.Port.String()
	e := checkMonitor(t, prod+"/monitoring/relay/podmonitor.yaml", template.Labels, port)
	if r := e.Relabelings; len(r) != 2 || r[0].TargetLabel != "job" || r[0].Replacement != "weave-npc-relay" || r[1].TargetLabel != "instance" ||
		!slices.Equal(r[1].SourceLabels, []string{"__meta_kubernetes_pod_node_name"}) {
		t.Errorf("it gives %v", r)
	}
}

// scraped is what a PodMonitor scrapes of a pod.
type scraped struct {
	Port, Path  string
	Relabelings []struct {
		TargetLabel, Replacement string
		SourceLabels             []string
	}
}

// checkMonitor checks that a PodMonitor finds pods with the given labels and scrapes their port, and returns what it
// scrapes.
func checkMonitor(t *testing.T, file string, labels map[string]string, port string) scraped {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Spec struct {
			Selector            struct{ MatchLabels map[string]string }
			PodMetricsEndpoints []scraped
		}
	}
	if err := yaml.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	e := m.Spec.PodMetricsEndpoints[0]
	if port != e.Port || e.Path != "/metrics" {
		t.Errorf("%s of port %s is scraped, the container's is %s", e.Path, e.Port, port)
	}
	if len(m.Spec.Selector.MatchLabels) == 0 {
		t.Error("all pods are scraped")
	}
	for key, value := range m.Spec.Selector.MatchLabels {
		if labels[key] != value {
			t.Errorf("pods with %s=%s are looked for, ours have %q", key, value, labels[key])
		}
	}
	return e
}
