package enforce

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/test/lab"
)

func TestS63_KilledAndStartedAgainTenTimes(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, rich())
		w.expect(t, richWants())
		load := w.load(t, "db>web udp 53", "out>web icmp", "web>mon udp 53", "web>copy icmp", "api>db udp 53",
			"copy>mon udp 53",
			"-mon>web udp 53", "-mon>web tcp 80", "-web>out udp 53", "-copy>web icmp", "-db>copy tcp 80", "-api>mon udp 53")
		for i := range 10 {
			o := w.objects(rich())
			for range i % 3 {
				churn(i)(w, o)
			}
			w.source.write(t, o)
			time.Sleep(rand.N(150 * time.Millisecond))
			for _, d := range w.daemons {
				d.kill(t)
			}
			time.Sleep(rand.N(50 * time.Millisecond))
			for _, d := range w.daemons {
				d.start(t)
			}
			if i%2 == 0 {
				for _, d := range w.daemons {
					d.awaitReady(t)
				}
			}
		}
		for _, d := range w.daemons {
			d.awaitReady(t)
		}
		if n := load.stop(t); n < 1000 {
			t.Errorf("only %d flows were opened", n)
		}
		w.apply(t, w.objects(rich()))
		w.expect(t, richWants())
	})
}

// churn changes what the flows of TestS62 and TestS63 do not depend on: both versions allow, or deny, the same of them.
func churn(i int) change {
	return do(
		policy(fmt.Sprintf("shop/extra-%d", i), `
podSelector: {matchLabels: {app: api}}
policyTypes: [Egress]
egress: [{}]`),
		policy("shop/p", fmt.Sprintf(`
podSelector: {matchExpressions: [{key: app, operator: In, values: [web, w%d]}]}
policyTypes: [Ingress, Egress]
ingress:
- from: [{podSelector: {matchExpressions: [{key: app, operator: In, values: [db, d%d]}]}}]
- from: [{ipBlock: {cidr: 192.0.0.0/%d}}, {ipBlock: {cidr: "2001:db8::/%d"}}]
egress: [{to: [{namespaceSelector: {matchExpressions: [{key: team, operator: NotIn, values: [a, z%d]}]}}]}]`,
			i, i, 8+i%16, 32+i%16, i)))
}

func TestS62_EditsCutNothingAndOpenNothing(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, rich())
		w.expect(t, richWants())
		load := w.load(t, "db>web udp 53", "out>web icmp", "web>mon udp 53", "web>copy icmp", "api>db udp 53",
			"-mon>web udp 53", "-mon>web tcp 80", "-web>out udp 53", "-copy>web icmp", "-db>copy tcp 80", "-api>mon udp 53")
		for i := range 12 {
			o := w.objects(rich())
			if i%3 != 2 {
				churn(i)(w, o)
			}
			w.apply(t, o)
		}
		load.stop(t)
	})
}

// load are flows that are opened one after the other, each from the start, and what became of them.
type load struct {
	cancel func()
	done   sync.WaitGroup
	world  *world
	flows  atomic.Int64
	mu     sync.Mutex
	wrong  []string
}

// loadFlow is a flow to open again and again.
type loadFlow struct {
	from, to string
	proto    string
	port     uint16
	family   int
	denied   bool
}

// String names the flow.
func (f loadFlow) String() string {
	sign := "+"
	if f.denied {
		sign = "-"
	}
	return fmt.Sprintf("%s%s>%s %s %d /%d", sign, f.from, f.to, f.proto, f.port, f.family)
}

// load opens flows of both families: "db>web udp 53" must arrive and be answered, "-mon>web tcp 80" must not arrive.
// What must arrive has to be of a protocol that sends nothing twice, or a loss would not show.
func (w *world) load(t *testing.T, flows ...string) *load {
	t.Helper()
	var all []loadFlow
	for _, text := range flows {
		fields := strings.Fields(text)
		var f loadFlow
		fields[0], f.denied = strings.CutPrefix(fields[0], "-")
		f.from, f.to, _ = strings.Cut(fields[0], ">")
		f.proto = fields[1]
		if len(fields) > 2 {
			port, err := strconv.Atoi(fields[2])
			if err != nil {
				t.Fatal(err)
			}
			f.port = uint16(port)
		}
		families(func(family int) {
			f.family = family
			all = append(all, f)
		})
	}
	return w.open(t, all)
}

func (w *world) open(t *testing.T, flows []loadFlow) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cancel: cancel, world: w}
	t.Cleanup(func() {
		cancel()
		l.done.Wait()
	})
	for _, f := range flows {
		p := lab.Packet{Proto: f.proto, To: w.hosts[f.to].Addr(f.family), Port: f.port, Timeout: 5 * time.Second}
		if f.denied {
			p.Timeout = 60 * time.Millisecond
		}
		from := w.hosts[f.from]
		l.done.Go(func() { l.run(ctx, f, from, p) })
	}
	return l
}

func (l *load) run(ctx context.Context, f loadFlow, from *lab.Host, p lab.Packet) {
	for ctx.Err() == nil {
		if p.Proto == "udp" {
			p.FromPort = from.FreshPort()
		}
		verdict, err := from.Probe(ctx, p)
		if ctx.Err() != nil {
			return
		}
		l.flows.Add(1)
		if err != nil || verdict.Reached() == f.denied {
			l.mu.Lock()
			now := time.Now().UTC().Format("15:04:05.000")
			l.wrong = append(l.wrong, fmt.Sprintf("%s %s to %s: %s %v", now, f, p.To, verdict, err))
			l.mu.Unlock()
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// stop ends the flows and fails the test if any of them was wrong. It returns how often one was opened.
func (l *load) stop(t *testing.T) int64 {
	t.Helper()
	l.cancel()
	l.done.Wait()
	t.Logf("%d flows", l.flows.Load())
	if len(l.wrong) > 0 {
		t.Errorf("%d flows had the wrong verdict:\n%s\n%s", len(l.wrong), strings.Join(l.wrong[:min(20, len(l.wrong))], "\n"),
			l.world.state())
	}
	return l.flows.Load()
}

func TestASecondStartChangesNothingAndSIGTERMLeavesEverything(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, rich())
		w.expect(t, richWants())
		time.Sleep(3 * time.Second) // until what does no harm has been removed
		before, written := map[*lab.Node]string{}, map[*lab.Node][2]iptables.Fingerprint{}
		for _, n := range w.Nodes() {
			before[n], written[n] = snapshot(t, n), prints(t, n, backend)
		}
		for _, d := range w.daemons {
			d.signal(t, syscall.SIGTERM)
			if d.end.err != nil {
				t.Errorf("after SIGTERM weave-npc on %s ends with %v\n%s", d.node, d.end.err, d.log)
			}
			unchanged(t, d.node, before[d.node])
		}
		w.expect(t, richWants())
		for _, d := range w.daemons {
			said := d.log.len()
			d.start(t)
			d.awaitReady(t)
			time.Sleep(2 * time.Second)
			unchanged(t, d.node, before[d.node])
			if now := prints(t, d.node, backend); now != written[d.node] {
				t.Errorf("weave-npc on %s wrote its rules again: %+v, before %+v\n%s", d.node, now, written[d.node],
					d.log.since(said))
			}
			// The gate is closed as long as not all objects are known.
			_, metrics := d.get("/metrics")
			made := regexp.MustCompile(`(?m)^weavenpc_transactions_total.* (\d+)$`).FindAllStringSubmatch(metrics, -1)
			for _, m := range made {
				if n, err := strconv.Atoi(m[1]); err != nil || n > 2 {
					t.Errorf("weave-npc on %s changed something: %s\n%s", d.node, m[0], d.log.since(said))
				}
			}
		}
	})
}

// prints are the fingerprints of a node's filter tables.
func prints(t *testing.T, n *lab.Node, backend lab.Backend) (both [2]iptables.Fingerprint) {
	t.Helper()
	if err := n.Do(func() error {
		for i, family := range []iptables.Family{iptables.IPv4, iptables.IPv6} {
			table, err := iptables.New(family, iptables.Backend(backend))
			if err != nil {
				return err
			}
			if both[i], err = table.Fingerprint(); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return both
}

func TestS60_InstallingAndCleaningUpOnALiveNodeCutsNothing(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := newWorld(t, backend, lab.Config{})
		for _, n := range w.Nodes() {
			for _, program := range []string{"iptables-", "ip6tables-"} {
				// kube-proxy has rules of this kind: conntrack knows the connections from before.
				run(t, n.Host, program+string(backend), "-w", "-A", "FORWARD", "-m", "conntrack", "--ctstate", "INVALID")
			}
		}
		var talks []conversation
		for _, from := range []string{"db", "mon", "out"} {
			families(func(family int) { talks = append(talks, w.converse(t, from, "web", family)) })
		}
		load := w.load(t, "db>web udp 53", "out>web icmp", "web>mon udp 53", "web>copy icmp", "api>db udp 53",
			"copy>mon udp 53")
		w.begin(t, rich())
		for _, c := range talks {
			c.say(t)
		}
		time.Sleep(2 * time.Second)
		for _, d := range w.daemons {
			d.signal(t, syscall.SIGTERM)
			if _, stderr, status := execute(t, d.node, nil, "cleanup"); status != 0 {
				t.Errorf("cleanup ends with %d\n%s", status, stderr)
			}
		}
		load.stop(t)
		for _, c := range talks {
			c.say(t)
		}
	})
}

func TestWhatMakesItBlindMakesItUnready(t *testing.T) {
	t.Parallel()
	w := start(t, lab.NFT, rich())
	for _, d := range w.daemons { // one is told the bridge, the other the range
		for _, c := range []struct {
			do, undo, says string
		}{
			{"sysctl net.bridge.bridge-nf-call-iptables=0", "sysctl net.bridge.bridge-nf-call-iptables=1", "call-iptables"},
			{"sysctl net.bridge.bridge-nf-call-ip6tables=0", "sysctl net.bridge.bridge-nf-call-ip6tables=1", "call-ip6tables"},
			{"ip link add kube-ipvs0 type bridge", "ip link del kube-ipvs0", "IPVS"},
		} {
			do, undo := strings.Fields(c.do), strings.Fields(c.undo)
			run(t, d.node.Host, do[0], do[1:]...)
			if status, body := d.get("/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, c.says) {
				t.Errorf("on %s after %q readiness is %d %q", d.node, c.do, status, body)
			}
			run(t, d.node.Host, undo[0], undo[1:]...)
			d.awaitReady(t)
		}
		if status, body := d.get("/healthz"); status != http.StatusOK {
			t.Errorf("health on %s is %d %q", d.node, status, body)
		}
	}
}

func TestAMissingPodInterfaceMakesItUnready(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.NFT, lab.Config{})
	n := w.Node("node1")
	m := newManifests(t, w)
	m.write(t, w.objects(rich()))
	for name, bridge := range map[string]string{"pods0": "pods0", "pods+": "pods1"} {
		d := newDaemon(n, "--manifests", m.dir, "--pod-interface", name)
		d.log.expect("there is no interface")
		d.start(t)
		d.endWith(t)
		for range 2 {
			eventually(t, patience, func() bool {
				status, body := d.get("/readyz")
				return status == http.StatusServiceUnavailable && strings.Contains(body, "--pod-interface: there is no interface")
			}, func() string { _, body := d.get("/readyz"); return "readiness is " + body })
			run(t, n.Host, "ip", "link", "add", bridge, "type", "bridge")
			d.awaitReady(t)
			run(t, n.Host, "ip", "link", "del", bridge)
		}
		d.kill(t)
	}
}

func TestDryRunPrintsAndChangesNothing(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := newWorld(t, backend, lab.Config{})
		m := newManifests(t, w)
		w.source = m
		m.write(t, w.objects(rich()))
		n := w.Node("node1")
		before := snapshot(t, n)
		args := []string{"--node-name", "node1", "--iptables-backend", string(backend), "--manifests", m.dir,
			"--pod-interface", "cni0"}
		stdout, stderr, status := execute(t, n, nil, append(args, "--dry-run")...)
		if status != 0 {
			t.Fatalf("exit status %d\n%s", status, stderr)
		}
		for _, wanted := range []string{"create weave-local-pods hash:ip",
			"add weave-local-pods " + w.hosts["web"].Addr4().String(),
			"add weave-local-pods-v6 " + w.hosts["web"].Addr6().String(), "WEAVE-NPC-FORWARD", "shop/p rule 1"} {
			if !strings.Contains(stdout, wanted) {
				t.Errorf("%q is not in\n%s", wanted, stdout)
			}
		}
		unchanged(t, n, before)
		w.expect(t, wants{"tcp 80": ""})

		d := startDaemon(t, n, args[2:]...)
		d.awaitReady(t)
		stdout, stderr, status = execute(t, n, nil, append(args, "--dry-run")...)
		if status != 0 || strings.TrimSpace(stdout) != "" {
			t.Errorf("with nothing to do: exit status %d\n%s\n%s", status, stdout, stderr)
		}
	})
}

func TestS65_WhatOthersChangeIsPutBackAndReported(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, rich())
		w.expect(t, richWants())
		time.Sleep(3 * time.Second)
		d := w.daemons[0]
		before := snapshot(t, d.node)
		d.log.expect("drift found|drift is found again and again")
		program := "iptables-" + string(backend)
		web := w.hosts["web"].Addr4().String()
		for _, c := range []struct {
			about   string
			command []string
			reports string
		}{
			{"our chain is flushed", []string{program, "-w", "-F", "WEAVE-NPC-INGRESS"}, "WEAVE-NPC-INGRESS"},
			{"our jump is deleted", []string{program, "-w", "-D", "FORWARD", "1"}, "FORWARD"},
			{"an entry is deleted", []string{"ipset", "del", "weave-local-pods", web}, "weave-local-pods"},
			{"everything is removed", []string{"sh", "-c", fmt.Sprintf(
				"for i in %s %s; do $i -w -F; $i -w -X; done; ipset destroy || true", program, "ip6"+program[2:])}, "WEAVE-NPC"},
		} {
			said := d.log.len()
			run(t, d.node.Host, c.command[0], c.command[1:]...)
			d.awaitLine(t, said, "drift found.*"+c.reports)
			awaitSnapshot(t, d.node, before)
		}
		w.expect(t, richWants())

		said := d.log.len()
		run(t, d.node.Host, program, "-w", "-I", "FORWARD", "-p", "udp", "-j", "ACCEPT")
		d.awaitLine(t, said, "drift found.*FORWARD.*ACCEPT")
		w.expect(t, richWants())
		rules := strings.Split(run(t, d.node.Host, program, "-w", "-S", "FORWARD"), "\n")
		if !strings.Contains(rules[1], "WEAVE-NPC-FORWARD") || rules[2] != "-A FORWARD -p udp -j ACCEPT" {
			t.Errorf("FORWARD is %q", rules)
		}
		// A rule that drops or jumps may stand above ours.
		run(t, d.node.Host, program, "-w", "-I", "FORWARD", "-p", "tcp", "--dport", "1", "-j", "DROP")
		time.Sleep(2 * time.Second)
		rules = strings.Split(run(t, d.node.Host, program, "-w", "-S", "FORWARD"), "\n")
		if !strings.Contains(rules[2], "WEAVE-NPC-FORWARD") {
			t.Errorf("a rule that drops above ours is taken for trouble: %q", rules)
		}
	})
}

func TestS65_WhatLooksTheSameIsFoundWithinThirtySeconds(t *testing.T) {
	t.Parallel()
	w := start(t, lab.Legacy, rich())
	w.expect(t, richWants())
	d := w.daemons[0]
	d.log.expect("drift found|drift is found again and again")
	time.Sleep(3 * time.Second)
	before := snapshot(t, d.node)
	// The number of entries and the size of the table stay as they are.
	web := w.hosts["web"].Addr4().String()
	run(t, d.node.Host, "ipset", "del", "weave-local-pods", web)
	run(t, d.node.Host, "ipset", "add", "weave-local-pods", "198.51.100.1")
	rules := strings.Split(run(t, d.node.Host, "iptables-legacy", "-w", "-S", "WEAVE-NPC-DROP-INGRESS"), "\n")
	comment := regexp.MustCompile(`--comment "([^"]*)" -j DROP`).FindStringSubmatch(rules[3])
	if comment == nil {
		t.Fatalf("the chain is %q", rules)
	}
	run(t, d.node.Host, "iptables-legacy", "-w", "-R", "WEAVE-NPC-DROP-INGRESS", "3", "-m", "comment",
		"--comment", comment[1], "-j", "RETURN")
	deadline := time.Now().Add(35 * time.Second)
	for time.Now().Before(deadline) && snapshot(t, d.node) != before {
		time.Sleep(500 * time.Millisecond)
	}
	unchanged(t, d.node, before)
}

func TestBlockedPacketsAreLoggedWithNames(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, rich())
		d := w.daemons[0]
		families(func(family int) {
			said := d.log.len()
			w.probe(t, "mon", lab.Packet{Proto: "tcp", To: w.hosts["web"].Addr(family), Port: 80}, lab.Dropped)
			end := func(pod, port string) string {
				addr := w.hosts[ownName(pod)].Addr(family).String()
				return `"` + pod + ` \(\[?` + regexp.QuoteMeta(addr) + `\]?:` + port + `\)"`
			}
			d.awaitLine(t, said, `level=INFO msg=blocked direction=ingress protocol=TCP from=`+end("ops/mon", `\d+`)+` to=`+
				end("shop/web", "80")+` isolated_by=shop/p`)
			said = d.log.len()
			w.probe(t, "web", lab.Packet{Proto: "udp", To: w.hosts["out"].Addr(family), Port: 9}, lab.Dropped)
			d.awaitLine(t, said, `level=INFO msg=blocked direction=egress protocol=UDP from=`+end("shop/web", `\d+`)+
				` to=.*:9.* isolated_by=shop/p`)
		})
		_, metrics := d.get("/metrics")
		if !strings.Contains(metrics, `weavenpc_blocked_connections_total{dport="80",protocol="tcp"} 2`) {
			counted := regexp.MustCompile(`(?m)^weavenpc_blocked.*$`).FindAllString(metrics, -1)
			t.Errorf("blocked packets are not counted:\n%s", counted)
		}
	})
}

// TestOnlyWhatWeDropIsCalledBlocked: a rule of somebody else reports to our NFLOG group whatever passes.
func TestOnlyWhatWeDropIsCalledBlocked(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, rich())
		d := w.daemons[0]
		said := d.log.len()
		run(t, d.node.Host, "iptables-"+string(backend), "-w", "-t", "mangle", "-I", "FORWARD", "-j", "NFLOG", "--nflog-group", "86",
			"--nflog-prefix", "weave-npc blocked ingress")
		w.probe(t, "mon", lab.Packet{Proto: "tcp", To: w.hosts["out"].Addr4(), Port: 80}, lab.Allowed)
		w.probe(t, "db", lab.Packet{Proto: "tcp", To: w.hosts["web"].Addr4(), Port: 80}, lab.Allowed)
		w.probe(t, "mon", lab.Packet{Proto: "tcp", To: w.hosts["web"].Addr4(), Port: 80}, lab.Dropped)
		d.awaitLine(t, said, `msg=blocked direction=ingress protocol=TCP from="ops/mon .* to="shop/web .*:80\)"`)
		_, metrics := d.get("/metrics")
		if !strings.Contains(metrics, `weavenpc_blocked_connections_total{dport="80",protocol="tcp"} 1`+"\n") {
			t.Errorf("blocked packets are counted wrongly:\n%s", regexp.MustCompile(`(?m)^weavenpc_blocked.*$`).FindAllString(metrics, -1))
		}
		// The kernel's own count is read now and then.
		dropped := regexp.MustCompile(`(?m)^weavenpc_dropped_packets_total\{direction="(\w+)",family="(\w+)"\} (\d+)$`)
		eventually(t, 2*patience, func() bool {
			_, metrics = d.get("/metrics")
			counts := map[string]string{}
			for _, m := range dropped.FindAllStringSubmatch(metrics, -1) {
				counts[m[1]+" "+m[2]] = m[3]
			}
			return counts["ingress IPv4"] != "0" && counts["egress IPv4"] == "0"
		}, func() string {
			return "what is dropped is not counted\n" + strings.Join(dropped.FindAllString(metrics, -1), "\n")
		})
	})
}

func TestS70_ManifestsAreReadAsTheAPIServerWould(t *testing.T) {
	eachBackend(t, manifestsAreRead)
}

func manifestsAreRead(t *testing.T, backend lab.Backend) {
	w := start(t, backend, base())
	dir := w.source.(*manifests).dir
	d := w.daemons[0]
	write := func(name, text string) { writeFile(t, filepath.Join(dir, name), w.replacer().Replace(text)) }

	write("policy.yaml", `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: named-only}}}]
    ports: [{port: 80}]
`)
	w.expect(t, wants{"tcp 80": "-*>web"})
	write("pod.json", `{"apiVersion": "v1", "kind": "PodList", "items": [
		{"metadata": {"name": "peer", "namespace": "named-only"},
		"status": {"podIPs": [{"ip": "$out4"}, {"ip": "$out6"}]}}]}`)
	w.expect(t, wants{"tcp 80": "-*>web +out>web", "tcp 81": "-*>web"})

	for _, daemon := range w.daemons {
		daemon.log.expect("policy.yaml:")
	}
	said := d.log.len()
	write("policy.yaml", `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p, namespace: shop}
spec: [broken
`)
	d.awaitLine(t, said, `level=ERROR msg=".*/policy.yaml:\d+: `)
	w.expect(t, wants{"tcp 80": "-*>web +out>web"})

	said = d.log.len()
	write("policy.yaml", `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p, namespace: shop}
spec:
  podSelector: {}
  ingress:
  - ports:
    - port: 80
    - port: 70000
`)
	d.awaitLine(t, said, `level=ERROR msg=".*/policy.yaml:9: .*70000`)
	w.expect(t, wants{"tcp 80": "-*>web +out>web"})

	write("policy.yaml", `# mended, and two more documents
kind: List
apiVersion: v1
items:
- apiVersion: networking.k8s.io/v1
  kind: NetworkPolicy
  metadata: {name: p, namespace: shop}
  spec: {podSelector: {matchLabels: {app: web}}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p, namespace: ops}
spec: {podSelector: {}, policyTypes: [Egress]}
---
`)
	w.expect(t, wants{"tcp 80": "-*>web -ops>*"})
	run(t, w.hosts["n1"], "rm", filepath.Join(dir, "policy.yaml"))
	w.expect(t, wants{"tcp 80": ""})
}
