package matrix

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/npc/analysis/internal/reachability"
	"github.com/weave-npc/weave-npc/npc/cluster"
)

// Row is a row or a column of a matrix: pods of one namespace with the same labels that no policy distinguishes, or one
// address.
type Row struct {
	Name string `json:"name"`
	// Pods are its pods, as namespace/name; none for an address.
	Pods      []string `json:"pods,omitempty"`
	namespace string
	class     int
	// several is set if the row has more than one pod, or one that stands for all pods of a workload.
	several bool
}

// Class returns the number of the row's class in the partition.
func (r Row) Class() int { return r.class }

// Namespace returns the namespace of the row's pods; it is empty for an address.
func (r Row) Namespace() string { return r.namespace }

// isReplicaLabel reports whether a controller puts a label on pods to distinguish them or the revisions of their
// template.
func isReplicaLabel(key string) bool {
	switch key {
	case "pod-template-hash", "pod-template-generation", "controller-revision-hash", "controller-uid", "job-name",
		"batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name",
		"batch.kubernetes.io/job-completion-index",
		"statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index", corev1.LabelHostname:
		return true
	}
	return false
}

// Rows returns the rows of classes of a view: one for each pod, or one for the pods of a class whose labels only differ
// in those of replicas.
func Rows(v *cluster.View, classes []reachability.Class, each bool) []Row {
	var rows []Row
	for i, c := range classes {
		if c.Addr.IsValid() {
			rows = append(rows, Row{Name: c.Addr.String(), class: i})
			continue
		}
		known := map[string]int{} // labels -> the row of this class
		for _, name := range c.Pods {
			key := labelKey(v.Pods[name].Labels)
			at, ok := known[key]
			if !ok || each {
				at = len(rows)
				known[key] = at
				rows = append(rows, Row{Name: name, namespace: v.Pods[name].Namespace, class: i})
			}
			rows[at].Pods = append(rows[at].Pods, name)
			rows[at].several = len(rows[at].Pods) > 1 || v.Pods[name].StandsForWorkload()
		}
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		if len(a.Pods) == 0 || len(b.Pods) == 0 {
			return len(b.Pods) - len(a.Pods) // addresses come last, in their order
		}
		return strings.Compare(a.Pods[0], b.Pods[0])
	})
	name(rows, v.PodNames(""))
	return rows
}

func labelKey(labels map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if !isReplicaLabel(k) {
			fmt.Fprintf(&b, "%s=%s\n", k, labels[k])
		}
	}
	return b.String()
}

// name names the rows of several pods: by a prefix of their names that no other of all pods has, or else by the first
// pod.
func name(rows []Row, all []string) {
	for i := range rows {
		r := &rows[i]
		if len(r.Pods) < 2 {
			continue
		}
		prefix := commonPrefix(slices.Min(r.Pods), slices.Max(r.Pods))
		first, _ := slices.BinarySearch(all, prefix)
		after, _ := slices.BinarySearchFunc(all, prefix, func(name, prefix string) int {
			if strings.HasPrefix(name, prefix) {
				return -1
			}
			return strings.Compare(name, prefix)
		})
		if prefix != "" && after-first == len(r.Pods) {
			r.Name = fmt.Sprintf("%s* (%d pods)", prefix, len(r.Pods))
		} else {
			r.Name = fmt.Sprintf("%s and %d more", r.Pods[0], len(r.Pods)-1)
		}
	}
}

// commonPrefix returns the common prefix of two names of one namespace up to a dash. It is empty if that is only the
// namespace.
func commonPrefix(a, b string) string {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return a[:strings.LastIndexByte(a[:n], '-')+1]
}

// addresses parses addresses.
func addresses(texts []string) (out []netip.Addr, err error) {
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil, errors.Errorf("--address: %q is no address such as 203.0.113.7", text)
		}
		out = append(out, a.Unmap())
	}
	return out, nil
}
