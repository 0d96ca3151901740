package flowlog

import (
	"maps"
	"slices"
	"strings"
)

// Lasting returns the labels that a pod shares with the other pods of its workload, now and after an update: without
// those that controllers give to a pod, to a revision or to a run, without the release that is deployed, and without
// where the pod happens to run.
func Lasting(labels map[string]string) map[string]string {
	out := maps.Clone(labels)
	maps.DeleteFunc(out, func(key, _ string) bool { return passes(key) })
	return out
}

// Likeness returns a text that is equal for pods of a namespace with the same lasting labels, which no policy should
// distinguish.
func Likeness(namespace string, labels map[string]string) string {
	words := []string{namespace}
	for k, v := range Lasting(labels) {
		words = append(words, k+"="+v)
	}
	slices.Sort(words[1:])
	return strings.Join(words, ",")
}

// passes reports whether a label differs between the pods of a workload or passes with one of its revisions.
func passes(key string) bool {
	switch key {
	case "pod-template-hash", "pod-template-generation", // Deployments, DaemonSets
		"rollouts-pod-template-hash", "controller-revision-hash",
		"statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index", // StatefulSets
		"controller-uid", "job-name", // Jobs, whose runs by a CronJob have new ones
		"app.kubernetes.io/version", "helm.sh/chart": // each release has another one
		return true
	}
	return strings.HasPrefix(key, "batch.kubernetes.io/") || strings.HasPrefix(key, "topology.kubernetes.io/")
}
