package node

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// TestComingFromAnotherEngine and going back to it, by the steps of docs/migrate.md, while flows are opened all the
// time and connections stay open.
func TestComingFromAnotherEngine(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		for _, e := range []engine{kubeRouter(), felix()} {
			t.Run(e.name, func(t *testing.T) {
				t.Parallel()
				m := &move{Cluster: e2e.New(t, backend, lab.Config{Attach: e.attach}), engine: e}
				m.run(t)
			})
		}
	})
}

// move is a migration from an engine to weave-npc and back.
type move struct {
	*e2e.Cluster
	engine
	stream *lab.Stream
	talks  []e2e.Conversation
}

func (m *move) run(t *testing.T) {
	for _, n := range m.Nodes() {
		restore(t, m.Cluster, n, nothing)
		m.install(t, m.Cluster, n)
	}
	alone := map[*lab.Node]string{}
	for _, n := range m.Nodes() {
		alone[n] = maskSeeds(e2e.Snapshot(t, n))
	}
	m.load(t)
	m.check(t, "the other engine alone")

	m.Begin(t, moving(), "--allow-action", "RETURN")
	m.check(t, "both")
	// The other engine is ended: of policies that change now only weave-npc learns.
	m.Apply(t, m.Objects(e2e.Do(moving(), e2e.Policy("shop/web", reopened), e2e.Policy("shop/db", shut))))
	m.expectFlow(t, "api", "db", false)
	m.expectFlow(t, "mon", "web", false)
	m.removeTheirs(t)
	m.check(t, "the other engine's leftovers removed")
	m.expectFlow(t, "api", "db", false)
	m.expectFlow(t, "mon", "web", true)

	m.restart(t)
	m.check(t, "weave-npc alone")
	m.expectFlow(t, "api", "db", false)
	m.expectFlow(t, "mon", "web", true)

	m.Apply(t, m.Objects(moving()))
	m.restart(t, "--allow-action", "RETURN")
	m.check(t, "weave-npc asks the others again")
	for _, d := range m.Daemons {
		// The other engine may take a rule out of FORWARD at the moment when weave-npc moves it. Then weave-npc tries
		// again. Or it writes the whole table as it was before weave-npc changed it.
		d.Log.Expect("drift (is )?found|cannot bring the kernel up to date, trying again.*RULE_DELETE failed")
		m.install(t, m.Cluster, d.Node)
	}
	m.check(t, "both, on the way back")
	for _, n := range m.Nodes() {
		m.remove(t, m.Cluster, n)
	}
	m.check(t, "the other engine has removed its own")
	for _, n := range m.Nodes() {
		m.install(t, m.Cluster, n)
	}
	m.check(t, "both again")
	for _, n := range m.Nodes() {
		m.again(t, m.Cluster, n)
	}
	m.check(t, "both, and the other one has put itself first again")
	for _, d := range m.Daemons {
		d.Signal(t, syscall.SIGTERM)
		if stdout, stderr, status := e2e.Execute(t, d.Node, nil, "cleanup"); status != 0 {
			t.Errorf("cleanup on %s ends with %d\n%s\n%s", d.Node, status, stdout, stderr)
		}
	}
	m.check(t, "the other engine alone again")
	for _, n := range m.Nodes() {
		if now := maskSeeds(e2e.Snapshot(t, n)); now != alone[n] {
			t.Errorf("%s has\n%s\nand had\n%s", n, now, alone[n])
		}
	}
	m.stop(t)
}

const (
	// reopened is the policy of web with mon among those who may reach it, shut isolates db.
	reopened = `
podSelector: {matchLabels: {app: web}}
policyTypes: [Ingress, Egress]
ingress:
- from: [{podSelector: {matchLabels: {app: db}}}, {ipBlock: {cidr: 192.0.2.0/24}}, {ipBlock: {cidr: "2001:db8::/32"}}]
- from: [{namespaceSelector: {matchLabels: {team: b}}, podSelector: {matchLabels: {app: mon}}}]
egress:
- to: [{namespaceSelector: {matchLabels: {team: b}}}]`
	shut = `{podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress]}`
)

// load begins to open flows, and connections that are to last. kube-router lets all echo requests pass, so none is sent
// that is denied.
func (m *move) load(t *testing.T) {
	t.Helper()
	var flows []lab.StreamFlow
	for _, text := range strings.Fields("db>web out>web web>mon web>copy mon>api out>mon db>out " +
		"-api>web -copy>web -n2>web -web>out -web>db -web>api -db>copy -mon>copy -api>copy -out>copy") {
		text, denied := strings.CutPrefix(text, "-")
		from, to, _ := strings.Cut(text, ">")
		e2e.EachFamily(func(family int) {
			f := lab.StreamFlow{From: m.Hosts[from], To: m.Hosts[to], Family: family, Proto: "udp",
				Port: e2e.StreamPort, Denied: denied}
			flows = append(flows, f)
			if !denied {
				f.Proto = "icmp"
				flows = append(flows, f)
			}
		})
	}
	var err error
	if m.stream, err = lab.NewStream(e2e.StreamRate, flows); err != nil {
		t.Fatal(err)
	}
	e2e.EachFamily(func(family int) {
		m.talks = append(m.talks, m.Converse(t, "db", "web", family), m.Converse(t, "out", "web", family),
			m.Converse(t, "web", "copy", family), m.Converse(t, "mon", "api", family))
	})
}

// check lets each flow be opened some times more, and each connection be used.
func (m *move) check(t *testing.T, about string) {
	t.Helper()
	t.Logf("%s %s", time.Now().UTC().Format("15:04:05.000000"), about)
	for range 3 {
		m.stream.Round(t.Context())
	}
	for _, c := range m.talks {
		c.Say(t)
	}
}

// stop ends the flows and returns what became of them.
func (m *move) stop(t *testing.T) {
	t.Helper()
	result, err := m.stream.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d flows were opened in %s", result.Opened, result.Took)
	if result.WrongAccepts+result.WrongDrops > 0 {
		t.Errorf("%d flows passed that are denied, %d failed that are allowed:\n%s", result.WrongAccepts,
			result.WrongDrops,
			strings.Join(result.Wrong, "\n"))
	}
}

// expectFlow asks whether a pod reaches another.
func (m *move) expectFlow(t *testing.T, from, to string, arrives bool) {
	t.Helper()
	e2e.EachFamily(func(family int) {
		p := lab.Packet{Proto: "tcp", To: m.Hosts[to].Addr(family), Port: 80, Timeout: await.Scaled(5 * time.Second)}
		if !arrives {
			p.Timeout = e2e.DeniedTimeout
		}
		seen, err := m.Hosts[from].Probe(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if (seen == lab.Allowed) != arrives {
			t.Errorf("from %s to %s (IPv%d): %s", from, to, family, seen)
		}
	})
}

// maskSeeds removes from a snapshot what differs when a set is made again.
func maskSeeds(snapshot string) string {
	return regexp.MustCompile(` initval 0x[0-9a-f]+`).ReplaceAllString(snapshot, "")
}

// restart ends weave-npc and starts it with other flags.
func (m *move) restart(t *testing.T, args ...string) {
	t.Helper()
	for i, d := range m.Daemons {
		directory := m.Source.(*e2e.Manifests).Dir
		d.Args = append([]string{"--node-name", d.Node.Name()},
			m.DaemonArgs(i, append([]string{"--manifests", directory}, args...)...)...)
		d.Signal(t, syscall.SIGTERM)
		d.Start(t)
	}
	for _, d := range m.Daemons {
		d.AwaitReady(t)
	}
}

// removeTheirs runs the commands that docs/migrate.md has for it.
func (m *move) removeTheirs(t *testing.T) {
	t.Helper()
	bin := m.programs(t)
	script := documented(t, "Removing what "+m.name+" left")
	for _, n := range m.Nodes() {
		e2e.Feed(t, n, script, "env", "PATH="+bin+":"+os.Getenv("PATH"), "sh", "-eu")
		if left := regexp.MustCompile(`.*(cali-|KUBE-(ROUTER|POD-FW|NWPLCY|SRC|DST)-|cali[46]0).*`).FindString(e2e.Snapshot(t, n)); left != "" {
			t.Errorf("%s still has %s", n, left)
		}
	}
}

// programs returns a directory where iptables is the backend of this network, as it is on a node.
func (m *move) programs(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(m.Dir(), "bin-")
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, what := range []string{"", "-save", "-restore"} {
			path, err := exec.LookPath(family + "-" + string(m.Backend) + what)
			if err != nil {
				t.Fatal(err)
			}
			if path, err = filepath.EvalSymlinks(path); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(path, filepath.Join(dir, family+what)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// documented returns the commands below a heading of docs/migrate.md.
func documented(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/migrate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "# "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n#")
	var script strings.Builder
	for line := range strings.Lines(section) {
		if code, ok := strings.CutPrefix(line, "    "); ok {
			script.WriteString(code)
		}
	}
	if !found || script.Len() == 0 {
		t.Fatalf("docs/migrate.md has no commands under %q", heading)
	}
	return script.String()
}
