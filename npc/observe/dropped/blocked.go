// Package dropped logs and counts the packets that the chains of weave-npc dropped.
//
// The first packet of a flow has a line of its own, repeats are summed up, and the log is bounded in total and for each
// source. The package must not know how packets are reported, nor how policies are compiled: names come from a Names.
//
//	r := dropped.NewReporter(model, domains, []uint16{80, 443}, registry, log)
//	go r.Run(ctx)
//	// msg=blocked direction=ingress protocol=TCP from="shop/web (10.32.1.2:4711)" to=... isolated_by=shop/db
//	r.Handle(packet)
package dropped

import (
	"context"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/verdict"
	npcflow "github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/observe/dedup"
	"github.com/weave-npc/weave-npc/ulogd"
)

// Names describes addresses.
type Names interface {
	// NameOf returns the pod that has an address, as namespace/name, "node" for an address of a node, or an empty
	// string.
	NameOf(netip.Addr) string
	// Isolating returns the policies, as namespace/name, that isolate the local pod with an address in a direction.
	Isolating(netip.Addr, npc.Direction) []string
	// DeniedBy returns the rule of a cluster network policy that denies a flow in a direction, or an empty string.
	DeniedBy(verdict.Flow, npc.Direction) string
}

// Domains know the domain names of addresses.
type Domains interface {
	// NamesAt returns a few names that an address is known to a local pod by.
	NamesAt(pod, a netip.Addr) []string
}

// Reporter logs and counts blocked packets.
type Reporter struct {
	names      Names
	domains    Domains
	log        *slog.Logger
	ports      map[uint16]string // counted destination port -> its label
	count      *prometheus.CounterVec
	suppressed prometheus.Counter
	lines      *dedup.Log[flow, netip.Addr, ulogd.Packet]
}

// flow identifies packets that repeat each other. The source port is no part of it, as a client tries again from
// another one.
type flow struct {
	group              string
	protocol           uint8
	src, dst           netip.Addr
	port               uint16
	icmpType, icmpCode uint8
	fragment           bool
}

// NewReporter returns a reporter whose metric has a label value for each of some destination ports, and one for all
// others.
func NewReporter(
	names Names, domains Domains, ports []uint16, registry prometheus.Registerer, log *slog.Logger,
) *Reporter {
	r := &Reporter{names: names, domains: domains, log: log, ports: map[uint16]string{},
		count: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weavenpc_blocked_connections_total",
			Help: "Connection attempts that were blocked and reported. " +
				"Ports that are not among --counted-ports count as other."},
			[]string{"protocol", "dport"}),
		suppressed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weavenpc_blocked_log_suppressed_total",
			Help: "Packets that were blocked, reported and counted, " +
				"but neither logged nor summed up in a line of the log."}),
	}
	for _, p := range ports {
		r.ports[p] = strconv.Itoa(int(p))
	}
	r.lines = dedup.New[flow](r.line, func(packets int, most netip.Addr) {
		log.Info("blocked", "not_logged", packets, "most_from", r.endpoint(most, 0))
	})
	registry.MustRegister(r.count, r.suppressed)
	return r
}

// Groups returns the NFLOG groups of packets blocked on ingress and egress, the former with the number first.
func (r *Reporter) Groups(first uint16) []ulogd.Group {
	return []ulogd.Group{{Number: first, Name: npc.Ingress.String()}, {Number: first + 1, Name: npc.Egress.String()}}
}

// Run logs the repeats of each flow at the end of its window, until the context ends.
func (r *Reporter) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			r.sumUp(time.Now().Add(dedup.Window)) // as if all windows had ended
			return nil
		case now := <-tick.C:
			r.sumUp(now)
		}
	}
}

// Handle counts a packet, and logs it if it is the first of its flow.
func (r *Reporter) Handle(p ulogd.Packet) { r.handleAt(p, time.Now()) }

func (r *Reporter) handleAt(p ulogd.Packet, now time.Time) {
	protocol := "other"
	switch name := p.ProtocolName(); name {
	case "TCP", "UDP", "SCTP", "ICMP", "ICMPv6":
		protocol = strings.ToLower(name)
	}
	port, ok := r.ports[p.DstPort]
	if !ok {
		port = "other"
	}
	r.count.WithLabelValues(protocol, port).Inc()

	f := flow{p.Group, p.Protocol, p.Src, p.Dst, p.DstPort, p.ICMPType, p.ICMPCode, p.Fragment}
	r.suppressed.Add(float64(r.lines.Add(f, p.Src, p, 1, now)))
}

// sumUp logs the repeats of flows whose windows have ended, and the number of packets without a line.
func (r *Reporter) sumUp(now time.Time) { r.suppressed.Add(float64(r.lines.SumUp(now))) }

// line logs a packet, with its repeats if there are any.
func (r *Reporter) line(p ulogd.Packet, number int, within time.Duration) {
	direction, own := npc.Ingress, p.Dst
	if p.Group == npc.Egress.String() {
		direction, own = npc.Egress, p.Src
	}
	args := []any{"direction", direction, "protocol", p.ProtocolName(),
		"from", r.endpoint(p.Src, p.SrcPort), "to", r.endpoint(p.Dst, p.DstPort)}
	switch {
	case p.Fragment:
		args = append(args, "fragment", true)
	case p.Truncated:
		args = append(args, "truncated", true)
	case strings.HasPrefix(p.ProtocolName(), "ICMP"):
		args = append(args, "icmp_type", p.ICMPType, "icmp_code", p.ICMPCode)
	}
	if names := r.domains.NamesAt(p.Src, p.Dst); len(names) > 0 {
		args = append(args, "domain_names", strings.Join(names, ","))
	}
	if rule := r.deniedBy(p, direction); rule != "" {
		args = append(args, "denied_by", rule)
	} else if policies := r.names.Isolating(own, direction); len(policies) > 0 {
		args = append(args, "isolated_by", strings.Join(policies, ","))
	}
	if number > 0 {
		args = append(args, "repeats", number, "within", within.Round(time.Second))
	}
	r.log.Info("blocked", args...)
}

// deniedBy returns the rule of a cluster network policy that denies a packet in a direction. It is empty if none does,
// or if the port of the packet is not known.
func (r *Reporter) deniedBy(p ulogd.Packet, d npc.Direction) string {
	if p.Fragment || p.Truncated {
		return ""
	}
	service := npcflow.Service{Protocol: p.Protocol, Port: p.DstPort}
	return r.names.DeniedBy(verdict.Flow{From: p.Src, To: p.Dst, Service: service}, d)
}

// endpoint returns the text for one end of a packet: its address, its port unless 0, and its name if known.
func (r *Reporter) endpoint(a netip.Addr, port uint16) string {
	text := a.String()
	if port != 0 {
		text = netip.AddrPortFrom(a, port).String()
	}
	if name := r.names.NameOf(a); name != "" {
		return name + " (" + text + ")"
	}
	return text
}
