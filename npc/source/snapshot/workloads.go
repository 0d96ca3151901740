package snapshot

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/source/manifest"
)

// workloadRequest is what pods are made of.
type workloadRequest struct {
	// Workloads may be in any order.
	Workloads []*manifest.Workload
	// Pods are those that there are.
	Pods []*corev1.Pod
	// Mentioned are the addresses that no made pod may have.
	Mentioned *mentionedPods
	// IPv6 gives the pods addresses of this family too if no pod shows the families of the cluster.
	IPv6 bool
	// Decisive is set if a policy may decide by the addresses.
	Decisive bool
}

// madeWorkloads is the outcome of a request.
type madeWorkloads struct {
	// Pods are those that there are, then those of workloads in the order of their namespaces and names.
	Pods []*corev1.Pod
	// Notes are sentences for the user.
	Notes []string
}

// Make makes a pod for each workload that no pod stands for. It has the workload's name, or, if another pod has that,
// the name and the kind. Pods whose status is not written get addresses after those of workloads.
func (r workloadRequest) Make() madeWorkloads {
	missing := r.missing()
	slices.SortStableFunc(missing, func(a, b *manifest.Workload) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(rank(a), rank(b)))
	})
	named := map[string]bool{}
	for _, p := range r.Pods {
		named[npc.ObjectKey(p.Namespace, p.Name)] = true
	}
	made := madeWorkloads{Pods: slices.Clone(r.Pods)}
	addresses := newAllocator(r)
	for _, w := range missing {
		name := w.Name
		for i := 1; named[npc.ObjectKey(w.Namespace, name)]; i++ {
			name = w.Name + "." + strings.ToLower(w.Kind)
			if i > 1 {
				name = fmt.Sprintf("%s.%d", name, i)
			}
		}
		key := npc.ObjectKey(w.Namespace, name)
		named[key] = true
		if name != w.Name {
			made.Notes = append(made.Notes, fmt.Sprintf("pod %s is that of %s %s: another pod is named %s/%s",
				key, w.Kind,
				npc.ObjectKey(w.Namespace, w.Name), w.Namespace, w.Name))
		}
		p := w.Pod(name)
		addresses.give(p)
		made.Pods = append(made.Pods, p)
	}
	for i, p := range r.Pods {
		if p.Status.Phase == "" {
			with := *p
			addresses.give(&with)
			made.Pods[i] = &with
		}
	}
	made.Notes = append(made.Notes, addresses.notes(r.Decisive)...)
	return made
}

// rank returns the place of a workload's kind: of several with one name, the first keeps it.
func rank(w *manifest.Workload) int { return slices.Index(manifest.WorkloadKinds(), w.Kind) }
