package binding

import (
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/weave-npc/weave-npc/iptables/ports"
)

// Reporter reports which pods send with addresses that are not theirs.
type Reporter struct {
	log   *slog.Logger
	event func(pod Owner, text string)
	// limits holds port -> how many lines there may be about it.
	limits map[int]*limit

	seen     map[ports.Forgery]bool // in the kernel at the last look
	counted  map[ports.Reason]uint64
	auditing atomic.Pointer[time.Time]

	bound   prometheus.Gauge
	unbound *prometheus.GaugeVec
	frames  *prometheus.CounterVec
	audit   prometheus.Gauge
}

// At most maxBurst lines of the log are about one port at once, and one in slowestLine in the long run.
const (
	maxBurst    = 3
	slowestLine = 10 * time.Second
)

// limit limits the lines about a port.
type limit struct {
	*rate.Limiter
	omitted int // forged sources without a line since the last line
}

// forgedSource is a forged source, with names.
type forgedSource struct {
	ports.Forgery
	port    string // its name
	pod     Owner  // behind the port; zero if it is not known
	whose   string // the pod that has the address; empty if none is known
	real    bool   // the kernel has the address behind the port: no object lists it
	dropped bool
}

// NewReporter returns a reporter, and registers its metrics. event is called for each forged source, with the pod that
// sent it.
func NewReporter(r prometheus.Registerer, log *slog.Logger, event func(pod Owner, text string)) *Reporter {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		r.MustRegister(g)
		return g
	}
	n := &Reporter{log: log, event: event, limits: map[int]*limit{},
		bound: gauge("weavenpc_bound_ports", "Ports of pods whose frames pass only with the pod's own addresses."),
		audit: gauge("weavenpc_binding_audit",
			"Whether forged sources pass for now, because the node had pods before their sources were bound."),
		unbound: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weavenpc_unbound_ports",
			Help: "Ports of pods whose sources are not bound, by reason."}, []string{"reason"}),
		frames: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weavenpc_refused_frames_total",
			Help: "Frames of pods that nftables dropped at their ports, by reason; " +
				"with --bind-sources=audit those with a forged source passed."}, []string{"reason"}),
	}
	r.MustRegister(n.unbound, n.frames)
	for _, why := range unboundReasons() {
		n.unbound.WithLabelValues(string(why))
	}
	for _, why := range ports.Reasons() {
		n.frames.WithLabelValues(string(why))
	}
	return n
}

// Notice returns what /readyz says besides that weave-npc is ready; empty if there is nothing to say.
func (n *Reporter) Notice() string {
	if until := n.auditing.Load(); until != nil {
		return "forged sources pass until " + until.UTC().Format(time.RFC3339) +
			", because the node had pods before their sources were bound"
	}
	return ""
}

func (n *Reporter) setAudit(until time.Time) {
	if until.IsZero() {
		n.auditing.Store(nil)
		n.audit.Set(0)
		return
	}
	n.auditing.Store(&until)
	n.audit.Set(1)
}

// ports records how many ports are bound, and why others are not.
func (n *Reporter) ports(bound int, unbound map[int]unboundReason) {
	n.bound.Set(float64(bound))
	number := map[unboundReason]int{}
	for _, why := range unbound {
		number[why]++
	}
	for _, why := range unboundReasons() {
		n.unbound.WithLabelValues(string(why)).Set(float64(number[why]))
	}
}

// count takes the counters of the kernel, which begin anew when the tables are replaced.
func (n *Reporter) count(now map[ports.Reason]uint64) {
	for why, number := range now {
		before := n.counted[why]
		if number < before {
			before = 0
		}
		n.frames.WithLabelValues(string(why)).Add(float64(number - before))
	}
	n.counted = now
}

// fresh returns the forged sources that were not there at the last look.
func (n *Reporter) fresh(now []ports.Forgery) (fresh []ports.Forgery) {
	seen := make(map[ports.Forgery]bool, len(now))
	for _, f := range now {
		if seen[f] = true; !n.seen[f] {
			fresh = append(fresh, f)
		}
	}
	n.seen = seen
	return fresh
}

// forged reports a forged source in the log, and as an Event of the pod.
func (n *Reporter) forged(f forgedSource) {
	l := n.limits[f.Port]
	if l == nil {
		l = &limit{rate.NewLimiter(rate.Every(slowestLine), maxBurst), 0}
		n.limits[f.Port] = l
	}
	if !l.Allow() {
		l.omitted++
		return
	}
	pod, what := "", "passes for now"
	if f.pod.Name != "" {
		pod = f.pod.String()
	}
	if f.dropped {
		what = "is dropped"
	}
	text := "sends with an address that is not its own"
	if f.real && f.whose == "" {
		text = "sends from an address that no object lists"
	}
	n.log.Warn("a pod "+text, "pod", pod, "port", f.port, "kind", f.Kind,
		"address", addressText(f.Forgery), "mac", macText(f.MAC), "address_of", f.whose, "dropped", f.dropped,
		"omitted", l.omitted)
	l.omitted = 0
	if f.pod.UID != "" {
		n.event(f.pod, fmt.Sprintf("%s (%s %s), which %s", text,
			f.Kind, addressText(f.Forgery), what))
	}
}

// forget forgets the ports that are gone.
func (n *Reporter) forget(there map[int]look) {
	for port := range n.limits {
		if _, found := there[port]; !found {
			delete(n.limits, port)
		}
	}
}

func addressText(f ports.Forgery) string {
	if !f.Addr.IsValid() {
		return macText(f.MAC)
	}
	return f.Addr.String()
}

// macText returns a hardware address; empty if there is none.
func macText(m ports.MAC) string {
	if m == (ports.MAC{}) {
		return ""
	}
	return net.HardwareAddr(m[:]).String()
}
