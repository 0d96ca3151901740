package convert

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Labels of a pod take memory on every node, and an API server takes 1.5 MB of them. Those of one pod are kept as long
// as they are at most maxLabels large, where each counts its key, its value and labelSize. That is room for about 80
// labels of an ordinary length.
const (
	maxLabels = 8 << 10
	labelSize = 48
)

// maxPorts is how many ports with names the containers of a pod may declare, each time counted, for them to be kept. Of
// those without names as many are kept.
const maxPorts = 1024

// tooLarge returns why the labels and ports of a pod are not kept; empty if they are.
func tooLarge(p *corev1.Pod) string {
	if why := labelsTooLarge(p.Labels); why != "" {
		return why
	}
	named := 0
	for _, containers := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range containers {
			for j := range containers[i].Ports {
				if containers[i].Ports[j].Name != "" {
					named++
				}
			}
		}
	}
	if named <= maxPorts {
		return ""
	}
	return fmt.Sprintf("spec.containers: they name more than %d ports; policies close the pod", maxPorts)
}

// labelsTooLarge returns why labels are not kept; empty if they are.
func labelsTooLarge(l map[string]string) string {
	size := 0
	for key, value := range l {
		if size += len(key) + len(value) + labelSize; size > maxLabels {
			return fmt.Sprintf("metadata.labels: they take more than %d bytes (each counts its key, its value and %d); "+
				"policies close the pod", maxLabels, labelSize)
		}
	}
	return ""
}

// cutLabels returns labels, or, if they are too large, as few of them as show that.
func cutLabels(l map[string]string) map[string]string {
	if labelsTooLarge(l) == "" {
		return l
	}
	out, size := map[string]string{}, 0
	for key, value := range l {
		out[key] = value
		if size += len(key) + len(value) + labelSize; size > maxLabels {
			break
		}
	}
	return out
}
