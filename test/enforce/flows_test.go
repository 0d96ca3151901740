package enforce

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
)

// ofDeployment makes a pod one of a Deployment's.
func ofDeployment(name string) func(*harness, *corev1.Pod) {
	return func(_ *harness, p *corev1.Pod) {
		yes := true
		p.Labels["pod-template-hash"] = "5d8f"
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name + "-5d8f", UID: "r", Controller: &yes}}
	}
}

// startRecording starts weave-npc with --record-flows on both nodes.
func startRecording(t *testing.T, backend lab.Backend, state change, args ...string) *harness {
	t.Helper()
	w := newHarness(t, backend, lab.Config{})
	m := w.fromManifests(t, state)
	dir := t.TempDir()
	w.startEach(t, func(i int, n *lab.Node) *daemon {
		own := []string{"--manifests", m.dir, "--record-flows", "--flows-socket", filepath.Join(dir, n.Name()+".sock"), "--flows-dir", filepath.Join(dir, n.Name())}
		return newDaemon(n, w.daemonArgs(i, append(own, args...)...)...)
	})
	for _, d := range w.daemons {
		d.awaitReady(t)
	}
	return w
}

// flag returns the value of a flag of a daemon.
func (d *daemon) flag(name string) string { return d.args[slices.Index(d.args, "--"+name)+1] }

// flows runs weave-npc flows on a node.
func (d *daemon) flows(t *testing.T, args ...string) (all []flowlog.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	cmd := d.node.Command(ctx, command(), append([]string{"flows", "--flows-socket", d.flag("flows-socket"), "-o", "json"}, args...)...)
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for lines := json.NewDecoder(bytes.NewReader(text)); lines.More(); {
		var r flowlog.Record
		if err := lines.Decode(&r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// shortForm returns records in short, without those of neighbour discovery and the like.
func shortForm(records []flowlog.Record) (lines []string) {
	for _, r := range records {
		if r.From.Addr.IsLinkLocalUnicast() || r.To.Addr.IsMulticast() {
			continue
		}
		end := func(e flowlog.End) string {
			switch {
			case e.IsPod():
				return e.Namespace + "/" + e.Workload
			case e.NodeAddr:
				return "node"
			}
			return e.Addr.String()
		}
		line := fmt.Sprintf("%s %s -> %s %s", r.Verdict, end(r.From), end(r.To), r.Port)
		if len(r.PortNames) > 0 {
			line += fmt.Sprint(" ", r.PortNames)
		}
		if r.Replied > 0 {
			line += " replied"
		}
		lines = append(lines, fmt.Sprintf("%d %s", r.Count, line))
	}
	slices.Sort(lines)
	return lines
}

// awaitFlows waits until a node shows certain records.
func (d *daemon) awaitFlows(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(want)
	var got []string
	await.Within(t, timeout, func() bool {
		got = shortForm(d.flows(t))
		return slices.Equal(got, want)
	}, func() string {
		return fmt.Sprintf("%s shows\n  %s\nnot\n  %s", d.node, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	})
}

// recorded is a cluster where shop/db accepts connections from shop/web alone.
func recorded() change {
	return do(base(), pod("shop/web", ofDeployment("web")), pod("shop/db", port("http", 80, "")),
		policy("shop/db", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`))
}

// TestS99_EachNodeRecordsItsConnections with the names of workloads, whatever became of them, also behind Services and
// from other nodes, nodes and hosts outside.
func TestS99_EachNodeRecordsItsConnections(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := startRecording(t, backend, recorded())
		virtual := netip.MustParseAddrPort("10.96.0.1:8080")
		db := w.hosts["db"]
		err := w.Nodes()[0].AddService(t.Context(), lab.Service{Backend: backend, Proto: "tcp", Virtual: virtual, Pod: netip.AddrPortFrom(db.Addr4(), 80)})
		if err != nil {
			t.Fatal(err)
		}
		tcp := lab.Packet{Proto: "tcp", To: db.Addr4(), Port: 80}
		w.probe(t, "web", tcp, lab.Allowed)
		w.probe(t, "web", lab.Packet{Proto: "tcp", To: db.Addr6(), Port: 80}, lab.Allowed)
		w.probe(t, "web", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()}, lab.Allowed)
		w.probe(t, "web", lab.Packet{Proto: "udp", To: db.Addr4(), Port: 53}, lab.Allowed)
		w.probe(t, "web", lab.Packet{Proto: "tcp", To: db.Addr4(), Port: 82}, lab.Refused)
		w.probe(t, "mon", lab.Packet{Proto: "udp", To: db.Addr4(), Port: 53}, lab.Dropped)
		w.probe(t, "api", lab.Packet{Proto: "udp", To: db.Addr4(), Port: 53}, lab.Dropped)
		w.probe(t, "out", lab.Packet{Proto: "tcp", To: w.hosts["web"].Addr4(), Port: 80}, lab.Allowed)
		w.probe(t, "n1", lab.Packet{Proto: "udp", To: db.Addr4(), Port: 53}, lab.Allowed)
		w.daemons[0].awaitFlows(t,
			"3 allowed shop/Deployment/web -> shop/Pod/db tcp/80 [http] replied",
			"1 allowed shop/Deployment/web -> shop/Pod/db udp/53 replied",
			"1 allowed shop/Deployment/web -> shop/Pod/db tcp/82",
			"1 denied ops/Pod/mon -> shop/Pod/db udp/53",
			"1 denied shop/Pod/api -> shop/Pod/db udp/53",
			"1 allowed "+w.Outside().Addr4().String()+" -> shop/Deployment/web tcp/80 replied",
			"1 allowed node -> shop/Pod/db udp/53 replied")
		w.daemons[1].awaitFlows(t, "1 allowed shop/Pod/api -> shop/Pod/db udp/53")

		got := w.daemons[0].flows(t, "--from", "shop/web", "--port", "tcp/http", "--verdict", "allowed", "--since", "1h")
		if len(got) != 1 || got[0].From.Pod != "web" || got[0].From.Labels["app"] != "web" || got[0].Node != "node1" || got[0].To.Labels["app"] != "db" {
			t.Errorf("%+v", got)
		}
		_, metrics := w.daemons[0].get("/metrics")
		for _, want := range []string{`weavenpc_flows_connections_total{from="shop",to="shop",verdict="allowed"} 5`,
			`weavenpc_flows_connections_total{from="ops",to="shop",verdict="denied"} 1`, "weavenpc_flows_lost_events_total 0", "weavenpc_flows_recording 1"} {
			if !strings.Contains(metrics, want+"\n") {
				t.Errorf("no %s", want)
			}
		}
	})
}

// TestS99_RecordsOutliveADaemon that is killed, in the file, and the socket that it leaves is replaced.
func TestS99_RecordsOutliveADaemon(t *testing.T) {
	w := startRecording(t, lab.NFT, recorded())
	d := w.daemons[0]
	w.probe(t, "web", lab.Packet{Proto: "tcp", To: w.hosts["db"].Addr4(), Port: 80}, lab.Allowed)
	want := "1 allowed shop/Deployment/web -> shop/Pod/db tcp/80 [http] replied"
	d.awaitFlows(t, want)
	file := filepath.Join(d.flag("flows-dir"), "flows.json")
	await.Within(t, timeout, func() bool {
		text, _ := os.ReadFile(file)
		return bytes.Contains(text, []byte(`"replied"`))
	}, func() string { return "nothing is kept in " + file })
	d.kill(t)
	d.start(t)
	d.awaitReady(t)
	d.awaitFlows(t, want)
	if info, err := os.Stat(d.flag("flows-socket")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	w.probe(t, "web", lab.Packet{Proto: "tcp", To: w.hosts["db"].Addr4(), Port: 80}, lab.Allowed)
	d.awaitFlows(t, "2"+want[1:])
}

// TestS99_NetAdminAndNetRawAreEnough to record, in the default seccomp profile of containers.
func TestS99_NetAdminAndNetRawAreEnough(t *testing.T) {
	profiled, err := lab.ProfileWrap(lab.DefaultProfile, "CAP_NET_ADMIN", "CAP_NET_RAW")
	if err != nil {
		t.Fatal(err)
	}
	w := newHarness(t, lab.NFT, lab.Config{})
	m := w.fromManifests(t, recorded())
	dir := t.TempDir()
	d := newDaemon(w.Nodes()[0], w.daemonArgs(0, "--manifests", m.dir, "--record-flows", "--flows-socket", filepath.Join(dir, "flows.sock"), "--flows-dir", dir)...)
	d.wrap = slices.Concat(profiled, unprivileged)
	d.start(t)
	d.endWith(t)
	d.awaitReady(t)
	w.probe(t, "web", lab.Packet{Proto: "tcp", To: w.hosts["db"].Addr4(), Port: 80}, lab.Allowed)
	w.probe(t, "mon", lab.Packet{Proto: "udp", To: w.hosts["db"].Addr4(), Port: 53}, lab.Dropped)
	d.awaitFlows(t, "1 allowed shop/Deployment/web -> shop/Pod/db tcp/80 [http] replied", "1 denied ops/Pod/mon -> shop/Pod/db udp/53")
}

// TestS99_FollowedRecordsComeAtOnce prints each record again when a connection is added to it.
func TestS99_FollowedRecordsComeAtOnce(t *testing.T) {
	w := startRecording(t, lab.NFT, recorded())
	d := w.daemons[0]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := d.node.Command(ctx, command(), "flows", "--flows-socket", d.flag("flows-socket"), "-f", "--to", "shop/db", "--port", "tcp/80")
	said := &output{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for number := 1; number < 3; number++ {
		w.probe(t, "web", lab.Packet{Proto: "tcp", To: w.hosts["db"].Addr4(), Port: 80}, lab.Allowed)
		line := fmt.Sprintf("allowed  shop/Deployment/web  shop/Pod/db  tcp/80 (http)  %d  ", number)
		await.Within(t, 5*time.Second, func() bool { return strings.Contains(said.String(), line) }, func() string { return line + " not in\n" + said.String() })
	}
	cancel()
	_ = cmd.Wait()
}

// TestS99_BlindnessIsSaid where the kernel gives no events, and ends when it does. Denied connections are recorded
// meanwhile.
func TestS99_BlindnessIsSaid(t *testing.T) {
	w := newHarness(t, lab.NFT, lab.Config{})
	n := w.Nodes()[0]
	run(t, n.Host, "conntrack", "-L") // which brings the settings
	run(t, n.Host, "sysctl", "-qw", "net.netfilter.nf_conntrack_events=0")
	m := w.fromManifests(t, recorded())
	d := newDaemon(n, w.daemonArgs(0, "--manifests", m.dir, "--record-flows", "--flows-socket", filepath.Join(t.TempDir(), "flows.sock"))...)
	blind := "allowed connections are not recorded.*net.netfilter.nf_conntrack_events is 0"
	d.log.expect(blind)
	d.start(t)
	d.endWith(t)
	d.awaitLine(t, 0, blind)
	d.awaitReady(t)
	packet := lab.Packet{Proto: "udp", To: w.hosts["db"].Addr4(), Port: 53}
	w.probe(t, "web", packet, lab.Allowed)
	w.probe(t, "mon", packet, lab.Dropped)
	denied := "1 denied ops/Pod/mon -> shop/Pod/db udp/53"
	d.awaitFlows(t, denied)
	if d.metric(t, "weavenpc_flows_recording") != 0 {
		t.Error("it claims to record")
	}
	said := d.log.len()
	run(t, n.Host, "sysctl", "-qw", "net.netfilter.nf_conntrack_events=1")
	d.awaitLine(t, said, "allowed connections are recorded again")
	packet.FromPort = w.hosts["web"].FreshPort()
	w.probe(t, "web", packet, lab.Allowed)
	d.awaitFlows(t, denied, "1 allowed shop/Deployment/web -> shop/Pod/db udp/53 replied")
	run(t, n.Host, "sysctl", "-qw", "net.netfilter.nf_conntrack_events=0")
	d.awaitLine(t, said, blind)
}
