package propose

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

// counts is every workload that is known, whether or not its connections count.
type counts struct {
	workloads map[string]*workload
	addrs     []netip.Addr // of pods
}

// count returns the workloads of records and of what else is known of the cluster, if anything is.
func count(records []flowlog.Record, known *cluster.View) *counts {
	c := &counts{workloads: map[string]*workload{}}
	for _, record := range records {
		for _, e := range []flowlog.End{record.From, record.To} {
			if e.IsPod() {
				w := c.workload(e.Namespace, e.Labels, cmp.Or(e.Pod, e.Workload))
				w.names = insert(w.names, e.Workload)
				c.addrs = append(c.addrs, e.Addr)
			}
		}
		if record.To.IsPod() {
			c.of(record.To).ports.record(record.Port, record.PortNames)
		}
	}
	if known != nil {
		for _, key := range known.PodNames("") {
			p := known.Pods[key]
			c.workload(p.Namespace, p.Labels, p.Name).ports.confirm(p.Ports)
			c.addrs = append(c.addrs, p.Addrs...)
		}
	}
	slices.SortFunc(c.addrs, netip.Addr.Compare)
	c.addrs = slices.Compact(c.addrs)
	all := slices.Collect(maps.Values(c.workloads))
	for _, w := range all {
		w.selector = w.selectorAmong(all)
	}
	return c
}

// workload returns the workload of pods with some labels, which is added if it was not known.
func (c *counts) workload(namespace string, labels map[string]string, pod string) *workload {
	key := flowlog.Likeness(namespace, labels)
	w := c.workloads[key]
	if w == nil {
		w = &workload{namespace: namespace, labels: flowlog.Lasting(labels), pod: npc.ObjectKey(namespace, pod),
			key: key}
		c.workloads[key] = w
	}
	return w
}

// of returns the workload of an end that is a pod.
func (c *counts) of(e flowlog.End) *workload {
	return c.workloads[flowlog.Likeness(e.Namespace, e.Labels)]
}

// in returns the workloads of a namespace, in order.
func (c *counts) in(namespace string) (all []*workload) {
	for _, w := range c.workloads {
		if w.namespace == namespace {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, (*workload).compare)
	return all
}

// insert returns a sorted slice with an item.
func insert(sorted []string, item string) []string {
	i, found := slices.BinarySearch(sorted, item)
	if found {
		return sorted
	}
	return slices.Insert(sorted, i, item)
}
