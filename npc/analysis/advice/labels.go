package advice

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// The costs of changing a label.
const (
	podCost       = 2
	namespaceCost = 8 // a namespace's labels affect all its pods
)

// relabellings returns changes of labels that may allow the flows.
func (q question) relabellings() []trial {
	var out []trial
	for _, d := range []npc.Direction{npc.Egress, npc.Ingress} {
		if !q.denied[d] {
			continue
		}
		trials := q.towards(d)
		if out == nil {
			out = trials
			continue
		}
		var both []trial
		for _, a := range out {
			for _, b := range trials {
				both = append(both, joined(a, b))
			}
		}
		out = both
	}
	return out
}

// joined returns a trial of two changes at once.
func joined(a, b trial) trial {
	if a.Text == b.Text {
		return a
	}
	return trial{
		Suggestion: Suggestion{Text: a.Text + ", and " + b.Text, Notes: slices.Compact(slices.Concat(a.Notes, b.Notes)),
			apply: func(w *cluster.Cluster) {
				a.apply(w)
				b.apply(w)
			}},
		cost: a.cost + b.cost,
	}
}

// towards returns changes of the other end's labels that may make it match a rule of the policies that isolate a pod in
// a direction.
func (q question) towards(d npc.Direction) (out []trial) {
	peer := q.pod(d.Opposite())
	if peer == nil {
		return nil
	}
	for _, reason := range q.verdicts[0].Side(d).Policies {
		i := slices.IndexFunc(q.view.Policies, func(p *cluster.Policy) bool { return p.Key() == reason.Policy })
		for _, rule := range reason.Rules {
			if !rule.PortFits() {
				continue
			}
			for j, peerReason := range rule.Peers {
				if m := peerReason.Mismatch; m != explain.NamespaceLabels && m != explain.PodLabels {
					continue
				}
				if t := q.relabel(q.view.Policies[i].Rules[d][rule.Number-1].Peers[j], peer); t != nil {
					out = append(out, *t)
				}
			}
		}
	}
	return out
}

// relabel returns the change of labels that makes a pod match a peer, or nil if no labels do.
func (q question) relabel(c policy.Peer, peer *npc.Pod) *trial {
	namespace, pod := q.view.Namespaces[peer.Namespace], *peer
	var words []string
	t := trial{Suggestion: Suggestion{apply: func(w *cluster.Cluster) {
		if c.Namespaces != nil {
			w.SetNamespace(namespace)
		}
		w.SetPod(pod)
	}}}
	if c.Namespaces != nil {
		labels := satisfy(*c.Namespaces, namespace.Labels)
		if labels == nil {
			return nil
		}
		if edits := changes(namespace.Labels, labels); len(edits) > 0 {
			words = append(words, fmt.Sprintf("label namespace %s: %s", peer.Namespace, strings.Join(edits, " ")))
			t.cost += namespaceCost * len(edits)
		}
		namespace.Labels = labels
	}
	if c.Pods != nil {
		labels := satisfy(*c.Pods, pod.Labels)
		if labels == nil {
			return nil
		}
		name := peer.Key()
		if edits := changes(pod.Labels, labels); len(edits) > 0 {
			words = append(words, fmt.Sprintf("label pod %s: %s", name, strings.Join(edits, " ")))
			t.cost += podCost * len(edits)
			t.Notes = q.notes(name, pod.Labels, labels)
		}
		pod.Labels = labels
	}
	t.Text = strings.Join(words, ", and ")
	return &t
}

// notes returns what a pod's controller does when the pod's labels change.
func (q question) notes(name string, before, after map[string]string) []string {
	controller := q.Controllers[name]
	if controller == "" {
		return nil
	}
	var changed []string
	for _, k := range slices.Sorted(maps.Keys(before)) {
		if v, ok := after[k]; !ok || v != before[k] {
			changed = append(changed, k)
		}
	}
	if len(changed) == 0 {
		return []string{fmt.Sprintf("%s makes its next pod without the label, unless its template has it too",
			controller)}
	}
	return []string{fmt.Sprintf("%s disowns pod %s if it selects by %s, and starts another pod in its place",
		controller, name,
		strings.Join(changed, " or "))}
}

// satisfy returns labels with as few changes as possible that a selector matches, or nil if there are none.
func satisfy(c policy.Selector, labels map[string]string) map[string]string {
	unmet, possible := c.Unmet(labels)
	if !possible {
		return nil
	}
	after := map[string]string{}
	maps.Copy(after, labels)
	for _, r := range unmet {
		if r.Key() == corev1.LabelMetadataName {
			return nil // it is the namespace's name
		}
		switch r.Operator() {
		case selection.NotIn, selection.DoesNotExist:
			delete(after, r.Key())
		case selection.Exists:
			after[r.Key()] = "true"
		default:
			after[r.Key()] = slices.Min(r.Values().UnsortedList())
		}
	}
	if !c.Matches(after) {
		return nil
	}
	return after
}

// changes returns the arguments of kubectl label.
func changes(before, after map[string]string) (words []string) {
	all := maps.Clone(after)
	maps.Copy(all, before)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		had, was := before[k]
		has, is := after[k]
		switch {
		case !is:
			words = append(words, k+"-")
		case !was || has != had:
			words = append(words, k+"="+has)
		}
	}
	return words
}
