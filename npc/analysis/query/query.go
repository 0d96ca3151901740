// Package query answers whether a connection is allowed.
//
// It resolves the ends of a query, explains each flow between them, compares that with the kernel of this node if asked
// to, and adds the nearest changes that would allow what is denied. It must not read clusters or kernels, which come as
// Knowledge, nor print anything.
//
//	q := query.Query{From: "shop/web", To: "shop/db", Port: "tcp/5432"}
//	x, err := query.Explain(q, query.Knowledge{Cluster: c, Pods: pods})
//	x.Allowed, x.Verdicts, x.Nearest
package query

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/npc/analysis/kernelview"
	"github.com/weave-npc/weave-npc/npc/analysis/service"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// Query is a question about a connection. Mistakes in it are answered with the flags --from, --to and --port.
type Query struct{ From, To, Port string }

// Knowledge is what an explanation is based on.
type Knowledge struct {
	Cluster *cluster.Cluster
	// Pods are the pods in the Cluster as objects.
	Pods []*corev1.Pod
	// Network resolves Services, addresses and nodes; nil if both ends are names of pods.
	Network *service.Network
	// Kernel is that of the node called Node; nil if it is not to be compared.
	Kernel Kernel
	Node   string
}

// Kernel answers what the chains and sets of a node do with a flow.
type Kernel interface {
	Verdict(f flow.Flow, node string) (kernelview.FlowTrace, error)
}

// NamesPods reports whether both ends are names of pods. If so, Knowledge needs no Network.
func (q Query) NamesPods() bool {
	return !slices.ContainsFunc([]string{q.From, q.To}, func(end string) bool {
		_, err := netip.ParseAddr(end)
		return err == nil || service.IsName(end) || cluster.NamesNode(end)
	})
}

// resolved is a query with known ends.
type resolved struct {
	// target is the Service that the connection goes to; nil if it goes to none.
	target *service.Target
	// flows are those to each endpoint, in all families that both ends have.
	flows [][]flow.Flow
	// doubts are reasons against taking an address for what it seems to be.
	doubts []string
}

// resolve finds the ends of the connection.
func (q Query) resolve(k Knowledge) (r resolved, err error) {
	if q.From == "" || q.To == "" {
		missing := map[bool]string{true: "--from", false: "--to"}[q.From == ""]
		return r, errors.Errorf("%s is missing: give a pod as NAMESPACE/NAME, or an address", missing)
	}
	if service.IsName(q.From) {
		return r, errors.Errorf("--from: nothing comes from a Service; give one of its pods")
	}
	from, err := k.Cluster.View().Find(q.From)
	if err != nil {
		return r, errors.Wrap(err, "--from")
	}
	if k.Network != nil {
		if name := k.Network.Name(from[0].Addr); name != "" {
			return r, errors.Errorf("--from: %s is %s, from which nothing comes; give one of its pods", q.From, name)
		}
		if r.target, err = k.Network.Find(q.To, q.Port); err != nil {
			return r, errors.Wrap(err, "--to")
		}
	}
	if r.target != nil {
		r.flows = r.target.Flows(from)
	} else if r.flows, err = q.direct(k, from); err != nil {
		return r, err
	}
	if len(r.flows) == 0 {
		return r, errors.Errorf("%s and %s have no addresses of the same family", q.From, q.To)
	}
	r.doubts = q.doubts(k)
	return r, nil
}

// direct returns the flows to a pod or an address that is no Service's.
func (q Query) direct(k Knowledge, from []flow.End) ([][]flow.Flow, error) {
	to, err := q.destination(k.Cluster.View())
	if err != nil {
		return nil, errors.Wrap(err, "--to")
	}
	service, err := k.Cluster.View().Service(q.Port, to)
	if err != nil {
		return nil, errors.Wrap(err, "--port")
	}
	if flows := flow.Between(from, to, service); len(flows) > 0 {
		return [][]flow.Flow{flows}, nil
	}
	return nil, nil
}

// destination returns the ends of a pod, an address or a domain name.
func (q Query) destination(v *cluster.View) (ends []flow.End, err error) {
	_, notAddr := netip.ParseAddr(q.To)
	if notAddr == nil || strings.Contains(q.To, "/") || !strings.Contains(q.To, ".") {
		return v.Find(q.To)
	}
	name := strings.ToLower(strings.TrimSuffix(q.To, "."))
	for a, names := range v.Learned {
		if slices.Contains(names, name) {
			ends = append(ends, flow.End{Addr: a})
		}
	}
	slices.SortFunc(ends, func(a, b flow.End) int { return a.Addr.Compare(b.Addr) })
	service, isService := strings.CutSuffix(strings.TrimSuffix(name, ".cluster.local"), ".svc")
	switch {
	case len(ends) == 0 && isService:
		err = errors.Errorf("%s is the name of a Service; did you mean svc/%s?", q.To, service)
	case len(ends) == 0:
		err = errors.Errorf("no address of %s is known; give one with --resolve %s=ADDRESS, or ask a node that has "+
			"learned it with --kernel; a pod is NAMESPACE/NAME, a Service svc/NAME.NAMESPACE", q.To, name)
	}
	return ends, err
}

// doubts returns the reasons against taking the addresses in the query for what they seem to be, sorted.
func (q Query) doubts(k Knowledge) (doubts []string) {
	for flag, end := range map[string]string{"--from": q.From, "--to": q.To} {
		if addr, err := netip.ParseAddr(end); err == nil {
			doubt := k.Network.Doubt(addr.Unmap())
			if flag == "--from" && addr.Unmap().IsMulticast() {
				doubt = end + " is a multicast address, from which no packet comes"
			}
			if doubt != "" {
				doubts = append(doubts, flag+": "+doubt)
			}
		}
	}
	slices.Sort(doubts)
	return doubts
}
