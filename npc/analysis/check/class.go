package check

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// class is pods that neither policies nor expectations distinguish, each with one of its addresses.
type class struct {
	ends []flow.End
	pod  *npc.Pod // the first one
	// alone is set if verdicts depend on other pods or on the node: there is one end, which is asked about as it is.
	alone bool
}

// addNumbers adds the numbers of a pod's named ports. It skips names that no policy and no expectation uses.
func (p *Prover) addNumbers(q *npc.Pod) {
	for _, port := range q.Ports {
		s := flow.Service{Protocol: port.Protocol, Port: port.Port}
		if p.portNames[port.Name] && !slices.Contains(p.numbers[port.Name], s) {
			p.numbers[port.Name] = append(p.numbers[port.Name], s)
		}
	}
}

// classify puts all pods into classes.
func (p *Prover) classify(addresses *ipblock.Classes) {
	claims := make(map[netip.Addr]int, len(p.view.Pods))
	for _, q := range p.view.Pods {
		for _, a := range q.Claims() {
			claims[a]++
		}
		if q.StaleAddrs {
			for _, a := range q.Addrs {
				claims[a]++
			}
		}
	}
	known := map[string]*class{}
	for _, name := range p.view.PodNames("") {
		q := p.view.Pods[name]
		ends := p.view.OwnedEnds(name)
		if len(ends) == 0 {
			p.unasked = append(p.unasked, name)
			continue
		}
		key := p.podKey(q)
		for _, e := range ends {
			alone := claims[e.Addr] > 1 || p.isNodes(e.Addr)
			text := key + strconv.Itoa(addresses.Of(e.Addr))
			if alone {
				text = name + " " + e.Addr.String()
			}
			c := known[text]
			if c == nil {
				c = &class{pod: q, alone: alone}
				known[text] = c
				p.classes = append(p.classes, c)
			}
			c.ends = append(c.ends, e)
		}
	}
}

// podKey returns what policies and expectations see of a pod.
func (p *Prover) podKey(q *npc.Pod) string {
	var b strings.Builder
	b.WriteString(q.Namespace + "\n")
	for _, k := range slices.Sorted(maps.Keys(q.Labels)) {
		if p.keys[k] {
			b.WriteString(k + "=" + q.Labels[k] + "\n")
		}
	}
	var ports []string
	for _, port := range q.Ports {
		if p.portNames[port.Name] {
			ports = append(ports, port.Name+" "+strconv.Itoa(int(port.Protocol))+"/"+strconv.Itoa(int(port.Port)))
		}
	}
	slices.Sort(ports)
	fmt.Fprintf(&b, "%q\n", ports)
	if p.mentioned[q.Key()] {
		b.WriteString("pod " + q.Name + "\n")
	}
	if q.Workload != nil && p.mentioned[q.Namespace+"/"+q.Workload.Name] {
		b.WriteString("of " + q.Workload.String() + "\n")
	}
	return b.String()
}

// unusedName returns a name that no pod of a namespace has or, without one, no namespace.
func (p *Prover) unusedName(namespace, name string) string {
	taken := func(name string) bool {
		if namespace != "" {
			return p.view.Pods[namespace+"/"+name] != nil
		}
		_, known := p.view.Namespaces[name]
		return known || slices.ContainsFunc(p.invented, func(n npc.Namespace) bool { return n.Name == name })
	}
	out := name
	for n := 2; taken(out); n++ {
		out = name + "-" + strconv.Itoa(n)
	}
	return out
}
