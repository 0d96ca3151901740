package propose

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// workload is the pods of a namespace with the same lasting labels. Policies cannot distinguish them.
type workload struct {
	namespace string
	labels    map[string]string
	names     []string // Deployment/web, sorted; none if only manifests have it
	pod       string   // one of the pods
	key       string   // equal for no other workload
	ports     ports
	selector  *metav1.LabelSelector
}

// String returns the workload's names, or one of its pods.
func (w *workload) String() string {
	if len(w.names) == 0 {
		return "pods such as " + w.pod
	}
	return strings.Join(w.names, ", ")
}

// isDNS reports whether the pods answer the cluster's DNS queries. All clusters give them this label, whichever program
// they run.
func (w *workload) isDNS() bool {
	return w.namespace == dnsNamespace && w.labels[dnsLabel] == dnsValue
}

const dnsNamespace, dnsLabel, dnsValue = "kube-system", "k8s-app", "kube-dns"

// contains reports whether another workload of the namespace has all labels of this one, and more: a selector of the
// labels alone would match it.
func (w *workload) contains(o *workload) bool {
	if w.namespace != o.namespace || len(o.labels) <= len(w.labels) {
		return false
	}
	for k, v := range w.labels {
		if has, ok := o.labels[k]; !ok || has != v {
			return false
		}
	}
	return true
}

// selectorAmong returns a selector of the workload that matches none of the others.
func (w *workload) selectorAmong(others []*workload) *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: w.labels}
	others = slices.DeleteFunc(slices.Clone(others), func(o *workload) bool { return !w.contains(o) })
	for len(others) > 0 {
		absent := w.mostOften(others)
		s.MatchExpressions = append(s.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: absent, Operator: metav1.LabelSelectorOpDoesNotExist})
		others = slices.DeleteFunc(others, func(o *workload) bool { _, has := o.labels[absent]; return has })
	}
	return s
}

// mostOften returns the label that most of the others have and the workload does not, the first of several.
func (w *workload) mostOften(others []*workload) string {
	count := map[string]int{}
	for _, o := range others {
		for k := range o.labels {
			if _, own := w.labels[k]; !own {
				count[k]++
			}
		}
	}
	return slices.MinFunc(slices.Collect(maps.Keys(count)), func(a, b string) int {
		return cmp.Or(count[b]-count[a], cmp.Compare(a, b))
	})
}

// compare orders workloads as they are listed.
func (w *workload) compare(o *workload) int {
	return cmp.Or(cmp.Compare(w.namespace, o.namespace), cmp.Compare(w.String(), o.String()), cmp.Compare(w.key, o.key))
}
