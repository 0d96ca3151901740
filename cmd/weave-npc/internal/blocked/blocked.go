// Package blocked logs and counts the packets that the chains of weave-npc dropped.
//
// The first packet of a flow has a line of its own, repeats are summed up, and the log is bounded in total and for each source. The package must
// not know how packets are reported, nor how policies are compiled: names come from a Names.
//
//	r := blocked.NewReporter(model, []uint16{80, 443}, registry, log)
//	go r.Run(ctx)
//	r.Handle(packet) // msg=blocked direction=ingress protocol=TCP from="shop/web (10.32.1.2:4711)" to=... isolated_by=shop/db
package blocked

import (
	"context"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weave-npc/weave-npc/npc/traffic"
	"github.com/weave-npc/weave-npc/ulogd"
)

const (
	// window is how long packets of the same flow count as repeats of the first.
	window = 10 * time.Second
	// The log takes a burst of maxBurst lines and linesPerSecond in the long run. At most maxLinesOfSource in a window are about one source, so
	// that a port scan does not hide other sources.
	maxBurst         = 100
	linesPerSecond   = 10
	maxLinesOfSource = 30
	// maxSenders bounds the number of sources that are accounted for separately.
	maxSenders = 1024
)

// Names describes addresses.
type Names interface {
	// NameOf returns the pod that has an address, as namespace/name, "node" for an address of a node, or an empty string.
	NameOf(netip.Addr) string
	// Isolating returns the policies, as namespace/name, that isolate the local pod with an address in a direction.
	Isolating(netip.Addr, traffic.Direction) []string
	// DeniedBy returns the rule of a cluster network policy that denies a packet in a direction, or an empty string.
	DeniedBy(ulogd.Packet, traffic.Direction) string
}

// Reporter logs and counts blocked packets.
type Reporter struct {
	names      Names
	log        *slog.Logger
	ports      map[uint16]string // counted destination port -> its label
	count      *prometheus.CounterVec
	suppressed prometheus.Counter

	mu      sync.Mutex
	flows   map[flow]*repeats      // flows with a line in the current window
	senders map[netip.Addr]*sender // sources of the packets since the time in since
	since   time.Time              // when senders was last cleared
	omitted int                    // packets without a line since then
	tokens  float64                // lines that the log takes at the time in filled
	filled  time.Time
}

// flow identifies packets that repeat each other. The source port is no part of it, as a client tries again from another one.
type flow struct {
	group              string
	protocol           uint8
	src, dst           netip.Addr
	port               uint16
	icmpType, icmpCode uint8
	fragment           bool
}

// repeats are the packets of a flow since its last line.
type repeats struct {
	since time.Time
	count int
	last  ulogd.Packet
}

// sender counts the lines about a source of blocked packets, and its packets without a line.
type sender struct{ lines, omitted int }

// NewReporter returns a reporter whose metric has a label value for each of some destination ports, and one for all others.
func NewReporter(names Names, ports []uint16, registry prometheus.Registerer, log *slog.Logger) *Reporter {
	r := &Reporter{names: names, log: log, ports: map[uint16]string{}, flows: map[flow]*repeats{}, senders: map[netip.Addr]*sender{},
		tokens: maxBurst,
		count: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weavenpc_blocked_connections_total",
			Help: "Connection attempts that were blocked and reported. Ports that are not among --counted-ports count as other."},
			[]string{"protocol", "dport"}),
		suppressed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weavenpc_blocked_log_suppressed_total",
			Help: "Packets that were blocked, reported and counted, but neither logged nor summed up in a line of the log."}),
	}
	for _, p := range ports {
		r.ports[p] = strconv.Itoa(int(p))
	}
	registry.MustRegister(r.count, r.suppressed)
	return r
}

// Groups returns the NFLOG groups of packets blocked on ingress and egress, the former with the number first.
func (r *Reporter) Groups(first uint16) []ulogd.Group {
	return []ulogd.Group{{Number: first, Name: traffic.Ingress.String()}, {Number: first + 1, Name: traffic.Egress.String()}}
}

// Run logs the repeats of each flow at the end of its window, until the context ends.
func (r *Reporter) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			r.sumUp(time.Now().Add(window)) // as if all windows had ended
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

	r.mu.Lock()
	defer r.mu.Unlock()
	f := flow{p.Group, p.Protocol, p.Src, p.Dst, p.DstPort, p.ICMPType, p.ICMPCode, p.Fragment}
	if seen := r.flows[f]; seen != nil {
		seen.count++
		seen.last = p
		return
	}
	if !r.allow(p.Src, 1, now) {
		return
	}
	r.flows[f] = &repeats{since: now}
	r.line(p)
}

// sumUp logs the repeats of flows whose windows have ended, and the number of packets without a line.
func (r *Reporter) sumUp(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for f, seen := range r.flows {
		if now.Sub(seen.since) < window {
			continue
		}
		if seen.count == 0 || !r.allow(f.src, seen.count, now) {
			delete(r.flows, f)
			continue
		}
		r.line(seen.last, "repeats", seen.count, "within", now.Sub(seen.since).Round(time.Second))
		*seen = repeats{since: now}
	}
	if now.Sub(r.since) < window {
		return
	}
	if r.omitted > 0 {
		var most netip.Addr
		for a, s := range r.senders {
			if !most.IsValid() || s.omitted > r.senders[most].omitted {
				most = a
			}
		}
		r.log.Info("blocked", "not_logged", r.omitted, "most_from", r.endpoint(most, 0))
	}
	r.since, r.omitted = now, 0
	clear(r.senders)
}

// allow reports whether the log takes a line about a number of packets of a source. If not, it counts them as omitted.
func (r *Reporter) allow(src netip.Addr, packets int, now time.Time) bool {
	if !r.filled.IsZero() {
		r.tokens = min(maxBurst, r.tokens+now.Sub(r.filled).Seconds()*linesPerSecond)
	}
	r.filled = now
	s := r.senders[src]
	if s == nil && len(r.senders) < maxSenders {
		s = &sender{}
		r.senders[src] = s
	}
	if r.tokens >= 1 && (s == nil || s.lines < maxLinesOfSource) {
		r.tokens--
		if s != nil {
			s.lines++
		}
		return true
	}
	if s != nil {
		s.omitted += packets
	}
	r.omitted += packets
	r.suppressed.Add(float64(packets))
	return false
}

// line logs a packet with additional attributes.
func (r *Reporter) line(p ulogd.Packet, more ...any) {
	direction, own := traffic.Ingress, p.Dst
	if p.Group == traffic.Egress.String() {
		direction, own = traffic.Egress, p.Src
	}
	args := []any{"direction", direction, "protocol", p.ProtocolName(), "from", r.endpoint(p.Src, p.SrcPort), "to", r.endpoint(p.Dst, p.DstPort)}
	switch {
	case p.Fragment:
		args = append(args, "fragment", true)
	case p.Truncated:
		args = append(args, "truncated", true)
	case strings.HasPrefix(p.ProtocolName(), "ICMP"):
		args = append(args, "icmp_type", p.ICMPType, "icmp_code", p.ICMPCode)
	}
	if rule := r.names.DeniedBy(p, direction); rule != "" {
		args = append(args, "denied_by", rule)
	} else if policies := r.names.Isolating(own, direction); len(policies) > 0 {
		args = append(args, "isolated_by", strings.Join(policies, ","))
	}
	r.log.Info("blocked", append(args, more...)...)
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
