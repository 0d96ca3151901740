// Package reach judges who reaches whom by classes: pods that no policy tells apart are judged once.
package reach

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/explain"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// partition is ends by classes: two of one class get the same verdicts in each of the worlds that the partition was made for.
type partition struct {
	Classes []podClass
	// Left are pods without an address that is their own.
	Left   []string
	worlds []*world
	ends   []end
}

// podClass is pods that no policy tells apart, or an address.
type podClass struct {
	Pods []string // namespace/name, in the order that they were given in
	Addr netip.Addr
	ends []int
}

// end is one address that each pod of a class has, or none yet, by the example of the class's first pod.
type end struct {
	explain.End
	namespace string // of the pods; empty for an address
	// alone is an end whose verdicts are to be asked for one by one: they depend on the node that judges.
	alone bool
}

// newPartition returns the classes of pods, by namespace/name, and of addresses that some worlds give to them. The worlds must know the
// same pods at the same addresses, and must not be changed afterwards.
func newPartition(pods []string, addrs []netip.Addr, worlds ...*explain.World) *partition {
	p := &partition{}
	for _, w := range worlds {
		p.worlds = append(p.worlds, newWorld(w, addrs))
	}
	classes := map[string]int{} // what policies see of a pod -> its class
	for _, name := range pods {
		found, err := worlds[0].Find(name)
		if err != nil {
			p.Left = append(p.Left, name)
			continue
		}
		key := p.key(name, found)
		i, ok := classes[key]
		if !ok {
			i = len(p.Classes)
			classes[key] = i
			p.add(podClass{}, p.worlds[0].objects.Pods[name].Namespace, found)
		}
		p.Classes[i].Pods = append(p.Classes[i].Pods, name)
	}
	for _, a := range addrs {
		p.add(podClass{Addr: a}, "", []explain.End{{Addr: a}})
	}
	return p
}

func (p *partition) add(c podClass, namespace string, ends []explain.End) {
	for _, e := range ends {
		c.ends = append(c.ends, len(p.ends))
		p.ends = append(p.ends, end{e, namespace, e.Addr.IsMulticast() || p.worlds[0].contested[e.Addr] || p.worlds[0].hosts[e.Addr]})
	}
	p.Classes = append(p.Classes, c)
}

// key is what policies see of a pod in all worlds.
func (p *partition) key(name string, ends []explain.End) string {
	var b strings.Builder
	for _, w := range p.worlds {
		w.writeKey(&b, w.objects.Pods[name], ends)
		b.WriteByte(0)
	}
	return b.String()
}

// world is a world with what of its pods matters to its policies.
type world struct {
	*explain.World
	objects explain.Objects
	// labels are the keys that selectors of pods name, ports the names that rules name.
	labels, ports map[string]bool
	blocks        *blocks
	// nodes are those whose pods see something otherwise than the pods of other nodes: an address of their own node among those that are
	// asked about, or an address that several pods claim. Contested are all addresses whose pods are like no other.
	nodes            map[string]bool
	contested, hosts map[netip.Addr]bool
	policies         map[string][]*explain.Policy // namespace -> its policies
}

func newWorld(of *explain.World, addrs []netip.Addr) *world {
	w := &world{World: of, objects: of.Objects(), labels: map[string]bool{}, ports: map[string]bool{}, nodes: map[string]bool{},
		contested: map[netip.Addr]bool{}, hosts: map[netip.Addr]bool{}, policies: map[string][]*explain.Policy{}}
	var all []*policy.CompiledBlock
	for _, p := range w.objects.Policies {
		w.policies[p.Object.Namespace] = append(w.policies[p.Object.Namespace], p)
		w.addLabels(&p.Object.Spec.PodSelector)
		for _, r := range p.Object.Spec.Ingress {
			for _, peer := range r.From {
				w.addLabels(peer.PodSelector)
			}
		}
		for _, r := range p.Object.Spec.Egress {
			for _, peer := range r.To {
				w.addLabels(peer.PodSelector)
			}
		}
		for _, r := range slices.Concat(p.Rules[npc.Ingress], p.Rules[npc.Egress]) {
			for _, peer := range r.Peers {
				if peer.Block != nil {
					all = append(all, peer.Block)
				}
			}
			for _, port := range r.Ports {
				w.ports[port.Name] = true
			}
		}
	}
	w.blocks = newBlocks(all)
	w.lookAtNodes(addrs)
	return w
}

func (w *world) addLabels(s *metav1.LabelSelector) {
	if s == nil {
		return
	}
	for k := range s.MatchLabels {
		w.labels[k] = true
	}
	for _, e := range s.MatchExpressions {
		w.labels[e.Key] = true
	}
}

// lookAtNodes finds the nodes whose pods see something otherwise.
func (w *world) lookAtNodes(addrs []netip.Addr) {
	claimed := make(map[netip.Addr]*npc.Pod, len(w.objects.Pods))
	for _, p := range w.objects.Pods {
		for _, a := range p.Claims() {
			if q := claimed[a]; q != nil {
				w.contested[a], w.nodes[p.Node], w.nodes[q.Node] = true, true, true
			}
			// A pod reaches itself, by its address too: it is like no other if its address is asked about.
			if slices.Contains(addrs, a) {
				w.contested[a] = true
			}
			claimed[a] = p
		}
		for _, a := range p.HostAddrs {
			w.hosts[a] = true
			if slices.Contains(addrs, a) {
				w.nodes[p.Node] = true
			}
		}
	}
}

// writeKey writes what policies see of a pod.
func (w *world) writeKey(b *strings.Builder, p *npc.Pod, ends []explain.End) {
	b.WriteString(p.Namespace)
	words := make([]string, 0, len(p.Labels))
	for k, v := range p.Labels {
		if w.labels[k] {
			words = append(words, k+"="+v)
		}
	}
	slices.Sort(words)
	for _, port := range p.Ports {
		if w.ports[port.Name] {
			words = append(words, fmt.Sprintf("%s %d/%d", port.Name, port.Protocol, port.Port))
		}
	}
	if w.nodes[p.Node] {
		words = append(words, "on "+p.Node)
	}
	for _, word := range words {
		b.WriteByte('\n')
		b.WriteString(word)
	}
	for _, e := range ends {
		fmt.Fprintf(b, "\n%d", w.blocks.class(e.Addr))
		if w.contested[e.Addr] {
			b.WriteString(" of " + p.Name)
		}
	}
}
