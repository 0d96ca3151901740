package e2e

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"
)

// Objects is what a cluster has.
type Objects struct {
	Namespaces map[string]*corev1.Namespace // name -> namespace
	Pods       map[string]*corev1.Pod       // namespace/name -> pod
	Policies   map[string]string            // namespace/name -> spec, in YAML
	Tiers      map[string]string            // name -> spec of a cluster network policy, in YAML
}

// Change edits objects. A change gets the cluster for its addresses.
type Change func(w *Cluster, o *Objects)

// Clone returns a copy that can be edited.
func (o *Objects) Clone() *Objects {
	c := &Objects{map[string]*corev1.Namespace{}, map[string]*corev1.Pod{}, map[string]string{}, map[string]string{}}
	maps.Copy(c.Policies, o.Policies)
	maps.Copy(c.Tiers, o.Tiers)
	for name, n := range o.Namespaces {
		c.Namespaces[name] = n.DeepCopy()
	}
	for name, p := range o.Pods {
		c.Pods[name] = p.DeepCopy()
	}
	return c
}

// Manifest returns the objects as a file.
func (o *Objects) Manifest() (string, error) {
	var b strings.Builder
	put := func(object any) error {
		text, err := yaml.Marshal(object)
		fmt.Fprintf(&b, "---\n%s", text)
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(o.Namespaces)) {
		if err := put(o.Namespaces[name]); err != nil {
			return "", err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Pods)) {
		if err := put(o.Pods[name]); err != nil {
			return "", err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Policies)) {
		namespace, own, _ := strings.Cut(name, "/")
		fmt.Fprintf(&b, "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n"+
			"metadata: {namespace: %s, name: %s}\nspec:\n%s\n", namespace, own, indented(o.Policies[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(o.Tiers)) {
		fmt.Fprintf(&b, "---\napiVersion: %s\nkind: ClusterNetworkPolicy\nmetadata: {name: %q}\nspec:\n%s\n",
			v1alpha2.GroupVersion, name,
			indented(o.Tiers[name]))
	}
	return b.String(), nil
}

func indented(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ")
}

// Namespace makes a namespace, or gives it other labels ("team=a,tier=x").
func Namespace(name, labelled string) Change {
	return func(_ *Cluster, o *Objects) {
		n := o.Namespaces[name]
		if n == nil {
			n = &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
			n.Name = name
			o.Namespaces[name] = n
		}
		n.Labels = labelMap(labelled)
	}
}

func labelMap(text string) map[string]string {
	set, err := labels.ConvertSelectorToLabelsMap(text)
	if err != nil {
		panic(err)
	}
	return set
}

// Pod makes a pod object that has the addresses of the host of the same name, or changes the one that there is.
func Pod(name string, edits ...func(*Cluster, *corev1.Pod)) Change {
	return func(w *Cluster, o *Objects) {
		p := o.Pods[name]
		if p == nil {
			p = newPod(name)
			o.Pods[name] = p
			if h := w.Hosts[OwnName(name)]; h != nil {
				At(OwnName(name))(w, p)
			}
		}
		for _, edit := range edits {
			edit(w, p)
		}
	}
}

// OwnName returns the name without the namespace.
func OwnName(name string) string { return name[strings.Index(name, "/")+1:] }

func newPod(name string) *corev1.Pod {
	p := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	p.Namespace, p.Name, _ = strings.Cut(name, "/")
	p.Spec.Containers = []corev1.Container{{Name: "main", Image: "main"}}
	p.Status.Phase = corev1.PodRunning
	return p
}

// At gives a pod the node and the addresses of a host.
func At(host string) func(*Cluster, *corev1.Pod) {
	return func(w *Cluster, p *corev1.Pod) {
		h := w.Hosts[host]
		if h == nil {
			panic("no host " + host)
		}
		p.Status.PodIPs, p.Status.HostIPs = nil, nil
		for _, a := range h.Addrs() {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a.String()})
		}
		p.Status.PodIP = p.Status.PodIPs[0].IP
		if n := w.NodeOf(h); n != nil {
			p.Spec.NodeName = n.Name()
			for _, a := range n.Addrs() {
				p.Status.HostIPs = append(p.Status.HostIPs, corev1.HostIP{IP: a.String()})
			}
			p.Status.HostIP = p.Status.HostIPs[0].IP
		}
	}
}

// Labelled gives a pod other labels.
func Labelled(text string) func(*Cluster, *corev1.Pod) {
	return func(_ *Cluster, p *corev1.Pod) { p.Labels = labelMap(text) }
}

// Phase changes a pod's phase.
func Phase(phase corev1.PodPhase) func(*Cluster, *corev1.Pod) {
	return func(_ *Cluster, p *corev1.Pod) { p.Status.Phase = phase }
}

// On puts a pod that has no address yet on a node.
func On(node string) func(*Cluster, *corev1.Pod) {
	return func(_ *Cluster, p *corev1.Pod) {
		p.Spec.NodeName = node
		p.Status = corev1.PodStatus{Phase: corev1.PodPending}
	}
}

// Running gives a pod the addresses of some ranges that end in the given byte.
func Running(last byte, ranges ...netip.Prefix) func(*Cluster, *corev1.Pod) {
	return func(_ *Cluster, p *corev1.Pod) {
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning}
		for _, r := range ranges {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: within(r, last).String()})
		}
		p.Status.PodIP = p.Status.PodIPs[0].IP
	}
}

// HostNetwork puts a pod into its node's network.
func HostNetwork(_ *Cluster, p *corev1.Pod) {
	p.Spec.HostNetwork = true
	p.Status.PodIPs = nil
	for _, a := range p.Status.HostIPs {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP(a))
	}
	p.Status.PodIP = p.Status.HostIP
}

// Port names a port of a pod's container.
func Port(name string, number int32, protocol corev1.Protocol) func(*Cluster, *corev1.Pod) {
	return func(_ *Cluster, p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.Ports = append(c.Ports, corev1.ContainerPort{Name: name, ContainerPort: number, Protocol: protocol})
	}
}

// NoPorts takes a pod's named ports away.
func NoPorts(_ *Cluster, p *corev1.Pod) { p.Spec.Containers[0].Ports = nil }

// UID gives a pod another UID, as a pod that replaces one of the same name has.
func UID(text string) func(*Cluster, *corev1.Pod) {
	return func(_ *Cluster, p *corev1.Pod) { p.UID = types.UID(text) }
}

// Policy makes a policy, or edits it. In its spec, $web4 and $web6 are addresses of host web.
func Policy(name, spec string) Change {
	return func(w *Cluster, o *Objects) { o.Policies[name] = w.Replacer().Replace(spec) }
}

// ClusterPolicy makes a cluster network policy, or edits it. In its spec, $web4 and $web6 are addresses of host web.
func ClusterPolicy(name, spec string) Change {
	return func(w *Cluster, o *Objects) { o.Tiers[name] = w.Replacer().Replace(spec) }
}

// Without removes objects: a namespace by its name, with what is in it; a cluster network policy by its name; others as
// namespace/name.
func Without(names ...string) Change {
	return func(_ *Cluster, o *Objects) {
		for _, name := range names {
			delete(o.Namespaces, name)
			delete(o.Pods, name)
			delete(o.Policies, name)
			delete(o.Tiers, name)
			inIt := func(n string) bool { return strings.HasPrefix(n, name+"/") }
			for n := range o.Pods {
				if inIt(n) {
					delete(o.Pods, n)
				}
			}
			for n := range o.Policies {
				if inIt(n) {
					delete(o.Policies, n)
				}
			}
		}
	}
}

// Do returns a change that makes several.
func Do(changes ...Change) Change {
	return func(w *Cluster, o *Objects) {
		for _, c := range changes {
			c(w, o)
		}
	}
}

// Only4 leaves a pod its IPv4 address.
func Only4(_ *Cluster, p *corev1.Pod) { onlyFamily(p, "4") }

// Only6 leaves a pod its IPv6 address.
func Only6(w *Cluster, p *corev1.Pod) {
	At(p.Name)(w, p)
	onlyFamily(p, "6")
}

func onlyFamily(p *corev1.Pod, family string) {
	kept := slices.DeleteFunc(slices.Clone(p.Status.PodIPs), func(ip corev1.PodIP) bool {
		return strings.Contains(ip.IP, ":") != (family == "6")
	})
	p.Status.PodIPs, p.Status.PodIP = kept, kept[0].IP
}

// ClaimsHost lets a pod that is in its node's network look like one that is not.
func ClaimsHost(_ *Cluster, p *corev1.Pod) { p.Spec.HostNetwork = false }

// Objects returns what a change makes of an empty cluster.
func (w *Cluster) Objects(state Change) *Objects {
	o := (&Objects{}).Clone()
	state(w, o)
	return o
}

// Started gives a pod a start time, which is later than an unknown one.
func Started(_ *Cluster, p *corev1.Pod) {
	later := metav1.NewTime(time.Now())
	p.Status.StartTime = &later
}
