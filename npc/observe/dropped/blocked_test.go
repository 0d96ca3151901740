package dropped

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/enforce/domainnames"
	"github.com/weave-npc/weave-npc/npc/observe/dedup"
	"github.com/weave-npc/weave-npc/npc/source"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/ulogd"
)

// report is a reporter with the log that it writes.
type report struct {
	*Reporter
	source.Sink
	log      bytes.Buffer
	registry *prometheus.Registry
	now      time.Time
}

// newReport returns a reporter with the pods shop/web and shop/api and the node 192.0.2.1.
func newReport(t *testing.T, format string) *report {
	t.Helper()
	m := controller.New(enforce.Config{NodeName: "node1"})
	m.SetNamespace(fixture.Namespace("shop"))
	m.SetPod(fixture.Pod("shop/web node1@192.0.2.1 10.32.1.2 app=web"))
	m.SetPod(fixture.Pod("shop/api node1@192.0.2.1 10.32.1.3 app=api"))
	r := &report{Sink: m, registry: prometheus.NewRegistry(), now: time.Unix(1e9, 0)}
	plain := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			a.Value = slog.StringValue(a.Value.Duration().String())
		}
		return a
	}}
	log := slog.New(slog.NewTextHandler(&r.log, plain))
	if format == "json" {
		log = slog.New(slog.NewJSONHandler(&r.log, plain))
	}
	r.Reporter = NewReporter(m.Lookup(), controller.NamesOf(m), []uint16{80}, r.registry, log)
	return r
}

func tcp(from, to string) ulogd.Packet {
	src, dst := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	return ulogd.Packet{Group: "ingress", Src: src.Addr(), SrcPort: src.Port(), Dst: dst.Addr(), DstPort: dst.Port(), Protocol: 6}
}

// logged returns the lines of the log since the last call, without time and level.
func (r *report) logged() []string {
	text := regexp.MustCompile(`(?m)^time=\S+ level=INFO `).ReplaceAllString(r.log.String(), "")
	r.log.Reset()
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

func (r *report) want(t *testing.T, want ...string) {
	t.Helper()
	if len(want) == 0 {
		want = []string{""}
	}
	if diff := cmp.Diff(want, r.logged()); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}

// counts returns the counters by their names and the values of their labels.
func (r *report) counts(t *testing.T) map[string]float64 {
	t.Helper()
	collected, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, family := range collected {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			counts[name] = m.GetCounter().GetValue()
		}
	}
	return counts
}

func (r *report) later(d time.Duration) {
	r.now = r.now.Add(d)
	r.sumUp(r.now)
}

func TestBlockedLines(t *testing.T) {
	web, mon := netip.MustParseAddr("10.32.1.2"), netip.MustParseAddr("10.32.2.9")
	for _, c := range []struct {
		name string
		in   ulogd.Packet
		want string
	}{
		{"TCP from a node", tcp("192.0.2.1:41234", "10.32.1.2:80"),
			`direction=ingress protocol=TCP from="node (192.0.2.1:41234)" to="shop/web (10.32.1.2:80)"`},
		{"egress, SCTP", ulogd.Packet{Group: "egress", Src: web, Dst: mon, Protocol: 132, SrcPort: 1, DstPort: 2},
			`direction=egress protocol=SCTP from="shop/web (10.32.1.2:1)" to=10.32.2.9:2`},
		{"ICMP", ulogd.Packet{Group: "ingress", Src: mon, Dst: web, Protocol: 1, ICMPType: 8},
			`direction=ingress protocol=ICMP from=10.32.2.9 to="shop/web (10.32.1.2)" icmp_type=8 icmp_code=0`},
		{"ICMPv6", ulogd.Packet{Group: "ingress", Src: netip.IPv6Loopback(), Dst: netip.MustParseAddr("fd00::1"), Protocol: 58, ICMPType: 1, ICMPCode: 4},
			`direction=ingress protocol=ICMPv6 from=::1 to=fd00::1 icmp_type=1 icmp_code=4`},
		{"fragment", ulogd.Packet{Group: "ingress", Src: mon, Dst: web, Protocol: 1, Fragment: true},
			`direction=ingress protocol=ICMP from=10.32.2.9 to="shop/web (10.32.1.2)" fragment=true`},
		{"truncated", ulogd.Packet{Group: "ingress", Src: mon, Dst: web, Protocol: 6, Truncated: true},
			`direction=ingress protocol=TCP from=10.32.2.9 to="shop/web (10.32.1.2)" truncated=true`},
		{"GRE", ulogd.Packet{Group: "ingress", Src: mon, Dst: web, Protocol: 47},
			`direction=ingress protocol=47 from=10.32.2.9 to="shop/web (10.32.1.2)"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newReport(t, "text")
			r.handleAt(c.in, r.now)
			r.want(t, "msg=blocked "+c.want)
		})
	}
}

// TestDomainNames shows that a line has the names by which the pod knows the address that it is kept from.
func TestDomainNames(t *testing.T) {
	m := controller.New(enforce.Config{NodeName: "node1"})
	names, web := controller.NamesOf(m), netip.MustParseAddr("10.32.1.2")
	names.Follow([]domainnames.List{{Key: "*.x", Names: []string{"*.x"}}}, map[netip.Addr][]string{web: {"*.x"}})
	soon := time.Now().Add(time.Minute)
	for i, name := range []string{"d.x", "c.x", "b.x", "a.x"} {
		names.Remember("*.x", name, netip.MustParseAddr("203.0.113.7"), soon.Add(time.Duration(i)*time.Second))
	}
	names.Remember("*.x", "a.x", netip.MustParseAddr("203.0.113.8"), soon)
	for _, c := range []struct{ from, to, want string }{
		{"10.32.1.2:5", "203.0.113.8:443", "domain_names=a.x"},
		{"10.32.1.2:5", "203.0.113.7:443", "domain_names=a.x,b.x,c.x"},
		{"10.32.1.2:5", "203.0.113.9:443", ""},
		{"10.32.1.3:5", "203.0.113.8:443", ""},
		{"203.0.113.8:5", "10.32.1.2:443", ""},
	} {
		var log bytes.Buffer
		r := NewReporter(m.Lookup(), names, nil, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&log, nil)))
		packet := tcp(c.from, c.to)
		packet.Group = "egress"
		r.Handle(packet)
		if got := regexp.MustCompile(`domain_names=\S*`).FindString(log.String()); got != c.want {
			t.Errorf("%s to %s: %s", c.from, c.to, log.String())
		}
	}
}

// TestWhoDenied shows that a line names the rule that denies the packet, or else the policies that isolate the pod.
func TestWhoDenied(t *testing.T) {
	const to = `direction=ingress protocol=TCP from="shop/api (10.32.1.3:5)" to="shop/web (10.32.1.2:80)"`
	rules := func(tier, port string) string {
		return `{tier: ` + tier + `, priority: 1, subject: {namespaces: {}}, ingress: [{action: Accept, from: [{pods: {namespaceSelector: {}, podSelector:
			{matchLabels: {app: db}}}}]}, {action: Deny, name: no-api, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: api}}}}],
			protocols: [{tcp: {destinationPort: {number: ` + port + `}}}]}]}`
	}
	packet := tcp("10.32.1.3:5", "10.32.1.2:80")
	fragment, egress := packet, packet
	fragment.Fragment, egress.Group = true, "egress"
	for _, c := range []struct {
		name, policy string
		isolated     bool
		in           ulogd.Packet
		want         string
	}{
		{"admin", rules("Admin", "80"), true, packet, to + ` denied_by="Admin policy pci/rule 2 'no-api'"`},
		{"admin about another port", rules("Admin", "81"), true, packet, to + " isolated_by=shop/p"},
		{"baseline", rules("Baseline", "80"), false, packet, to + ` denied_by="Baseline policy pci/rule 2 'no-api'"`},
		{"baseline of an isolated pod", rules("Baseline", "80"), true, packet, to + " isolated_by=shop/p"},
		{"another direction", rules("Admin", "80"), true, egress, strings.Replace(to, "ingress", "egress", 1)},
		{"a fragment has no port", rules("Admin", "80"), true, fragment, to + " fragment=true isolated_by=shop/p"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newReport(t, "text")
			r.SetClusterPolicy(fixture.ClusterPolicy(t, "pci", c.policy))
			if c.isolated {
				r.SetPolicy(fixture.Policy(t, "shop/p", "{podSelector: {matchLabels: {app: web}}}"))
			}
			r.handleAt(c.in, r.now)
			r.want(t, "msg=blocked "+c.want)
			r.later(dedup.Window)
			r.DeleteClusterPolicy("pci", "")
			r.handleAt(c.in, r.now)
			if now := r.logged()[0]; strings.Contains(now, "denied_by") {
				t.Errorf("the policy is gone, and the line is %s", now)
			}
		})
	}
}

func TestBlockedLineInJSON(t *testing.T) {
	r := newReport(t, "json")
	r.handleAt(tcp("10.32.1.3:5", "10.32.1.2:80"), r.now)
	r.handleAt(tcp("10.32.1.3:6", "10.32.1.2:80"), r.now)
	r.later(dedup.Window)
	lines := r.logged()
	var got map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil {
		t.Fatal(err)
	}
	if at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(got["time"])); err != nil || at.IsZero() {
		t.Errorf("time: %v, %v", at, err)
	}
	delete(got, "time")
	want := map[string]any{"level": "INFO", "msg": "blocked", "direction": "ingress", "protocol": "TCP", "from": "shop/api (10.32.1.3:6)",
		"to": "shop/web (10.32.1.2:80)", "repeats": 1.0, "within": "10s"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}

// TestRepeats checks that the first packet of a flow is logged at once and the others are summed up while there are
// any.
func TestRepeats(t *testing.T) {
	const line = `msg=blocked direction=ingress protocol=TCP from=10.9.9.9:%d to="shop/web (10.32.1.2:80)"`
	r := newReport(t, "text")
	try := func(port int) { r.handleAt(tcp(fmt.Sprintf("10.9.9.9:%d", port), "10.32.1.2:80"), r.now) }
	for port := 1; port <= 7; port++ {
		try(port)
		r.later(time.Second)
	}
	r.want(t, fmt.Sprintf(line, 1))
	r.later(dedup.Window)
	r.want(t, fmt.Sprintf(line, 7)+" repeats=6 within=17s")
	try(8)
	r.later(dedup.Window)
	r.want(t, fmt.Sprintf(line, 8)+" repeats=1 within=10s")
	r.later(dedup.Window)
	r.want(t)
	try(9)
	r.want(t, fmt.Sprintf(line, 9))
}

// TestAScanHidesNoOther checks that the log about a port scan is bounded, omitted packets are counted, and other
// sources are still logged.
func TestAScanHidesNoOther(t *testing.T) {
	r := newReport(t, "text")
	for port := range 60000 {
		r.handleAt(tcp("10.9.9.9:1", fmt.Sprintf("10.32.1.2:%d", 1+port)), r.now)
		r.now = r.now.Add(50 * time.Microsecond)
	}
	if n := len(r.logged()); n != 30 {
		t.Errorf("%d lines about one source", n)
	}
	r.handleAt(tcp("10.32.1.3:5", "10.32.1.2:80"), r.now)
	r.want(t, `msg=blocked direction=ingress protocol=TCP from="shop/api (10.32.1.3:5)" to="shop/web (10.32.1.2:80)"`)
	r.later(dedup.Window)
	r.want(t, `msg=blocked not_logged=59970 most_from=10.9.9.9`)
	if n := r.counts(t)["weavenpc_blocked_log_suppressed_total"]; n != 59970 {
		t.Errorf("%v packets are counted as left out", n)
	}
}

// TestBlockedSeriesAreBounded checks that the metric has few series for any packets.
func TestBlockedSeriesAreBounded(t *testing.T) {
	r := newReport(t, "text")
	r.Reporter.log = slog.New(slog.DiscardHandler)
	for protocol := range 256 {
		for _, port := range []uint16{0, 80, 81, 65535} {
			p := tcp("10.9.9.9:1", "10.32.1.2:1")
			p.Protocol, p.DstPort = uint8(protocol), port
			r.handleAt(p, r.now)
		}
	}
	counts := r.counts(t)
	if n := len(counts); n != 12+1 {
		t.Errorf("%d series, not those of 6 protocols with 2 ports, and what was left out", n)
	}
	if n := counts["weavenpc_blocked_connections_total 80 tcp"]; n != 1 {
		t.Errorf("%v packets to TCP 80 of %v", n, counts)
	}
}
