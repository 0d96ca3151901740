package node

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// neighbour is another program that has rules, tables or sets on every node.
type neighbour struct {
	name   string
	attach lab.Attach
	rules  []rules
	table  string   // of nftables, for each family
	tables []string // what table makes, to compare
	args   []string // of weave-npc
	// wants are verdicts in addition to those of e2e.RichWants.
	wants map[string]string
	then  func(t *testing.T, w *e2e.Cluster)
	// late is what they do once weave-npc runs.
	late rules
	// repairs is whether weave-npc has to put its jump first again.
	repairs bool
}

// Verdicts of those who speak as well.
const (
	// onlyOnBridge is when nothing comes to pods from without their node.
	onlyOnBridge = " -out,nodes>pods -web,db,mon>api,copy -api,copy>web,db,mon"
	// onlyOnNode is when nothing leaves pods' nodes either.
	onlyOnNode = onlyOnBridge + " -pods>out,nodes"
)

// everywhere adds a verdict to all questions of richWants.
func everywhere(verdict string) map[string]string {
	more := map[string]string{}
	for question := range e2e.RichWants() {
		more[question] = verdict
	}
	return more
}

func neighbours() []neighbour {
	returns := []string{"--allow-action", "RETURN"}
	return []neighbour{
		{name: "kube-proxy_that_starts_later", rules: []rules{kubeProxyIPTables()}, late: kubeProxyForwards,
			repairs: true,
			then:    throughServices},
		{name: "kube-proxy_and_routed_pods", attach: lab.Routed, rules: []rules{kubeProxyIPTables(), kubeProxyForwards},
			args: []string{"--pod-cidr", "10.32.0.0/12,fd10:32::/48"}, then: throughServices},
		{name: "kube-proxy_that_is_asked_too", rules: []rules{kubeProxyIPTables(), kubeProxyForwards}, args: returns,
			then: throughServices},
		{name: "kube-proxy_in_nftables_mode", rules: []rules{nothing}, table: kubeProxyNFTables(),
			tables: []string{"ip kube-proxy", "ip6 kube-proxy"}, then: throughServices},
		{name: "Docker_and_a_CNI_that_accepts", rules: []rules{docker, flannel}, late: dockerRestarts, repairs: true},
		{name: "Docker_and_no_rule_that_accepts", rules: []rules{docker}, args: []string{"--pod-interface", "cni0"},
			wants: everywhere(onlyOnNode)},
		{name: "Docker_with_an_administrators_rules", rules: []rules{docker, flannel, administrator}, args: returns,
			wants: map[string]string{"tcp 81": "-*>*"}},
		{name: "firewalld", rules: []rules{firewalld}},
		{name: "firewalld_that_is_asked_too", rules: []rules{firewalld}, args: returns,
			wants: everywhere(onlyOnBridge)},
		{name: "firewalld_in_nftables", rules: []rules{nothing}, table: firewalldNFTables,
			tables: []string{"inet firewalld"},
			wants:  everywhere(onlyOnBridge)},
		{name: "another_user_of_NFLOG", rules: []rules{nflog},
			late: "*filter\n-D FORWARD -j FLOWS\n-I FORWARD -j FLOWS\nCOMMIT\n",
			then: onlyBlockedIsReported},
	}
}

// TestAlongsideOthers has others' rules on every node, from before weave-npc and put in front of its own later. What is
// denied never passes. What is allowed passes unless others' rules deny it where they are evaluated. What others own
// stays as they left it.
func TestAlongsideOthers(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		for _, n := range neighbours() {
			t.Run(n.name, func(t *testing.T) {
				t.Parallel()
				n.run(t, e2e.New(t, backend, lab.Config{Attach: n.attach}))
			})
		}
	})
}

func (n neighbour) run(t *testing.T, w *e2e.Cluster) {
	whole, before := map[*lab.Node]string{}, map[*lab.Node]string{}
	note := func(node *lab.Node) { before[node] = foreignState(t, node, n.tables) }
	for _, node := range w.Nodes() {
		n.moveIn(t, w, node)
		note(node)
		whole[node] = e2e.Snapshot(t, node)
	}
	w.Begin(t, e2e.Rich(), n.args...)
	n.check(t, w, before)
	if n.late != "" {
		for _, d := range w.Daemons {
			said := d.Log.Len()
			if n.repairs {
				d.Log.Expect("drift found.*FORWARD")
			}
			restore(t, w, d.Node, n.late)
			note(d.Node)
			if n.repairs {
				d.AwaitLine(t, said, "drift found.*FORWARD.*accepts before us")
			}
		}
		n.check(t, w, before)
	}
	for _, d := range w.Daemons {
		d.Signal(t, syscall.SIGTERM)
		if stdout, stderr, status := e2e.Execute(t, d.Node, nil, "cleanup"); status != 0 {
			t.Errorf("cleanup on %s ends with %d\n%s\n%s", d.Node, status, stdout, stderr)
		}
		if now := foreignState(t, d.Node, n.tables); now != before[d.Node] {
			t.Errorf("after cleanup %s has of others\n%s\nand had\n%s", d.Node, now, before[d.Node])
		}
		if n.late == "" {
			e2e.Unchanged(t, d.Node, whole[d.Node])
		}
	}
}

// moveIn puts the rules and sets of others on a node.
func (n neighbour) moveIn(t *testing.T, w *e2e.Cluster, node *lab.Node) {
	t.Helper()
	for _, r := range n.rules {
		restore(t, w, node, r)
	}
	if n.table != "" {
		e2e.Feed(t, node, neighbourly(w, 4, n.table), "nft", "-f", "-")
		if len(n.tables) > 1 {
			e2e.Feed(t, node, neighbourly(w, 6, n.table), "nft", "-f", "-")
		}
	}
}

// check asks for the matrices, and compares what others own.
func (n neighbour) check(t *testing.T, w *e2e.Cluster, before map[*lab.Node]string) {
	t.Helper()
	all := e2e.RichWants()
	for question, verdicts := range n.wants {
		all[question] += " " + verdicts
	}
	w.Expect(t, all)
	if n.then != nil {
		n.then(t, w)
	}
	for _, node := range w.Nodes() {
		if now := foreignState(t, node, n.tables); now != before[node] {
			t.Errorf("%s has of others\n%s\nand had\n%s", node, now, before[node])
		}
		n.checkFirst(t, w, node)
	}
}

// checkFirst fails the test unless the jump of weave-npc is the only one and stands before every rule that can accept.
func (n neighbour) checkFirst(t *testing.T, w *e2e.Cluster, node *lab.Node) {
	t.Helper()
	for _, program := range []string{"iptables-", "ip6tables-"} {
		printed := e2e.Run(t, node.Host, program+string(w.Backend), "-w", "-S", "FORWARD")
		chain := regexp.MustCompile(`(?m)^-A .*$`).FindAllString(printed, -1)
		if first := strings.Contains(chain[0], "-j WEAVE-NPC-FORWARD"); !first && (n.late == "" || n.repairs) {
			t.Errorf("FORWARD on %s does not begin with our jump: %q", node, chain)
		}
		if count := strings.Count(strings.Join(chain, "\n"), "WEAVE-NPC"); count != 1 {
			t.Errorf("FORWARD on %s has %d jumps to us: %q", node, count, chain)
		}
	}
}

// throughServices asks for pods by their Services, and by the port that nodes have for these. The pod decides, and what
// reaches its node in the name of another one comes from no pod.
func throughServices(t *testing.T, w *e2e.Cluster) {
	t.Helper()
	for _, c := range []struct {
		from, to, node string
		wanted         lab.Verdict
	}{
		{from: "db", to: "web:80", wanted: lab.Allowed},
		{from: "mon", to: "web:80", wanted: lab.Dropped},
		{from: "api", to: "web:80", wanted: lab.Dropped},
		{from: "n1", to: "web:80", wanted: lab.Allowed},
		{from: "web", to: "web:80", wanted: lab.Allowed},
		{from: "web", to: "api:80", wanted: lab.Dropped},
		{from: "web", to: "api:81", wanted: lab.Refused},
		{from: "db", to: "api:80", wanted: lab.Allowed},
		{from: "web", to: "mon:80", wanted: lab.Allowed},
		{from: "copy", to: "mon:80", wanted: lab.Allowed},
		{from: "api", to: "mon:80", wanted: lab.Dropped},
		{from: "mon", to: "copy:80", wanted: lab.Dropped},
		{from: "out", to: "web:80", node: "n1", wanted: lab.Allowed},
		{from: "n2", to: "web:80", node: "n1", wanted: lab.Dropped},
		{from: "out", to: "mon:80", node: "n1", wanted: lab.Dropped},
		{from: "out", to: "api:80", node: "n1", wanted: lab.Allowed},
		{from: "out", to: "copy:80", node: "n1", wanted: lab.Dropped},
		{from: "out", to: "web:80", node: "n2", wanted: lab.Dropped},
	} {
		e2e.EachFamily(func(family int) {
			at := serviceOn(t, w, family, c.to, c.node)
			w.Probe(t, c.from, lab.Packet{Proto: "tcp", To: at.Addr(), Port: at.Port()}, c.wanted)
		})
	}
}

// onlyBlockedIsReported has an allowed and then a blocked connection, while another program reports both.
func onlyBlockedIsReported(t *testing.T, w *e2e.Cluster) {
	t.Helper()
	d := w.Daemons[0]
	said := d.Log.Len()
	e2e.EachFamily(func(family int) {
		for _, proto := range []string{"tcp", "udp"} {
			p := lab.Packet{Proto: proto, To: w.Hosts["web"].Addr(family), Port: map[string]uint16{"tcp": 80,
				"udp": 53}[proto]}
			w.Probe(t, "db", p, lab.Allowed)
			p.Port = w.Hosts["db"].FreshPort() // none serves it, and it is no repeat
			w.Probe(t, "db", p, lab.Dropped)
			d.AwaitLine(t, said, fmt.Sprintf(`msg=blocked.*from="shop/db .*to="shop/web .*:%d\)`, p.Port))
		}
	})
	if wrong := regexp.MustCompile(`msg=blocked.*"shop/db [^"]*" to="shop/web [^"]*:(80|53)\)"`).FindString(d.Log.Since(said)); wrong != "" {
		t.Errorf("what passed is reported as blocked: %s", wrong)
	}
}

// TestSetsOfOthers changes sets of another program, some with names much like those of weave-npc.
func TestSetsOfOthers(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.New(t, backend, lab.Config{})
		n := w.Node("node1")
		sets := func(lines ...string) {
			t.Helper()
			e2e.Feed(t, n, strings.Join(lines, "\n")+"\n", "ipset", "restore")
		}
		restore(t, w, n, nothing)
		before := e2e.Snapshot(t, n)
		sets("create weave-local hash:ip", "create weave-local-pods-old hash:ip", "create weaver-local-pods hash:ip",
			"create weave-fail-closed hash:net",
			"create weave-kubernetes-node-sets hash:ip", "create KUBE-LOAD-BALANCER hash:ip,port",
			"create cali40masq-ipam-pools hash:net",
			"create lists list:set", "add lists weave-local", "add KUBE-LOAD-BALANCER 192.0.2.1,tcp:80",
			"add weave-fail-closed 10.32.1.0/24")
		w.Begin(t, e2e.Rich())
		w.Expect(t, e2e.RichWants())
		d := w.DaemonOn(n)
		said := d.Log.Len()
		web := w.Hosts["web"].Addr4().String()
		sets("add weave-local "+web, "add weave-local-pods-old "+web, "add weaver-local-pods "+web,
			"add weave-kubernetes-node-sets "+web,
			"swap weave-local weave-local-pods-old", "destroy weave-fail-closed",
			"create weave-fail-closed hash:ip timeout 600", "add weave-fail-closed 192.0.2.9")
		now := foreignState(t, n, nil)
		w.Apply(t, w.Objects(e2e.Do(e2e.Rich(), e2e.Churn(1))))
		w.Apply(t, w.Objects(e2e.Rich()))
		w.Expect(t, e2e.RichWants())
		if strings.Contains(d.Log.Since(said), "drift found") {
			t.Errorf("sets of others are taken for those of weave-npc:\n%s", d.Log.Since(said))
		}
		if left := maskTimeouts(foreignState(t, n, nil)); left != maskTimeouts(now) {
			t.Errorf("others have\n%s\nand had\n%s", left, now)
		}
		d.Signal(t, syscall.SIGTERM)
		e2e.Execute(t, n, nil, "cleanup")
		if left := maskTimeouts(foreignState(t, n, nil)); left != maskTimeouts(now) {
			t.Errorf("after cleanup others have\n%s\nand had\n%s", left, now)
		}
		for _, name := range []string{"lists", "weave-local", "weave-local-pods-old", "weaver-local-pods",
			"weave-fail-closed",
			"weave-kubernetes-node-sets", "KUBE-LOAD-BALANCER", "cali40masq-ipam-pools"} {
			e2e.Run(t, n.Host, "ipset", "destroy", name)
		}
		e2e.Unchanged(t, n, before)
	})
}

// maskTimeouts takes from a snapshot what counts down by itself.
func maskTimeouts(snapshot string) string {
	return regexp.MustCompile(`(?m)^(add .* timeout) \d+`).ReplaceAllString(snapshot, "$1")
}

// TestABridgeThatIsNotSeen has a bridge whose packets do not pass iptables, when weave-npc starts and while it runs: it
// is not ready and gives the reason, two pods of a node reach each other, and policies decide everything else.
func TestABridgeThatIsNotSeen(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.New(t, backend, lab.Config{})
		seen := func(value string) {
			t.Helper()
			for _, n := range w.Nodes() {
				e2e.Run(t, n.Host, "sysctl", "net.bridge.bridge-nf-call-iptables="+value,
					"net.bridge.bridge-nf-call-ip6tables="+value)
			}
		}
		unseen := e2e.RichWants()
		for question := range maps.Clone(unseen) {
			unseen[question] += " +web,db,mon>web,db,mon +api,copy>api,copy"
		}
		blind := func() {
			t.Helper()
			w.Expect(t, unseen)
			for _, d := range w.Daemons {
				var status int
				var body string
				await.Within(t, e2e.Timeout, func() bool { // at first other reasons may come before it
					status, body = d.Get("/readyz")
					return status == http.StatusServiceUnavailable && strings.Contains(body, "does not pass ip")
				}, func() string { return fmt.Sprintf("readiness on %s is %d %q", d.Node.Name(), status, body) })
			}
		}
		sees := func() {
			t.Helper()
			seen("1")
			for _, d := range w.Daemons {
				d.AwaitReady(t)
			}
			w.Expect(t, e2e.RichWants())
		}
		seen("0")
		m := w.FromManifests(t, e2e.Rich())
		w.StartEach(t, func(i int, n *lab.Node) *e2e.Daemon {
			d := e2e.NewDaemon(n, w.DaemonArgs(i, "--manifests", m.Dir)...)
			d.Log.Expect("does not pass ip")
			return d
		})
		blind()
		sees()
		seen("0")
		blind()
		sees()
	})
}
