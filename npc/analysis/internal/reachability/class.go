package reachability

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// Partition is pods and addresses by classes: two of one class get the same verdicts in each of the views that the
// partition was made for.
type Partition struct {
	classes []Class
	omitted []string // pods that own none of their addresses
	views   []*view
	ends    []End // of all classes
}

// Class is pods that no policy distinguishes, or one address.
type Class struct {
	// Pods are namespace/name, in the order that they were given in; none for an address.
	Pods []string
	Addr netip.Addr
	// Ends are the ends of the first pod, which stands for all, or the address.
	Ends []End

	first int // of Ends in the partition's
}

// End is one end of a class: an address of its first pod, or no address yet.
type End struct {
	flow.End
	// Alone is set if its verdicts have to be asked for one by one: they depend on the enforcing node, or on other pods.
	Alone bool

	namespace string // of the pods; empty for an address
}

// Classes returns the classes, which the caller may change.
func (p *Partition) Classes() []Class { return slices.Clone(p.classes) }

// Omitted returns the pods that are in no class, because they own none of their addresses.
func (p *Partition) Omitted() []string { return p.omitted }

// Relation evaluates the policies of a view for a service.
func (p *Partition) Relation(s flow.Service, of int) *Relation {
	return p.evaluate(p.views[of]).relation(s)
}

// NewPartition returns the classes of pods, by namespace/name, and of addresses in some views. The views must have the
// same pods at the same addresses.
func NewPartition(pods []string, addrs []netip.Addr, of ...*cluster.View) *Partition {
	p := &Partition{}
	for _, v := range of {
		p.views = append(p.views, newView(v, addrs))
	}
	classes := map[string]int{} // what policies see of a pod -> its class
	for _, name := range pods {
		found := of[0].OwnedEnds(name)
		if len(found) == 0 {
			p.omitted = append(p.omitted, name)
			continue
		}
		key := p.key(name, found)
		i, ok := classes[key]
		if !ok {
			i = len(p.classes)
			classes[key] = i
			p.add(Class{}, of[0].Pods[name].Namespace, found)
		}
		p.classes[i].Pods = append(p.classes[i].Pods, name)
	}
	for _, a := range addrs {
		p.add(Class{Addr: a}, "", []flow.End{{Addr: a}})
	}
	return p
}

func (p *Partition) add(c Class, namespace string, ends []flow.End) {
	c.first = len(p.ends)
	for _, e := range ends {
		alone := e.Addr.IsMulticast() || p.views[0].special[e.Addr] || p.views[0].IsNodes(e.Addr)
		c.Ends = append(c.Ends, End{e, alone, namespace})
	}
	p.ends, p.classes = append(p.ends, c.Ends...), append(p.classes, c)
}

// key returns what policies see of a pod in all views.
func (p *Partition) key(name string, ends []flow.End) string {
	var b strings.Builder
	for _, v := range p.views {
		v.writeKey(&b, v.Pods[name], ends)
		b.WriteByte(0)
	}
	return b.String()
}

// view is a view of a cluster with what its policies depend on.
type view struct {
	*cluster.View
	// labels are the keys that selectors of pods name, ports the names that rules name.
	labels, ports map[string]bool
	blocks        []ipblock.Block // of all rules
	addresses     *ipblock.Classes
	// nodes are those whose pods get other verdicts than the pods of other nodes: an address of theirs is among those
	// that are asked about, or one of their pods' addresses is claimed by several.
	nodes map[string]bool
	// special are the addresses whose pods are in no class with others.
	special map[netip.Addr]bool
}

func newView(of *cluster.View, addrs []netip.Addr) *view {
	v := &view{View: of, labels: cluster.PodLabels(of), ports: map[string]bool{}, nodes: map[string]bool{},
		special: map[netip.Addr]bool{}, blocks: policy.Blocks(cluster.Rules(of))}
	for r := range cluster.Rules(v.View) {
		for _, port := range r.Ports {
			v.ports[port.Name] = true
		}
	}
	v.addresses = ipblock.NewClasses(v.blocks)
	v.findSpecial(addrs)
	return v
}

// findSpecial finds the nodes and the addresses whose pods get other verdicts than other pods.
func (v *view) findSpecial(addrs []netip.Addr) {
	claimed := make(map[netip.Addr]*npc.Pod, len(v.Pods))
	for _, p := range v.Pods {
		for _, a := range p.Addrs {
			// A pod reaches itself, by its address too: it is in a class of its own if its address is asked about.
			// An address that is a Node's too may match peers that choose nodes.
			if p.StaleAddrs || slices.Contains(addrs, a) || len(v.NodesAt(a)) > 0 {
				v.special[a] = true
			}
		}
		for _, a := range p.Claims() {
			if q := claimed[a]; q != nil {
				v.special[a], v.nodes[p.Node], v.nodes[q.Node] = true, true, true
			}
			claimed[a] = p
		}
		for _, a := range addrs {
			if v.NodeHas(p.Node, a) {
				v.nodes[p.Node] = true
			}
		}
	}
}

// writeKey writes what policies see of a pod.
func (v *view) writeKey(b *strings.Builder, p *npc.Pod, ends []flow.End) {
	b.WriteString(p.Namespace)
	words := make([]string, 0, len(p.Labels))
	for k, value := range p.Labels {
		if v.labels[k] {
			words = append(words, k+"="+value)
		}
	}
	if p.Unlabelled {
		words = append(words, "unlabelled")
	}
	slices.Sort(words)
	words = append(words, v.portWords(p)...)
	if v.nodes[p.Node] {
		words = append(words, "on "+p.Node)
	}
	for _, word := range words {
		b.WriteByte('\n')
		b.WriteString(word)
	}
	for _, e := range ends {
		fmt.Fprintf(b, "\n%d", v.addresses.Of(e.Addr))
		if v.special[e.Addr] {
			b.WriteString(" of " + p.Name)
		}
	}
}

// portWords returns what rules see of the named ports of a pod.
func (v *view) portWords(p *npc.Pod) (words []string) {
	for _, port := range p.Ports {
		if v.ports[port.Name] {
			words = append(words, fmt.Sprintf("%s %d/%d", port.Name, port.Protocol, port.Port))
		}
	}
	return words
}
