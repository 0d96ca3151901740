package observe

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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// ofDeployment makes a pod one of a Deployment's.
func ofDeployment(name string) func(*e2e.Cluster, *corev1.Pod) {
	return func(_ *e2e.Cluster, p *corev1.Pod) {
		yes := true
		p.Labels["pod-template-hash"] = "5d8f"
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name + "-5d8f",
			UID: "r", Controller: &yes}}
	}
}

// startRecording starts weave-npc with --record-flows on both nodes.
func startRecording(t *testing.T, backend lab.Backend, state e2e.Change, args ...string) *e2e.Cluster {
	t.Helper()
	w := e2e.New(t, backend, lab.Config{})
	m := w.FromManifests(t, state)
	dir := t.TempDir()
	w.StartEach(t, func(i int, n *lab.Node) *e2e.Daemon {
		own := []string{"--manifests", m.Dir, "--record-flows", "--flows-socket", filepath.Join(dir, n.Name()+".sock"),
			"--flows-dir", filepath.Join(dir, n.Name())}
		return e2e.NewDaemon(n, w.DaemonArgs(i, append(own, args...)...)...)
	})
	for _, d := range w.Daemons {
		d.AwaitReady(t)
	}
	return w
}

// flag returns the value of a flag of a daemon.
func flag(d *e2e.Daemon, name string) string { return d.Args[slices.Index(d.Args, "--"+name)+1] }

// flowsOf runs weave-npc flows on a node.
func flowsOf(t *testing.T, d *e2e.Daemon, args ...string) (all []flowlog.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Timeout)
	defer cancel()
	cmd := d.Node.Command(ctx, e2e.Command(), append([]string{"flows", "--flows-socket", flag(d, "flows-socket"), "-o",
		"json"}, args...)...)
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
func awaitFlows(t *testing.T, d *e2e.Daemon, want ...string) {
	t.Helper()
	slices.Sort(want)
	var got []string
	await.Within(t, e2e.Timeout, func() bool {
		got = shortForm(flowsOf(t, d))
		return slices.Equal(got, want)
	}, func() string {
		return fmt.Sprintf("%s shows\n  %s\nnot\n  %s", d.Node, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	})
}

// recorded is a cluster where shop/db accepts connections from shop/web alone.
func recorded() e2e.Change {
	return e2e.Do(e2e.Base(), e2e.Pod("shop/web", ofDeployment("web")), e2e.Pod("shop/db", e2e.Port("http", 80, "")),
		e2e.Policy("shop/db", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`))
}

// TestS99_EachNodeRecordsItsConnections with the names of workloads, whatever became of them, also behind Services and
// from other nodes, nodes and hosts outside.
func TestS99_EachNodeRecordsItsConnections(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := startRecording(t, backend, recorded())
		virtual := netip.MustParseAddrPort("10.96.0.1:8080")
		db := w.Hosts["db"]
		err := w.Nodes()[0].AddService(t.Context(), lab.Service{Backend: backend, Proto: "tcp", Virtual: virtual,
			Pod: netip.AddrPortFrom(db.Addr4(), 80)})
		if err != nil {
			t.Fatal(err)
		}
		tcp := lab.Packet{Proto: "tcp", To: db.Addr4(), Port: 80}
		w.Probe(t, "web", tcp, lab.Allowed)
		w.Probe(t, "web", lab.Packet{Proto: "tcp", To: db.Addr6(), Port: 80}, lab.Allowed)
		w.Probe(t, "web", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()}, lab.Allowed)
		w.Probe(t, "web", lab.Packet{Proto: "udp", To: db.Addr4(), Port: 53}, lab.Allowed)
		w.Probe(t, "web", lab.Packet{Proto: "tcp", To: db.Addr4(), Port: 82}, lab.Refused)
		w.Probe(t, "mon", lab.Packet{Proto: "udp", To: db.Addr4(), Port: 53}, lab.Dropped)
		w.Probe(t, "api", lab.Packet{Proto: "udp", To: db.Addr4(), Port: 53}, lab.Dropped)
		w.Probe(t, "out", lab.Packet{Proto: "tcp", To: w.Hosts["web"].Addr4(), Port: 80}, lab.Allowed)
		w.Probe(t, "n1", lab.Packet{Proto: "udp", To: db.Addr4(), Port: 53}, lab.Allowed)
		awaitFlows(t, w.Daemons[0],
			"3 allowed shop/Deployment/web -> shop/Pod/db tcp/80 [http] replied",
			"1 allowed shop/Deployment/web -> shop/Pod/db udp/53 replied",
			"1 allowed shop/Deployment/web -> shop/Pod/db tcp/82",
			"1 denied ops/Pod/mon -> shop/Pod/db udp/53",
			"1 denied shop/Pod/api -> shop/Pod/db udp/53",
			"1 allowed "+w.Outside().Addr4().String()+" -> shop/Deployment/web tcp/80 replied",
			"1 allowed node -> shop/Pod/db udp/53 replied")
		awaitFlows(t, w.Daemons[1], "1 allowed shop/Pod/api -> shop/Pod/db udp/53")

		got := flowsOf(t, w.Daemons[0], "--from", "shop/web", "--port", "tcp/http", "--verdict", "allowed", "--since",
			"1h")
		if len(got) != 1 || got[0].From.Pod != "web" || got[0].From.Labels["app"] != "web" ||
			got[0].Node != "node1" || got[0].To.Labels["app"] != "db" {
			t.Errorf("%+v", got)
		}
		_, metrics := w.Daemons[0].Get("/metrics")
		for _, want := range []string{`weavenpc_flows_connections_total{from="shop",to="shop",verdict="allowed"} 5`,
			`weavenpc_flows_connections_total{from="ops",to="shop",verdict="denied"} 1`,
			"weavenpc_flows_lost_events_total 0", "weavenpc_flows_recording 1"} {
			if !strings.Contains(metrics, want+"\n") {
				t.Errorf("no %s", want)
			}
		}
	})
}

// TestS99_RecordsOutliveADaemon that is killed, in the file, and the socket that it leaves is replaced.
func TestS99_RecordsOutliveADaemon(t *testing.T) {
	t.Parallel()
	w := startRecording(t, lab.NFT, recorded())
	d := w.Daemons[0]
	w.Probe(t, "web", lab.Packet{Proto: "tcp", To: w.Hosts["db"].Addr4(), Port: 80}, lab.Allowed)
	want := "1 allowed shop/Deployment/web -> shop/Pod/db tcp/80 [http] replied"
	awaitFlows(t, d, want)
	file := filepath.Join(flag(d, "flows-dir"), "flows.json")
	await.Within(t, e2e.Timeout, func() bool {
		text, _ := os.ReadFile(file)
		return bytes.Contains(text, []byte(`"replied"`))
	}, func() string { return "nothing is kept in " + file })
	d.Kill(t)
	d.Start(t)
	d.AwaitReady(t)
	awaitFlows(t, d, want)
	if info, err := os.Stat(flag(d, "flows-socket")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	w.Probe(t, "web", lab.Packet{Proto: "tcp", To: w.Hosts["db"].Addr4(), Port: 80}, lab.Allowed)
	awaitFlows(t, d, "2"+want[1:])
}

// TestS99_NetAdminAndNetRawAreEnough to record, in the default seccomp profile of containers.
func TestS99_NetAdminAndNetRawAreEnough(t *testing.T) {
	t.Parallel()
	profiled, err := lab.ProfileWrap(lab.DefaultProfile, "CAP_NET_ADMIN", "CAP_NET_RAW")
	if err != nil {
		t.Fatal(err)
	}
	w := e2e.New(t, lab.NFT, lab.Config{})
	m := w.FromManifests(t, recorded())
	dir := t.TempDir()
	d := e2e.NewDaemon(w.Nodes()[0], w.DaemonArgs(0, "--manifests", m.Dir, "--record-flows", "--flows-socket",
		filepath.Join(dir, "flows.sock"), "--flows-dir", dir)...)
	d.Wrap = slices.Concat(profiled, e2e.Unprivileged())
	d.Start(t)
	d.EndWith(t)
	d.AwaitReady(t)
	w.Probe(t, "web", lab.Packet{Proto: "tcp", To: w.Hosts["db"].Addr4(), Port: 80}, lab.Allowed)
	w.Probe(t, "mon", lab.Packet{Proto: "udp", To: w.Hosts["db"].Addr4(), Port: 53}, lab.Dropped)
	awaitFlows(t, d, "1 allowed shop/Deployment/web -> shop/Pod/db tcp/80 [http] replied",
		"1 denied ops/Pod/mon -> shop/Pod/db udp/53")
}

// TestS99_FollowedRecordsComeAtOnce prints each record again when a connection is added to it.
func TestS99_FollowedRecordsComeAtOnce(t *testing.T) {
	t.Parallel()
	w := startRecording(t, lab.NFT, recorded())
	d := w.Daemons[0]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := d.Node.Command(ctx, e2e.Command(), "flows", "--flows-socket", flag(d, "flows-socket"), "-f", "--to",
		"shop/db", "--port", "tcp/80")
	said := &e2e.Output{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for number := 1; number < 3; number++ {
		w.Probe(t, "web", lab.Packet{Proto: "tcp", To: w.Hosts["db"].Addr4(), Port: 80}, lab.Allowed)
		line := fmt.Sprintf("allowed  shop/Deployment/web  shop/Pod/db  tcp/80 (http)  %d  ", number)
		await.Within(t, e2e.Timeout, func() bool { return strings.Contains(said.String(), line) },
			func() string { return line + " not in\n" + said.String() })
	}
	cancel()
	_ = cmd.Wait()
}

// TestS99_BlindnessIsSaid where the kernel gives no events, and ends when it does. Denied connections are recorded
// meanwhile.
func TestS99_BlindnessIsSaid(t *testing.T) {
	t.Parallel()
	w := e2e.New(t, lab.NFT, lab.Config{})
	n := w.Nodes()[0]
	e2e.Run(t, n.Host, "conntrack", "-L") // which brings the settings
	e2e.Run(t, n.Host, "sysctl", "-qw", "net.netfilter.nf_conntrack_events=0")
	m := w.FromManifests(t, recorded())
	d := e2e.NewDaemon(n, w.DaemonArgs(0, "--manifests", m.Dir, "--record-flows", "--flows-socket",
		filepath.Join(t.TempDir(), "flows.sock"))...)
	blind := "allowed connections are not recorded.*net.netfilter.nf_conntrack_events is 0"
	d.Log.Expect(blind)
	d.Start(t)
	d.EndWith(t)
	d.AwaitLine(t, 0, blind)
	d.AwaitReady(t)
	packet := lab.Packet{Proto: "udp", To: w.Hosts["db"].Addr4(), Port: 53}
	w.Probe(t, "web", packet, lab.Allowed)
	w.Probe(t, "mon", packet, lab.Dropped)
	denied := "1 denied ops/Pod/mon -> shop/Pod/db udp/53"
	awaitFlows(t, d, denied)
	if d.Metric(t, "weavenpc_flows_recording") != 0 {
		t.Error("it claims to record")
	}
	said := d.Log.Len()
	e2e.Run(t, n.Host, "sysctl", "-qw", "net.netfilter.nf_conntrack_events=1")
	d.AwaitLine(t, said, "allowed connections are recorded again")
	packet.FromPort = w.Hosts["web"].FreshPort()
	w.Probe(t, "web", packet, lab.Allowed)
	awaitFlows(t, d, denied, "1 allowed shop/Deployment/web -> shop/Pod/db udp/53 replied")
	e2e.Run(t, n.Host, "sysctl", "-qw", "net.netfilter.nf_conntrack_events=0")
	d.AwaitLine(t, said, blind)
}
