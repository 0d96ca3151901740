package enforce

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/test/lab"
)

// TestExplainKernel asks explain on a node, and again after sets and a chain were spoilt.
func TestExplainKernel(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, rich())
		w.expect(t, wants{"tcp 80": richWants()["tcp 80"]})
		n := w.Node("node1")
		ask := func(from, to string) (out string, status int) {
			out, stderr, status := execute(t, n, nil, "explain", "--kernel", "--node-name", n.Name(), "--iptables-backend", string(backend),
				"--manifests", w.source.(*manifests).dir, "--from", from, "--to", to, "--port", "tcp/80")
			if status == 2 {
				t.Fatalf("%s > %s: %s", from, to, stderr)
			}
			return out, status
		}
		for from, want := range map[string]int{"shop/db": 0, "ops/mon": 1, "shop/api": 1} {
			out, status := ask(from, "shop/web")
			if status != want || strings.Contains(out, "DIFFERS") || !strings.Contains(out, "as the policies say") {
				t.Errorf("%s > shop/web: status %d, not %d\n%s", from, status, want, out)
			}
		}
		w.planWorkload(t)
		if out, stderr, status := execute(t, n, nil, "explain", "--kernel", "--node-name", n.Name(), "--iptables-backend", string(backend),
			"--manifests", w.source.(*manifests).dir, "--from", "shop/planned", "--to", "shop/web", "--port", "tcp/80"); status != 2 ||
			!strings.Contains(stderr, "there is no pod shop/planned") {
			t.Errorf("of a workload without pods, explain ends with %d and says\n%s%s", status, out, stderr)
		}
		for _, d := range w.daemons {
			d.kill(t)
		}
		w.spoil(t, n, backend)
		differs := regexp.MustCompile(`(?s)drops it\n  at rule \d+ of WEAVE-NPC-I-.*DIFFERS.*allowed`)
		if out, status := ask("shop/db", "shop/web"); status != 1 || !differs.MatchString(out) {
			t.Errorf("db has left the sets, and explain ends with %d and says\n%s", status, out)
		}
		differs = regexp.MustCompile(`(?s)lets it through\n  at rule 1 of WEAVE-NPC: .*DIFFERS.*denied`)
		if out, _ := ask("ops/mon", "shop/web"); !differs.MatchString(out) {
			t.Errorf("mon is let through, and explain says\n%s", out)
		}
	})
}

// planWorkload adds a workload without pods to the manifests. Without a kernel, questions can be asked about it.
func (w *harness) planWorkload(t *testing.T) {
	t.Helper()
	dir := w.source.(*manifests).dir
	const text = `{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: shop, name: planned}, spec: {selector: {matchLabels: {app: db}},
  template: {metadata: {labels: {app: db}}}}}`
	if err := os.WriteFile(filepath.Join(dir, "planned.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, stderr, status := execute(t, w.Node("node1"), nil, "explain", "--manifests", dir, "--from", "shop/planned", "--to", "shop/web", "--port", "tcp/80")
	if status != 0 {
		t.Errorf("explain ends with %d and says\n%s%s", status, out, stderr)
	}
}

// TestS90_ExplainKernelOfTheOwnNode asks explain on a node about what its pods send to it, and again when INPUT does
// not jump to weave-npc.
func TestS90_ExplainKernelOfTheOwnNode(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, do(base(), clusterPolicy("a", admin("1", webAlone, egress("Deny", `{networks: [0.0.0.0/0, "::/0"]}`)))))
		n := w.Node("node1")
		families(func(family int) {
			w.probe(t, "web", lab.Packet{Proto: "tcp", To: w.hosts["n1"].Addr(family), Port: 80}, lab.Dropped)
			w.probe(t, "db", lab.Packet{Proto: "tcp", To: w.hosts["n1"].Addr(family), Port: 80}, lab.Allowed)
		})
		ask := func(from, says string) {
			t.Helper()
			families(func(family int) {
				out, stderr, status := execute(t, n, nil, "explain", "--kernel", "--node-name", n.Name(), "--iptables-backend", string(backend),
					"--manifests", w.source.(*manifests).dir, "--from", from, "--to", w.hosts["n1"].Addr(family).String(), "--port", "tcp/80")
				if !regexp.MustCompile(says).MatchString(out) {
					t.Errorf("%s > the node: status %d, and explain does not say %q: %s\n%s", from, status, says, stderr, out)
				}
			})
		}
		ask("shop/web", `(?s)to the node itself: drops it\n  at rule \d+ of WEAVE-NPC-.*way: INPUT \d+, .*as the policies say`)
		ask("shop/db", `(?s)to the node itself: lets it through\n.*way: INPUT \d+, .*as the policies say`)
		for _, d := range w.daemons {
			d.kill(t)
		}
		for _, program := range []string{"iptables-", "ip6tables-"} {
			run(t, n.Host, program+string(backend), "-w", "-F", "INPUT")
		}
		ask("shop/web", `(?s)to the node itself: lets it through\n.*DIFFERS.*denied`)
		ask("shop/db", `has no part in it`)
	})
}

// spoil takes shop/db out of the sets that are about pods of shop, and lets all of ops/mon through.
func (w *harness) spoil(t *testing.T, n *lab.Node, backend lab.Backend) {
	t.Helper()
	for _, l := range w.listSets(t, n) {
		for _, m := range l.Members {
			if m.Comment == "shop/db" && len(l.Name) == len("weave-")+25 && l.Type == ipset.HashIP {
				run(t, n.Host, "ipset", "del", l.Name, m.Prefix.Addr().String())
			}
		}
	}
	families(func(family int) {
		program := map[int]string{4: "iptables-", 6: "ip6tables-"}[family] + string(backend)
		run(t, n.Host, program, "-w", "-I", "WEAVE-NPC", "-s", w.hosts["mon"].Addr(family).String(), "-j", "ACCEPT")
	})
}

// TestShowKernel shows that sets and rules are linked to selectors, pods and policies, with the objects and without.
func TestShowKernel(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, rich())
		w.expect(t, wants{"tcp 80": richWants()["tcp 80"]})
		n, dir := w.Node("node1"), w.source.(*manifests).dir
		for _, c := range []struct{ what, manifests, says string }{
			{"sets", dir, `weave-[a-z2-7]{25} +hash:ip +pods with app=db in shop +shop/p +` + w.hosts["db"].Addr(4).String() + ` shop/db`},
			{"sets", dir, `list:set +pods in namespaces with team=b +shop/p +weave-[a-z2-7]{25} pods in ops`},
			{"sets", filepath.Join(dir, "none"), `weave-[a-z2-7]{25} +hash:ip +\? +shop/p +` + w.hosts["db"].Addr(4).String() + ` shop/db`},
			{"rules", dir, `ACCEPT +shop/p rule 1 +-p tcp dst,dst in {port http/tcp of local pods with app=web in shop} ` +
				`src in {pods with app=db in shop}`},
			{"rules", dir, `IPv6 WEAVE-NPC-E-[a-z2-7]{16}: what policies of shop allow, egress`},
			{"rules", filepath.Join(dir, "none"), `WEAVE-NPC-I-[a-z2-7]{16}\n(.*\n)*.*ACCEPT +shop/p rule 1`},
		} {
			out, stderr, status := execute(t, n, nil, "show", c.what, "--node-name", n.Name(), "--manifests", c.manifests,
				"--iptables-backend", string(backend))
			if status != 0 || !regexp.MustCompile(c.says).MatchString(out) {
				t.Errorf("show %s ends with %d, and does not say %q:\n%s%s", c.what, status, c.says, stderr, out)
			}
			if wantsWhy := c.manifests != dir; strings.Contains(stderr, "not known") != wantsWhy {
				t.Errorf("show %s says %q", c.what, stderr)
			}
		}
	})
}

// TestKernelThatIsNotAsked shows that nothing is read from a kernel that weave-npc does not keep, or that is another
// node's.
func TestKernelThatIsNotAsked(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, rich())
		w.expect(t, wants{"tcp 80": richWants()["tcp 80"]})
		n, dir := w.Node("node1"), w.source.(*manifests).dir
		refused := func(node, says string) {
			t.Helper()
			for _, args := range [][]string{{"show", "rules"}, {"show", "sets"},
				{"explain", "--kernel", "--from", "shop/db", "--to", "shop/web", "--port", "tcp/80"}} {
				out, stderr, status := execute(t, n, nil, append(args, "--node-name", node, "--manifests", dir, "--iptables-backend", string(backend))...)
				if status != 2 || out != "" || !regexp.MustCompile(says).MatchString(stderr) {
					t.Errorf("%v for node %s ends with %d and says %q, not %q:\n%s", args, node, status, stderr, says, out)
				}
			}
		}
		refused("node2", `the pods of this node are those of `+n.Name()+`, and not of "node2": give the right --node-name`)
		refused("nodel", `the pods of this node are those of `+n.Name()+`, and not of "nodel"`)
		for _, d := range w.daemons {
			d.kill(t)
		}
		if _, stderr, status := execute(t, n, nil, "cleanup"); status != 0 {
			t.Fatalf("cleanup ends with %d: %s", status, stderr)
		}
		refused(n.Name(), `weave-npc does not run here: there are no chains of it in iptables \(`+string(backend)+`\), and no sets`)
	})
}

// TestKubectlPlugin runs the command under the name by which kubectl finds it.
func TestKubectlPlugin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plugin := filepath.Join(dir, "kubectl-npc")
	if err := os.Symlink(command(), plugin); err != nil {
		t.Fatal(err)
	}
	manifest := "apiVersion: v1\nkind: Pod\nmetadata: {namespace: shop, name: web}\nspec: {containers: [{name: main, image: main}]}\n"
	if err := os.Mkdir(filepath.Join(dir, "manifests"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "manifests", "web.yaml"), manifest)
	at := []string{"--manifests", filepath.Join(dir, "manifests")}
	for _, c := range []struct {
		args   []string
		says   string
		status int
	}{
		{append([]string{"explain", "--from", "shop/web", "--to", "192.0.2.1", "--port", "80"}, at...),
			`shop/web -> 192.0.2.1, tcp/80: allowed`, 0},
		{append([]string{"show", "pods"}, at...), `shop/web`, 0},
		{[]string{"--help"}, `kubectl npc`, 0},
		{[]string{"cleanup"}, `kubectl-npc: unknown command`, 1},
		{[]string{"explain", "--help"}, `kubectl npc explain`, 0},
	} {
		out, err := exec.CommandContext(t.Context(), plugin, c.args...).CombinedOutput()
		status := 0
		if err != nil {
			status = err.(*exec.ExitError).ExitCode()
		}
		if status != c.status || !strings.Contains(string(out), c.says) {
			t.Errorf("%v ends with %d and says\n%s", c.args, status, out)
		}
	}
}
