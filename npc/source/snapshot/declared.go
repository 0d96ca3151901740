package snapshot

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/source/convert"
	"github.com/weave-npc/weave-npc/npc/source/manifest"
)

// Declared are objects with their workloads, before these are pods, so that the objects of several places can be put
// together.
type Declared struct {
	Objects
	workloads []*manifest.Workload
	mentioned *mentionedPods
	// implied are the names of namespaces that only other objects name.
	implied map[string]bool
}

// OfFiles returns the manifests of a directory that is not on disk, in the order of their paths, or what the
// kustomization in it makes.
func OfFiles(dir string, files []File) *Manifests {
	kustomized := slices.ContainsFunc(files, func(f File) bool {
		name, ok := strings.CutPrefix(f.Path, dir)
		return ok && isKustomization(name) && strings.LastIndex(name, "/") <= 0
	})
	return &Manifests{path: dir, files: append([]File{}, files...), kustomized: kustomized}
}

// Declare returns the objects of an API server as a Declared.
func Declare(o Objects) Declared { return Declared{Objects: o, mentioned: newMentionedPods()} }

// Declared returns the objects, and the workloads.
func (m *Manifests) Declared() (Declared, error) {
	d := Declare(Objects{})
	written := map[string]bool{}
	options := m.options()
	options.Workloads = true
	objects, templates, err := m.read(func(path string, data []byte) manifest.File {
		d.mentioned.Add(data)
		f := options.Parse(path, data)
		for i, o := range f.Objects {
			switch value := o.Value.(type) {
			case *corev1.Namespace:
				written[o.Name] = true
			case *corev1.Pod: // the positions of most pods are never needed
				f.Objects[i].Value = convert.ReducePod(value)
			}
		}
		return f
	})
	d.Objects, d.workloads, d.implied = objects, templates, map[string]bool{}
	for _, n := range objects.Namespaces {
		d.implied[n.Name] = !written[n.Name]
	}
	return d, err
}

// Empty reports whether there are no objects.
func (d Declared) Empty() bool {
	return d.Objects.Empty() && len(d.workloads) == 0
}

// Made returns the objects with addresses for pods that have no status, and a pod for each workload that has none.
func (d Declared) Made() Objects {
	o := d.Objects
	made := workloadRequest{Workloads: d.workloads, Pods: o.Pods, Mentioned: d.mentioned, IPv6: o.mentionIPv6(),
		Decisive: o.distinguishAddresses()}.Make()
	o.Pods, o.Notes = made.Pods, append(slices.Clip(o.Notes), made.Notes...)
	return o
}

// Over returns the objects that exist after these were applied over others: they replace those of the same kind,
// namespace and name, and a workload replaces its pods.
func (d Declared) Over(base Declared) Declared {
	out := Declared{mentioned: newMentionedPods(), implied: d.implied}
	out.mentioned.Merge(base.mentioned)
	out.mentioned.Merge(d.mentioned)
	known := map[string]bool{}
	for _, n := range base.Namespaces {
		known[n.Name] = !base.implied[n.Name]
	}
	namespaces := slices.DeleteFunc(slices.Clone(d.Namespaces), func(n *corev1.Namespace) bool {
		return d.implied[n.Name] && known[n.Name]
	})
	out.Namespaces = over(namespaces, base.Namespaces)
	out.Pods = over(withStatus(d.Pods, base.Pods), d.withoutPods(base.Pods))
	out.Policies, out.ClusterPolicies = over(d.Policies, base.Policies), over(d.ClusterPolicies, base.ClusterPolicies)
	out.Nodes, out.workloads = over(d.Nodes, base.Nodes), over(d.workloads, base.workloads)
	out.ClusterPoliciesUnreadable = d.ClusterPoliciesUnreadable + base.ClusterPoliciesUnreadable
	out.NodesUnreadable = d.NodesUnreadable + base.NodesUnreadable
	out.Unused = slices.Concat(base.Unused, d.Unused)
	out.Notes = slices.Concat(base.Notes, d.Notes)
	return out
}

// over returns the objects of the base that none of top replaces, and those of top.
func over[T metav1.Object](top, base []T) []T {
	replaced := map[string]bool{}
	for _, o := range top {
		replaced[keyOf(o)] = true
	}
	return append(slices.DeleteFunc(slices.Clone(base), func(o T) bool { return replaced[keyOf(o)] }), top...)
}

// withStatus returns pods, those whose status is not written with the status and the node of the pod that they replace.
func withStatus(pods, base []*corev1.Pod) (out []*corev1.Pod) {
	was := map[string]*corev1.Pod{}
	for _, p := range base {
		was[keyOf(p)] = p
	}
	for _, p := range pods {
		if old := was[keyOf(p)]; old != nil && p.Status.Phase == "" {
			with := *p
			with.Status, with.Spec.NodeName = old.Status, cmp.Or(p.Spec.NodeName, old.Spec.NodeName)
			p = &with
		}
		out = append(out, p)
	}
	return out
}

// keyOf returns what is the same for objects that replace each other, of those of one type.
func keyOf(o metav1.Object) string {
	key := npc.ObjectKey(o.GetNamespace(), o.GetName())
	if w, ok := o.(*manifest.Workload); ok {
		return w.Kind + " " + key
	}
	return key
}

// withoutPods returns pods without those of the workloads.
func (d Declared) withoutPods(pods []*corev1.Pod) []*corev1.Pod {
	type owner struct {
		namespace string
		npc.Workload
	}
	replaced := map[owner]bool{}
	for _, w := range d.workloads {
		replaced[owner{w.Namespace, npc.Workload{Kind: w.Kind, Name: w.Name}}] = true
	}
	return slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool {
		f, _ := convert.OfPod(p)
		return f.Workload != nil && replaced[owner{p.Namespace, *f.Workload}]
	})
}

// Without returns the objects without the NetworkPolicies in namespaces that others have, and, if they have
// ClusterNetworkPolicies, without those.
func (d Declared) Without(policiesOf Declared) Declared {
	has := map[string]bool{}
	for _, n := range policiesOf.Namespaces {
		has[n.Name] = true
	}
	d.Policies = slices.DeleteFunc(slices.Clone(d.Policies), func(p *networkingv1.NetworkPolicy) bool {
		return has[p.Namespace]
	})
	if len(policiesOf.ClusterPolicies) > 0 {
		d.ClusterPolicies = []*v1alpha2.ClusterNetworkPolicy{}
	}
	return d
}
