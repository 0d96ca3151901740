package matrix

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/internal/reachability"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// pods writes down the pods of a view.
type pods struct {
	writer
	view           *cluster.View
	stands         map[netip.Addr]string // addresses that stand for a domain name, or for most outside -> its name
	partition      *reachability.Partition
	matrix         *Matrix // its rows and columns
	numbers        map[*cluster.Policy]int
	clusterNumbers map[*policy.Cluster]int
	namespaces     map[string]int
	nodes          map[string]int
	named          map[flow.Service]bool
	single         map[*npc.Pod]int // pod -> the subject that stands for it alone
	withOthers     *cluster.View    // with another pod for each that stands for a workload
	others         map[string]string
}

// classes writes the classes down, each with what stands for its pods.
func (w *pods) classes() {
	for _, c := range w.partition.Classes() {
		out := class{Subject: -1, Addrs: []string{}, Stands: w.stands[c.Addr], Nodes: map[int][]node{}}
		for i, e := range c.Ends {
			out.Addrs = append(out.Addrs, addrText(e.Addr))
			for _, n := range w.view.NodesAt(e.Addr) {
				out.Nodes[i] = append(out.Nodes[i], node{n.Name, w.seen(n.Labels)})
			}
		}
		if pod := w.view.Pods[c.Ends[0].Pod]; pod != nil {
			out.Subject = w.subject(pod)
			if slices.ContainsFunc(c.Ends, func(e reachability.End) bool { return e.Alone }) {
				out.Pod = c.Ends[0].Pod
			}
		}
		w.Classes = append(w.Classes, out)
	}
}

// subject adds what policies see of a pod, and which choose it.
func (w *pods) subject(p *npc.Pod) int {
	out := &subject{Namespace: w.namespace(p.Namespace), Node: w.node(p.Node), Labels: w.seen(p.Labels)}
	for _, named := range p.Ports {
		out.Ports = append(out.Ports, port{Protocol: named.Protocol, First: named.Port, Name: named.Name})
	}
	for _, d := range npc.Directions {
		c := &out.Choose[d]
		isolating, isolated := w.view.Isolating(p, d)
		c.Isolated = isolated
		for _, q := range isolating {
			c.Policies = append(c.Policies, w.numbers[q])
		}
		for _, q := range w.view.Choosing(p) {
			switch number := w.clusterNumbers[q]; {
			case len(q.Rules[d]) == 0:
			case q.Tier == policy.Admin:
				c.Admin = append(c.Admin, number)
			default:
				c.Baseline = append(c.Baseline, number)
			}
		}
	}
	w.Subjects = append(w.Subjects, out)
	return len(w.Subjects) - 1
}

// pod returns the subject that stands for one pod alone, or -1 for none.
func (w *pods) pod(p *npc.Pod) int {
	if p == nil {
		return -1
	}
	n, ok := w.single[p]
	if !ok {
		n = w.subject(p)
		w.Subjects[n].Pod = p.Key()
		w.single[p] = n
	}
	return n
}

// seen returns those of labels that policies ask for.
func (w *pods) seen(all map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range all {
		if w.labels[k] {
			out[k] = v
		}
	}
	return out
}

func (w *pods) namespace(name string) int {
	n, ok := w.namespaces[name]
	if !ok {
		object, known := w.view.Namespaces[name]
		n = len(w.Namespaces)
		w.Namespaces = append(w.Namespaces, namespace{name, known, w.seen(object.Labels)})
		w.namespaces[name] = n
	}
	return n
}

// node returns the number of a node that pods are on.
func (w *pods) node(name string) int {
	n, ok := w.nodes[name]
	if !ok {
		n = len(w.nodes)
		w.nodes[name] = n
	}
	return n
}

// The axes that a row is on.
const (
	isRow    = 1
	isColumn = 2
)

// What a row has for a namespace that is no pods.
const (
	isAddress = -1
	isName    = -2
)

// rows writes down rows and columns, in the order of both.
func (w *pods) rows() {
	at := map[string]int{} // first pod or address -> its row
	add := func(r Row, axis int) {
		key := cmp.Or(strings.Join(r.Pods[:min(1, len(r.Pods))], ""), r.Name)
		if i, ok := at[key]; ok {
			w.Rows[i].Axes |= axis
			return
		}
		at[key] = len(w.Rows)
		w.Rows = append(w.Rows, w.row(r, axis))
	}
	for _, r := range w.matrix.From {
		add(r, isRow)
	}
	for _, r := range w.matrix.To {
		add(r, isColumn)
	}
	w.nameWorkloads()
	slices.SortStableFunc(w.Rows, func(a, b row) int {
		if a.Namespace < 0 || b.Namespace < 0 {
			return cmp.Compare(b.Namespace, a.Namespace) // addresses and domain names come last, in their order
		}
		return strings.Compare(w.Namespaces[a.Namespace].Name, w.Namespaces[b.Namespace].Name)
	})
}

func (w *pods) row(r Row, axis int) row {
	out := row{Name: r.Name, Namespace: isAddress, Class: r.Class(), Axes: axis}
	if name := w.Classes[r.Class()].Stands; name != "" {
		out.Name = name
		if axis == isColumn {
			out.Namespace = isName
		}
	}
	if len(r.Pods) == 0 {
		return out
	}
	out.Namespace = w.namespace(r.Namespace())
	out.Prefix = prefixOfAll(r.Pods)
	addrs := func(v *cluster.View, name string) {
		for _, e := range v.OwnedEnds(name) {
			out.Addrs = append(out.Addrs, addrText(e.Addr))
		}
	}
	for _, name := range r.Pods {
		out.Pods = append(out.Pods, name[len(out.Prefix):])
		addrs(w.view, name)
	}
	if name := w.others[r.Pods[0]]; len(r.Pods) == 1 && name != "" {
		out.Other = name[len(out.Prefix):]
		addrs(w.withOthers, name)
	}
	return out
}

// nameWorkloads names rows of several pods by what made them, if no other row has the same: that says more than the
// prefix of their names.
func (w *pods) nameWorkloads() {
	rows := map[string][]int{} // namespace/workload -> its rows
	for i, r := range w.Rows {
		for j, suffix := range r.Pods {
			pod := w.view.Pods[r.Prefix+suffix]
			if pod == nil || pod.Workload == nil {
				continue
			}
			key := npc.ObjectKey(pod.Namespace, pod.Workload.Name)
			if known := rows[key]; j == 0 || len(known) == 0 || known[len(known)-1] != i {
				rows[key] = append(known, i)
			}
		}
	}
	of := map[int]int{} // row -> the workloads of its pods
	for _, found := range rows {
		for _, i := range found {
			of[i]++
		}
	}
	for key, found := range rows {
		r := &w.Rows[found[0]]
		if len(found) == 1 && of[found[0]] == 1 && len(r.Pods) > 1 {
			r.Name = fmt.Sprintf("%s (%d pods)", key, len(r.Pods))
		}
	}
}

// addrText returns an address; it is empty for none.
func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// prefixOfAll returns what all names begin with.
func prefixOfAll(names []string) string {
	prefix := names[0]
	for _, name := range names[1:] {
		for !strings.HasPrefix(name, prefix) {
			prefix = prefix[:len(prefix)-1]
		}
	}
	for !utf8.ValidString(prefix) {
		prefix = prefix[:len(prefix)-1]
	}
	return prefix
}
