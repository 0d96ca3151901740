package enforce

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"
)

// objects is what a cluster has.
type objects struct {
	namespaces map[string]*corev1.Namespace // name -> namespace
	pods       map[string]*corev1.Pod       // namespace/name -> pod
	policies   map[string]string            // namespace/name -> spec, in YAML
	tiers      map[string]string            // name -> spec of a cluster network policy, in YAML
}

// change edits objects. A change gets the harness for its addresses.
type change func(w *harness, o *objects)

// clone returns a copy that can be edited.
func (o *objects) clone() *objects {
	c := &objects{map[string]*corev1.Namespace{}, map[string]*corev1.Pod{}, map[string]string{}, map[string]string{}}
	maps.Copy(c.policies, o.policies)
	maps.Copy(c.tiers, o.tiers)
	for name, n := range o.namespaces {
		c.namespaces[name] = n.DeepCopy()
	}
	for name, p := range o.pods {
		c.pods[name] = p.DeepCopy()
	}
	return c
}

// manifest returns the objects as a file.
func (o *objects) manifest() (string, error) {
	var b strings.Builder
	put := func(object any) error {
		text, err := yaml.Marshal(object)
		fmt.Fprintf(&b, "---\n%s", text)
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(o.namespaces)) {
		if err := put(o.namespaces[name]); err != nil {
			return "", err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.pods)) {
		if err := put(o.pods[name]); err != nil {
			return "", err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.policies)) {
		namespace, own, _ := strings.Cut(name, "/")
		fmt.Fprintf(&b, "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n"+
			"metadata: {namespace: %s, name: %s}\nspec:\n%s\n", namespace, own, indented(o.policies[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(o.tiers)) {
		fmt.Fprintf(&b, "---\napiVersion: %s\nkind: ClusterNetworkPolicy\nmetadata: {name: %q}\nspec:\n%s\n", v1alpha2.GroupVersion, name,
			indented(o.tiers[name]))
	}
	return b.String(), nil
}

func indented(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ")
}

// namespace makes a namespace, or gives it other labels ("team=a,tier=x").
func namespace(name, labelled string) change {
	return func(_ *harness, o *objects) {
		n := o.namespaces[name]
		if n == nil {
			n = &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
			n.Name = name
			o.namespaces[name] = n
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

// pod makes a pod object that has the addresses of the host of the same name, or changes the one that there is.
func pod(name string, edits ...func(*harness, *corev1.Pod)) change {
	return func(w *harness, o *objects) {
		p := o.pods[name]
		if p == nil {
			p = newPod(name)
			o.pods[name] = p
			if h := w.hosts[ownName(name)]; h != nil {
				at(ownName(name))(w, p)
			}
		}
		for _, edit := range edits {
			edit(w, p)
		}
	}
}

// ownName returns the name without the namespace.
func ownName(name string) string { return name[strings.Index(name, "/")+1:] }

func newPod(name string) *corev1.Pod {
	p := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	p.Namespace, p.Name, _ = strings.Cut(name, "/")
	p.Spec.Containers = []corev1.Container{{Name: "main", Image: "main"}}
	p.Status.Phase = corev1.PodRunning
	return p
}

// at gives a pod the node and the addresses of a host.
func at(host string) func(*harness, *corev1.Pod) {
	return func(w *harness, p *corev1.Pod) {
		h := w.hosts[host]
		if h == nil {
			panic("no host " + host)
		}
		p.Status.PodIPs, p.Status.HostIPs = nil, nil
		for _, a := range h.Addrs() {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a.String()})
		}
		p.Status.PodIP = p.Status.PodIPs[0].IP
		if n := w.nodeOf(h); n != nil {
			p.Spec.NodeName = n.Name()
			for _, a := range n.Addrs() {
				p.Status.HostIPs = append(p.Status.HostIPs, corev1.HostIP{IP: a.String()})
			}
			p.Status.HostIP = p.Status.HostIPs[0].IP
		}
	}
}

// labelled gives a pod other labels.
func labelled(text string) func(*harness, *corev1.Pod) {
	return func(_ *harness, p *corev1.Pod) { p.Labels = labelMap(text) }
}

// phase changes a pod's phase.
func phase(phase corev1.PodPhase) func(*harness, *corev1.Pod) {
	return func(_ *harness, p *corev1.Pod) { p.Status.Phase = phase }
}

// on puts a pod that has no address yet on a node.
func on(node string) func(*harness, *corev1.Pod) {
	return func(_ *harness, p *corev1.Pod) {
		p.Spec.NodeName = node
		p.Status = corev1.PodStatus{Phase: corev1.PodPending}
	}
}

// running gives a pod the addresses of some ranges that end in the given byte.
func running(last byte, ranges ...netip.Prefix) func(*harness, *corev1.Pod) {
	return func(_ *harness, p *corev1.Pod) {
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning}
		for _, r := range ranges {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: within(r, last).String()})
		}
		p.Status.PodIP = p.Status.PodIPs[0].IP
	}
}

// hostNetwork puts a pod into its node's network.
func hostNetwork(_ *harness, p *corev1.Pod) {
	p.Spec.HostNetwork = true
	p.Status.PodIPs = nil
	for _, a := range p.Status.HostIPs {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP(a))
	}
	p.Status.PodIP = p.Status.HostIP
}

// port names a port of a pod's container.
func port(name string, number int32, protocol corev1.Protocol) func(*harness, *corev1.Pod) {
	return func(_ *harness, p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.Ports = append(c.Ports, corev1.ContainerPort{Name: name, ContainerPort: number, Protocol: protocol})
	}
}

// noPorts takes a pod's named ports away.
func noPorts(_ *harness, p *corev1.Pod) { p.Spec.Containers[0].Ports = nil }

// uid gives a pod another UID, as a pod that replaces one of the same name has.
func uid(text string) func(*harness, *corev1.Pod) {
	return func(_ *harness, p *corev1.Pod) { p.UID = asUID(text) }
}

// policy makes a policy, or edits it. In its spec, $web4 and $web6 are addresses of host web.
func policy(name, spec string) change {
	return func(w *harness, o *objects) { o.policies[name] = w.replacer().Replace(spec) }
}

// clusterPolicy makes a cluster network policy, or edits it. In its spec, $web4 and $web6 are addresses of host web.
func clusterPolicy(name, spec string) change {
	return func(w *harness, o *objects) { o.tiers[name] = w.replacer().Replace(spec) }
}

// without removes objects: a namespace by its name, with what is in it; a cluster network policy by its name; others as
// namespace/name.
func without(names ...string) change {
	return func(_ *harness, o *objects) {
		for _, name := range names {
			delete(o.namespaces, name)
			delete(o.pods, name)
			delete(o.policies, name)
			delete(o.tiers, name)
			inIt := func(n string) bool { return strings.HasPrefix(n, name+"/") }
			for n := range o.pods {
				if inIt(n) {
					delete(o.pods, n)
				}
			}
			for n := range o.policies {
				if inIt(n) {
					delete(o.policies, n)
				}
			}
		}
	}
}

// do returns a change that makes several.
func do(changes ...change) change {
	return func(w *harness, o *objects) {
		for _, c := range changes {
			c(w, o)
		}
	}
}

// only4 leaves a pod its IPv4 address, only6 the other one.
func only4(_ *harness, p *corev1.Pod) { onlyFamily(p, "4") }
func only6(w *harness, p *corev1.Pod) {
	at(p.Name)(w, p)
	onlyFamily(p, "6")
}

func onlyFamily(p *corev1.Pod, family string) {
	kept := slices.DeleteFunc(slices.Clone(p.Status.PodIPs), func(ip corev1.PodIP) bool {
		return strings.Contains(ip.IP, ":") != (family == "6")
	})
	p.Status.PodIPs, p.Status.PodIP = kept, kept[0].IP
}

// claimsHost lets a pod that is in its node's network look like one that is not.
func claimsHost(_ *harness, p *corev1.Pod) { p.Spec.HostNetwork = false }
