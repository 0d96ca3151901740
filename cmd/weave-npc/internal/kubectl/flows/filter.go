package flows

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

// query is the records that are asked for, as texts.
type query struct {
	from, to, port, verdict string
	group                   string // its name, or anyGroup
	since                   time.Duration
}

// anyGroup is --staged-group without a value. It is not a valid name of a group.
const anyGroup = "*"

// filter is the records that are asked for.
type filter struct {
	from, to, port func(*flowlog.Record) bool
	verdict        flowlog.Verdict // empty for any
	group          string          // empty for all records
	after          time.Time
}

// parse returns the filter that a query means.
func (q *query) parse(now time.Time) (*filter, error) {
	f := &filter{verdict: flowlog.Verdict(q.verdict), group: q.group}
	if q.verdict != "" && f.verdict != flowlog.Allowed && f.verdict != flowlog.Denied {
		return nil, errors.Errorf("--verdict: %q is neither %s nor %s", q.verdict, flowlog.Allowed, flowlog.Denied)
	}
	if q.since < 0 {
		return nil, errors.Errorf("--since: %s is negative", q.since)
	}
	if q.since > 0 {
		f.after = now.Add(-q.since)
	}
	var err error
	if f.from, err = parseEnd("--from", q.from, func(r *flowlog.Record) *flowlog.End { return &r.From }); err != nil {
		return nil, err
	}
	if f.to, err = parseEnd("--to", q.to, func(r *flowlog.Record) *flowlog.End { return &r.To }); err != nil {
		return nil, err
	}
	f.port, err = parsePort(q.port)
	return f, err
}

func (f *filter) matches(r *flowlog.Record) bool {
	return !r.Last.Before(f.after) && f.from(r) && f.to(r) && f.port(r) && f.decided(r)
}

// decided reports whether the verdict is one that is asked for, and a group that is asked for would decide otherwise.
func (f *filter) decided(r *flowlog.Record) bool {
	inGroup := func(s flowlog.Staged) bool { return f.group == anyGroup || s.Group == f.group }
	return (f.verdict == "" || r.Verdict == f.verdict) && (f.group == "" || slices.ContainsFunc(r.Staged, inGroup))
}

func every(*flowlog.Record) bool { return true }

// parseEnd reads an address, a CIDR, a namespace, a domain name, or a workload or pod of a namespace.
func parseEnd(flag, text string, end func(*flowlog.Record) *flowlog.End) (func(*flowlog.Record) bool, error) {
	if text == "" {
		return every, nil
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return func(r *flowlog.Record) bool { return end(r).Addr == a.Unmap() }, nil
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return func(r *flowlog.Record) bool { return p.Contains(end(r).Addr) }, nil
	}
	namespace, name, named := strings.Cut(text, "/")
	switch o, ok := flow.ParseObject(text); {
	case ok && o.Kind == flow.KindService:
		return nil, errors.Errorf("%s: %q is a Service: connections through it are recorded with one of its pods; name these",
			flag, text)
	case ok && o.Namespace == "":
		return nil, errors.Errorf("%s: %q has no namespace: write NAMESPACE/%s", flag, text, text)
	case ok && o.Kind == flow.KindPod:
		return func(r *flowlog.Record) bool {
			e := end(r)
			return e.Namespace == o.Namespace && (e.Pod == o.Name || e.Workload == flow.KindPod+"/"+o.Name)
		}, nil
	case ok:
		namespace, name = o.Namespace, o.Kind+"/"+o.Name
	}
	wrong := namespace == "" || named && name == "" || strings.Count(name, "/") > 1
	if wrong || named && len(validation.IsDNS1123Label(namespace)) > 0 { // such as a CIDR of too many bits
		return nil, errors.Errorf("%s: %q is no namespace, NAMESPACE/WORKLOAD, NAMESPACE/POD, address or CIDR",
			flag, text)
	}
	return func(r *flowlog.Record) bool {
		e := end(r)
		if !e.IsPod() {
			return slices.Contains(e.DomainNames, strings.ToLower(text))
		}
		_, workload, _ := strings.Cut(e.Workload, "/")
		return e.Namespace == namespace &&
			(!named || name == e.Workload || name == workload || name == e.Pod)
	}, nil
}

// parsePort reads a port, by its number or by a name.
func parsePort(text string) (func(*flowlog.Record) bool, error) {
	if text == "" {
		return every, nil
	}
	s, err := flow.ParseService(text)
	if err == nil {
		// icmp is that of either family.
		return func(r *flowlog.Record) bool { return r.Port.String() == s.String() }, nil
	}
	protocol, name, ok := flow.ParseNamed(text)
	if !ok {
		return nil, errors.Wrap(err, "--port")
	}
	return func(r *flowlog.Record) bool {
		return r.Port.Protocol == protocol && slices.Contains(r.PortNames, name)
	}, nil
}
