package convert

import "fmt"

// Labels of a pod take memory on every node, and an API server takes 1.5 MB of them. Those of one pod are kept as long
// as they are at most maxLabels large, where each counts its key, its value and labelSize. That is room for about 80
// labels of an ordinary length.
const (
	maxLabels = 8 << 10
	labelSize = 48
)

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
