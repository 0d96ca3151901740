package main

import (
	"log/slog"
	"net/netip"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/ulogd"
)

// countedPorts are the destination ports that the metric tells apart; all others are one.
const countedPorts = " 22 25 53 80 443 3306 5432 6379 8080 8443 9090 9200 27017 "

// blocked logs and counts the packets that our rules dropped.
type blocked struct {
	model *npc.Model
	log   *slog.Logger
	count *prometheus.CounterVec
}

func newBlocked(m *npc.Model, r prometheus.Registerer, log *slog.Logger) *blocked {
	b := &blocked{model: m, log: log, count: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weavenpc_blocked_connections_total",
		Help: "Connection attempts that were blocked and reported. Ports that are not well known count as other."},
		[]string{"protocol", "dport"})}
	r.MustRegister(b.count)
	return b
}

// groups are the NFLOG groups by which packets blocked in either direction come.
func (b *blocked) groups(first uint16) []ulogd.Group {
	return []ulogd.Group{{Number: first, Name: npc.Ingress.String()}, {Number: first + 1, Name: npc.Egress.String()}}
}

// handle logs and counts a packet.
func (b *blocked) handle(p ulogd.Packet) {
	port := strconv.Itoa(int(p.DstPort))
	label := port
	if !strings.Contains(countedPorts, " "+port+" ") {
		label = "other"
	}
	b.count.WithLabelValues(strings.ToLower(p.ProtocolName()), label).Inc()

	direction, own := npc.Ingress, p.Dst
	if p.Group == npc.Egress.String() {
		direction, own = npc.Egress, p.Src
	}
	args := []any{"direction", direction, "protocol", p.ProtocolName(), "from", b.end(p.Src, p.SrcPort), "to", b.end(p.Dst, p.DstPort)}
	if policies := b.model.Isolating(own, direction); len(policies) > 0 {
		args = append(args, "isolated_by", strings.Join(policies, ","))
	}
	b.log.Info("blocked", args...)
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
