package cluster

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// Find returns the ends that a text names. For a pod, as namespace/name, or the first one of a workload, as
// namespace/kind/name, that is one end for each address in its status, or one without an address if it has none yet, or
// if it could not be read. For an address it is that address, for a Node, as node/name, the addresses in its status. It
// returns an error if the pod does not exist, has
// finished, or is on the network of a node without known addresses.
func (v *View) Find(text string) ([]flow.End, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return []flow.End{{Addr: a.Unmap()}}, nil
	}
	if e, ok := findUnreadable(v, text); ok {
		return []flow.End{e}, nil
	}
	p := v.Pods[podOf(v, text)]
	switch {
	case p == nil:
		if ends := nodeEnds(v, text); len(ends) > 0 {
			return ends, nil
		}
		return nil, noPod(v, text)
	case p.Finished:
		return nil, errors.Errorf("pod %s has finished: nothing reaches it, nor does it reach anything", text)
	case p.HostNetwork:
		ends := hostEnds(p)
		if len(ends) == 0 {
			return nil, errors.Errorf("pod %s is on the network of its node, whose addresses are not known: give one of them", text)
		}
		return ends, nil
	case len(p.Addrs) == 0:
		return []flow.End{{Pod: p.Key()}}, nil
	}
	var ends []flow.End
	for _, a := range p.Addrs {
		ends = append(ends, flow.End{Pod: p.Key(), Addr: a})
	}
	return ends, nil
}

// podOf returns the first pod of a workload that a text names, as namespace/kind/name, or else the text.
func podOf(v *View, text string) string {
	if pods := podsOf(v, text); len(pods) > 0 {
		return pods[0]
	}
	return strings.Replace(text, "/Pod/", "/", 1)
}

// podsOf returns the pods of a workload that a text names, as namespace/kind/name, sorted.
func podsOf(v *View, text string) (pods []string) {
	for key, p := range v.Pods {
		if p.Workload != nil && !p.Finished && text == p.Namespace+"/"+p.Workload.Kind+"/"+p.Workload.Name {
			pods = append(pods, key)
		}
	}
	slices.Sort(pods)
	return pods
}

// OwnedEnds returns the ends of a pod, as Find does, without addresses that another pod or a node owns or that are
// stale. There are none if the pod owns none of its addresses, or cannot be an end.
func (v *View) OwnedEnds(pod string) []flow.End {
	ends, err := v.Find(pod)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(ends, func(e flow.End) bool {
		p := v.Pods[e.Pod]
		return p != nil && e.Addr.IsValid() && v.Owner(e.Addr, p.Node) != p
	})
}

// nodeOf returns the name of the node that a text names, as node/name.
func nodeOf(text string) (name string, ok bool) {
	kind, name, _ := strings.Cut(text, "/")
	switch strings.ToLower(kind) {
	case "node", "nodes", "no":
		return name, name != ""
	}
	return "", false
}

// NamesNode reports whether a text names a Node as Find takes it: node/name.
func NamesNode(text string) bool {
	_, ok := nodeOf(text)
	return ok
}

// nodeEnds returns the addresses in the status of the Node that a text names, in order.
func nodeEnds(v *View, text string) (ends []flow.End) {
	name, ok := nodeOf(text)
	for a, nodes := range v.nodesAt {
		if ok && slices.ContainsFunc(nodes, func(n npc.Node) bool { return n.Name == name }) {
			ends = append(ends, flow.End{Addr: a})
		}
	}
	slices.SortFunc(ends, func(a, b flow.End) int { return a.Addr.Compare(b.Addr) })
	return ends
}

// hostEnds returns the ends of a pod on the network of its node: the node's addresses.
func hostEnds(p *npc.Pod) []flow.End {
	var ends []flow.End
	for _, a := range slices.Concat(p.Addrs, p.HostAddrs) {
		if e := (flow.End{Addr: a}); !slices.Contains(ends, e) {
			ends = append(ends, e)
		}
	}
	return ends
}

// PodNames returns the pods that can be ends of a flow, sorted; only those of one namespace if it is not empty. Pods on
// the network of their node and finished ones are not among them.
func (v *View) PodNames(namespace string) []string {
	var out []string
	for key, p := range v.Pods {
		if p.HasNetwork() && (namespace == "" || p.Namespace == namespace) {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

// Service reads what flow.ParseService does, or a port by the name that a pod of the ends gives to it: "tcp/http", or
// "http" (of TCP).
func (v *View) Service(text string, to []flow.End) (flow.Service, error) {
	s, err := flow.ParseService(text)
	if err == nil {
		return s, nil
	}
	protocol, name, ok := flow.ParseNamed(text)
	if !ok {
		return flow.Service{}, err
	}
	var has []string
	for _, e := range to {
		pod := v.Pods[e.Pod]
		if e.Pod == "" {
			pod = v.Owner(e.Addr, "")
		}
		if pod == nil {
			return flow.Service{}, errors.Errorf("%q is the name of a port, and %s is no pod that could have one",
				text, e)
		}
		for _, p := range pod.Ports {
			if p.Name == name && p.Protocol == protocol {
				return flow.Service{Protocol: protocol, Port: p.Port}, nil
			}
			if p.Name != "" {
				has = append(has, npc.ProtocolName(p.Protocol)+"/"+p.Name)
			}
		}
	}
	return flow.Service{}, errors.Errorf("%s has no %s port of the name %s%s", to[0], npc.ProtocolName(protocol), name,
		otherName(name, has))
}

// otherName returns the end of a sentence about a name that a port does not have: that of another protocol, or else
// the names that there are, each as protocol/name.
func otherName(name string, has []string) string {
	slices.Sort(has)
	has = slices.Compact(has)
	for _, of := range has {
		if _, same, _ := strings.Cut(of, "/"); same == name {
			return "; did you mean " + of + "?"
		}
	}
	if len(has) == 0 {
		return "; give its number"
	}
	return "; it has " + spelling.Some(has)
}

// CheckNamespace returns an error if there is neither a namespace nor any object in a namespace of that name. The empty
// name, which stands for all namespaces, is no error, nor is that of a namespace that could not be read.
func (v *View) CheckNamespace(name string) error {
	known := knownNamespaces(v)
	if _, ok := known[name]; ok || name == "" || v.Unreadable.Namespaces.Lacks(name) {
		return nil
	}
	return errors.Errorf("there is no namespace %s%s", name, spelling.DidYouMean(name, maps.Keys(known)))
}

// noPod returns the error for a text that is neither a pod nor an address, with a suggestion if there is one.
func noPod(v *View, text string) error {
	const forms = "give a pod as NAMESPACE/NAME, or an address"
	namespace, name, ok := strings.Cut(text, "/")
	if p, err := netip.ParsePrefix(text); err == nil {
		return errors.Errorf("%s is a range; ask about one of its addresses, such as %s, "+
			"or about a pod as NAMESPACE/NAME",
			text, p.Addr())
	}
	var named []string // the pods of the same name in other namespaces
	for _, key := range slices.Sorted(maps.Keys(v.Pods)) {
		if p := v.Pods[key]; p.Name == text || ok && p.Name == name {
			named = append(named, key)
		}
	}
	intended := ""
	if len(named) > 0 {
		intended = "; did you mean " + named[0] + "?"
	}
	if kind, workload, three := strings.Cut(name, "/"); three && namespace != "" && workload != "" {
		return noWorkload(v, namespace, npc.Workload{Kind: kind, Name: workload})
	}
	if !ok || namespace == "" || name == "" {
		return errors.Errorf("%q is neither an address nor a pod as NAMESPACE/NAME%s",
			text, cmp.Or(intended, "; "+forms))
	}
	known := knownNamespaces(v)
	if _, ok := known[namespace]; !ok {
		if node, ok := nodeOf(text); ok {
			return errors.Errorf("no address of node %s is known: give one of its addresses", node)
		}
		return errors.Errorf("there is no namespace %s%s",
			namespace, cmp.Or(intended, spelling.DidYouMean(namespace, maps.Keys(known))))
	}
	near := spelling.DidYouMean(text, func(yield func(string) bool) {
		for key, p := range v.Pods {
			if p.Namespace == namespace && !yield(key) {
				return
			}
		}
	})
	return errors.Errorf("there is no pod %s%s", text, cmp.Or(near, intended))
}

// noWorkload returns the error for a workload without pods, with a suggestion if there is one.
func noWorkload(v *View, namespace string, w npc.Workload) error {
	var same []string // those of the name in other namespaces, or of another kind
	for _, p := range v.Pods {
		if p.Workload != nil && !p.Finished && p.Workload.Name == w.Name &&
			(*p.Workload == w || p.Namespace == namespace) {
			same = append(same, p.Namespace+"/"+p.Workload.String())
		}
	}
	if len(same) > 0 {
		return errors.Errorf("there is no pod of %s %s/%s; did you mean %s?", w.Kind, namespace, w.Name, slices.Min(same))
	}
	if err := v.CheckNamespace(namespace); err != nil {
		return err
	}
	near := spelling.DidYouMean(w.String(), func(yield func(string) bool) {
		for _, p := range v.Pods {
			if p.Namespace == namespace && p.Workload != nil && !p.Finished && !yield(p.Workload.String()) {
				return
			}
		}
	})
	return errors.Errorf("there is no pod of %s %s/%s%s", w.Kind, namespace, w.Name, near)
}

// knownNamespaces returns the namespaces that exist or have objects in them, and the default one, which every cluster
// has.
func knownNamespaces(v *View) map[string]struct{} {
	known := map[string]struct{}{metav1.NamespaceDefault: {}}
	for name := range v.Namespaces {
		known[name] = struct{}{}
	}
	for _, p := range v.Pods {
		known[p.Namespace] = struct{}{}
	}
	for _, p := range v.Policies {
		known[p.Namespace] = struct{}{}
	}
	return known
}
