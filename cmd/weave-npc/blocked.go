package main

import (
	"context"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/controller"
	"github.com/weave-npc/weave-npc/ulogd"
)

const (
	// repeatsWithin is how long packets of the same flow count as repeats of the first.
	repeatsWithin = 10 * time.Second
	// The log takes linesAtOnce lines about blocked packets at once, and linesPerSecond for long; linesOfSource of them about one source within
	// repeatsWithin, so that who tries everything does not hide the others.
	linesAtOnce    = 100
	linesPerSecond = 10
	linesOfSource  = 30
	// namedSources is of how many sources it is known how much of what they sent was left out of the log.
	namedSources = 1024
)

// blocked logs and counts the packets that our rules dropped.
type blocked struct {
	model      *controller.Controller
	log        *slog.Logger
	ports      map[uint16]string // counted destination port -> its label
	count      *prometheus.CounterVec
	suppressed prometheus.Counter

	mu      sync.Mutex
	flows   map[flow]*repeats      // those logged within repeatsWithin
	senders map[netip.Addr]*sender // of what was logged or left out within repeatsWithin
	since   time.Time              // when senders began
	left    int                    // packets left out of the log since then
	tokens  float64                // lines that the log takes now
	filled  time.Time              // when tokens was right
}

// flow is what packets have in common that repeat each other: a client that tries again does so from another port.
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

// sender is what is known of a source of blocked packets.
type sender struct{ lines, left int }

func newBlocked(m *controller.Controller, ports []uint16, r prometheus.Registerer, log *slog.Logger) *blocked {
	b := &blocked{model: m, log: log, ports: map[uint16]string{}, flows: map[flow]*repeats{}, senders: map[netip.Addr]*sender{},
		tokens: linesAtOnce,
		count: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weavenpc_blocked_connections_total",
			Help: "Connection attempts that were blocked and reported. Ports that are not among --counted-ports count as other."},
			[]string{"protocol", "dport"}),
		suppressed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weavenpc_blocked_log_suppressed_total",
			Help: "Packets that were blocked, reported and counted, but neither logged nor summed up in a line of the log."}),
	}
	for _, p := range ports {
		b.ports[p] = strconv.Itoa(int(p))
	}
	r.MustRegister(b.count, b.suppressed)
	return b
}

// groups are the NFLOG groups by which packets blocked in either direction come.
func (b *blocked) groups(first uint16) []ulogd.Group {
	return []ulogd.Group{{Number: first, Name: npc.Ingress.String()}, {Number: first + 1, Name: npc.Egress.String()}}
}

// run says at the end of each flow's window how often the flow was repeated, until the context ends.
func (b *blocked) run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			b.sumUp(time.Now().Add(repeatsWithin)) // what there is
			return nil
		case now := <-tick.C:
			b.sumUp(now)
		}
	}
}

// handle counts a packet, and logs it if it is the first of its flow.
func (b *blocked) handle(p ulogd.Packet) { b.handleAt(p, time.Now()) }

func (b *blocked) handleAt(p ulogd.Packet, now time.Time) {
	protocol := "other"
	switch name := p.ProtocolName(); name {
	case "TCP", "UDP", "SCTP", "ICMP", "ICMPv6":
		protocol = strings.ToLower(name)
	}
	port, ok := b.ports[p.DstPort]
	if !ok {
		port = "other"
	}
	b.count.WithLabelValues(protocol, port).Inc()

	b.mu.Lock()
	defer b.mu.Unlock()
	f := flow{p.Group, p.Protocol, p.Src, p.Dst, p.DstPort, p.ICMPType, p.ICMPCode, p.Fragment}
	if seen := b.flows[f]; seen != nil {
		seen.count++
		seen.last = p
		return
	}
	if !b.allow(p.Src, 1, now) {
		return
	}
	b.flows[f] = &repeats{since: now}
	b.line(p)
}

// sumUp says how often flows were repeated whose windows have ended, and what was left out of the log.
func (b *blocked) sumUp(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for f, seen := range b.flows {
		if now.Sub(seen.since) < repeatsWithin {
			continue
		}
		if seen.count == 0 || !b.allow(f.src, seen.count, now) {
			delete(b.flows, f)
			continue
		}
		b.line(seen.last, "repeats", seen.count, "within", now.Sub(seen.since).Round(time.Second))
		*seen = repeats{since: now}
	}
	if now.Sub(b.since) < repeatsWithin {
		return
	}
	if b.left > 0 {
		var most netip.Addr
		for a, s := range b.senders {
			if !most.IsValid() || s.left > b.senders[most].left {
				most = a
			}
		}
		b.log.Info("blocked", "not_logged", b.left, "most_from", b.end(most, 0))
	}
	b.since, b.left = now, 0
	clear(b.senders)
}

// allow says whether the log takes a line about so many packets of a source, and else takes note that it does not.
func (b *blocked) allow(src netip.Addr, packets int, now time.Time) bool {
	if !b.filled.IsZero() {
		b.tokens = min(linesAtOnce, b.tokens+now.Sub(b.filled).Seconds()*linesPerSecond)
	}
	b.filled = now
	s := b.senders[src]
	if s == nil && len(b.senders) < namedSources {
		s = &sender{}
		b.senders[src] = s
	}
	if b.tokens >= 1 && (s == nil || s.lines < linesOfSource) {
		b.tokens--
		if s != nil {
			s.lines++
		}
		return true
	}
	if s != nil {
		s.left += packets
	}
	b.left += packets
	b.suppressed.Add(float64(packets))
	return false
}

// line logs a packet, with more about it.
func (b *blocked) line(p ulogd.Packet, more ...any) {
	direction, own := npc.Ingress, p.Dst
	if p.Group == npc.Egress.String() {
		direction, own = npc.Egress, p.Src
	}
	args := []any{"direction", direction, "protocol", p.ProtocolName(), "from", b.end(p.Src, p.SrcPort), "to", b.end(p.Dst, p.DstPort)}
	switch {
	case p.Fragment:
		args = append(args, "fragment", true)
	case p.Truncated:
		args = append(args, "truncated", true)
	case strings.HasPrefix(p.ProtocolName(), "ICMP"):
		args = append(args, "icmp_type", p.ICMPType, "icmp_code", p.ICMPCode)
	}
	if policies := b.model.Isolating(own, direction); len(policies) > 0 {
		args = append(args, "isolated_by", strings.Join(policies, ","))
	}
	b.log.Info("blocked", append(args, more...)...)
}

// end is one end of a packet: address, port if there is one, and name if there is one.
func (b *blocked) end(a netip.Addr, port uint16) string {
	text := a.String()
	if port != 0 {
		text = netip.AddrPortFrom(a, port).String()
	}
	if name := b.model.NameOf(a); name != "" {
		return name + " (" + text + ")"
	}
	return text
}
