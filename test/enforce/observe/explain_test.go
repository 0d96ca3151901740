package observe

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// TestExplainKernel asks explain on a node, and again after sets and a chain were spoilt.
func TestExplainKernel(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Rich())
		w.Expect(t, e2e.Wants{"tcp 80": e2e.RichWants()["tcp 80"]})
		n := w.Node("node1")
		ask := func(from, to string) (out string, status int) {
			out, stderr, status := e2e.Execute(t, n, nil, "explain", "--kernel", "--node-name", n.Name(),
				"--iptables-backend", string(backend),
				"--manifests", w.Source.(*e2e.Manifests).Dir, "--from", from, "--to", to, "--port", "tcp/80")
			if status == 2 {
				t.Fatalf("%s > %s: %s", from, to, stderr)
			}
			return out, status
		}
		for from, want := range map[string]int{"shop/db": 0, "ops/mon": 1, "shop/api": 1} {
			out, status := ask(from, "shop/web")
			if status != want || strings.Contains(out, "DIFFERS") || !strings.Contains(out, "as the policies say") ||
				strings.Contains(out, "others can send") {
				t.Errorf("%s > shop/web: status %d, not %d\n%s", from, status, want, out)
			}
		}
		planWorkload(t, w)
		if out, stderr, status := e2e.Execute(t, n, nil, "explain", "--kernel", "--node-name", n.Name(),
			"--iptables-backend", string(backend),
			"--manifests", w.Source.(*e2e.Manifests).Dir, "--from", "shop/planned", "--to", "shop/web", "--port",
			"tcp/80"); status != 2 ||
			!strings.Contains(stderr, "there is no pod shop/planned") {
			t.Errorf("of a workload without pods, explain ends with %d and says\n%s%s", status, out, stderr)
		}
		for _, d := range w.Daemons {
			d.Kill(t)
		}
		spoil(t, w, n, backend)
		for _, set := range []string{"sources4", "sources6"} {
			e2e.Run(t, n.Host, "nft", "flush", "set", "bridge", "weave-npc", set)
		}
		if out, _ := ask("shop/db", "shop/web"); !strings.Contains(out, "it is not bound to the pod's port") {
			t.Errorf("no source is bound, and explain says\n%s", out)
		}
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
func planWorkload(t *testing.T, w *e2e.Cluster) {
	t.Helper()
	dir := w.Source.(*e2e.Manifests).Dir
	const text = `{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: shop, name: planned}, spec: {selector: {matchLabels: {app: db}},
  template: {metadata: {labels: {app: db}}}}}`
	if err := os.WriteFile(filepath.Join(dir, "planned.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, stderr, status := e2e.Execute(t, w.Node("node1"), nil, "explain", "--manifests", dir, "--from",
		"shop/planned", "--to", "shop/web", "--port", "tcp/80")
	if status != 0 {
		t.Errorf("explain ends with %d and says\n%s%s", status, out, stderr)
	}
}

// TestS90_ExplainKernelOfTheOwnNode asks explain on a node about what its pods send to it, and again when INPUT does
// not jump to weave-npc.
func TestS90_ExplainKernelOfTheOwnNode(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Do(e2e.Base(),
			e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone,
				e2e.Egress("Deny", `{networks: [0.0.0.0/0, "::/0"]}`)))))
		n := w.Node("node1")
		e2e.EachFamily(func(family int) {
			w.Probe(t, "web", lab.Packet{Proto: "tcp", To: w.Hosts["n1"].Addr(family), Port: 80}, lab.Dropped)
			w.Probe(t, "db", lab.Packet{Proto: "tcp", To: w.Hosts["n1"].Addr(family), Port: 80}, lab.Allowed)
		})
		ask := func(from, says string) {
			t.Helper()
			e2e.EachFamily(func(family int) {
				out, stderr, status := e2e.Execute(t, n, nil, "explain", "--kernel", "--node-name", n.Name(),
					"--iptables-backend", string(backend),
					"--manifests", w.Source.(*e2e.Manifests).Dir, "--from", from, "--to",
					w.Hosts["n1"].Addr(family).String(), "--port", "tcp/80")
				if !regexp.MustCompile(says).MatchString(out) {
					t.Errorf("%s > the node: status %d, and explain does not say %q: %s\n%s", from, status, says,
						stderr, out)
				}
			})
		}
		ask("shop/web", `(?s)to the node itself: drops it\n  at rule \d+ of WEAVE-NPC-.*way: INPUT \d+, .*as the policies say`)
		ask("shop/db", `(?s)to the node itself: lets it through\n.*way: INPUT \d+, .*as the policies say`)
		for _, d := range w.Daemons {
			d.Kill(t)
		}
		for _, program := range []string{"iptables-", "ip6tables-"} {
			e2e.Run(t, n.Host, program+string(backend), "-w", "-F", "INPUT")
		}
		ask("shop/web", `(?s)to the node itself: lets it through\n.*DIFFERS.*denied`)
		ask("shop/db", `has no part in it`)
	})
}

// spoil takes shop/db out of the sets that are about pods of shop, and lets all of ops/mon through.
func spoil(t *testing.T, w *e2e.Cluster, n *lab.Node, backend lab.Backend) {
	t.Helper()
	for _, l := range w.ListSets(t, n) {
		for _, m := range l.Members {
			if m.Comment == "shop/db" && len(l.Name) == len("weave-")+25 && l.Type == ipset.HashIP {
				e2e.Run(t, n.Host, "ipset", "del", l.Name, m.Prefix.Addr().String())
			}
		}
	}
	e2e.EachFamily(func(family int) {
		program := map[int]string{4: "iptables-", 6: "ip6tables-"}[family] + string(backend)
		e2e.Run(t, n.Host, program, "-w", "-I", "WEAVE-NPC", "-s", w.Hosts["mon"].Addr(family).String(), "-j", "ACCEPT")
	})
}

// TestShowKernel shows that sets and rules are linked to selectors, pods and policies, with the objects and without.
func TestShowKernel(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Rich())
		w.Expect(t, e2e.Wants{"tcp 80": e2e.RichWants()["tcp 80"]})
		n, dir := w.Node("node1"), w.Source.(*e2e.Manifests).Dir
		for _, c := range []struct{ what, manifests, says string }{
			{"sets", dir, `weave-[a-z2-7]{25} +hash:ip +pods with app=db in shop +shop/p +` +
				w.Hosts["db"].Addr(4).String() + ` shop/db`},
			{"sets", dir, `list:set +pods in namespaces with team=b +shop/p +weave-[a-z2-7]{25} pods in ops`},
			{"sets", filepath.Join(dir, "none"), `weave-[a-z2-7]{25} +hash:ip +\? +shop/p +` +
				w.Hosts["db"].Addr(4).String() + ` shop/db`},
			{"rules", dir, `ACCEPT +shop/p rule 1 +-p tcp dst,dst in {port http/tcp of local pods with app=web in shop} ` +
				`src in {pods with app=db in shop}`},
			{"rules", dir, `IPv6 WEAVE-NPC-E-[a-z2-7]{16}: what policies of shop allow, egress`},
			{"rules", filepath.Join(dir, "none"), `WEAVE-NPC-I-[a-z2-7]{16}\n(.*\n)*.*ACCEPT +shop/p rule 1`},
		} {
			out, stderr, status := e2e.Execute(t, n, nil, "show", c.what, "--node-name", n.Name(), "--manifests",
				c.manifests,
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
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Rich())
		w.Expect(t, e2e.Wants{"tcp 80": e2e.RichWants()["tcp 80"]})
		n, dir := w.Node("node1"), w.Source.(*e2e.Manifests).Dir
		refused := func(node, says string) {
			t.Helper()
			for _, args := range [][]string{{"show", "rules"}, {"show", "sets"},
				{"explain", "--kernel", "--from", "shop/db", "--to", "shop/web", "--port", "tcp/80"}} {
				out, stderr, status := e2e.Execute(t, n, nil, append(args, "--node-name", node, "--manifests", dir,
					"--iptables-backend", string(backend))...)
				if status != 2 || out != "" || !regexp.MustCompile(says).MatchString(stderr) {
					t.Errorf("%v for node %s ends with %d and says %q, not %q:\n%s", args, node, status, stderr, says,
						out)
				}
			}
		}
		refused("node2", `the pods of this node are those of `+n.Name()+`, and not of "node2": give the right --node-name`)
		refused("nodel", `the pods of this node are those of `+n.Name()+`, and not of "nodel"`)
		for _, d := range w.Daemons {
			d.Kill(t)
		}
		if _, stderr, status := e2e.Execute(t, n, nil, "cleanup"); status != 0 {
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
	if err := os.Symlink(e2e.Command(), plugin); err != nil {
		t.Fatal(err)
	}
	manifest := "apiVersion: v1\nkind: Pod\nmetadata: {namespace: shop, name: web}\nspec: {containers: [{name: main, image: main}]}\n"
	if err := os.Mkdir(filepath.Join(dir, "manifests"), 0o755); err != nil {
		t.Fatal(err)
	}
	e2e.WriteFile(t, filepath.Join(dir, "manifests", "web.yaml"), manifest)
	at := []string{"--manifests", filepath.Join(dir, "manifests")}
	for _, c := range []struct {
		args   []string
		says   string
		status int
	}{
		{append([]string{"explain", "--from", "shop/web", "--to", "192.0.2.1", "--port", "80"}, at...),
			`shop/web (10.254.0.1) -> 192.0.2.1, tcp/80: allowed`, 0},
		{append([]string{"show", "pods"}, at...), `shop/web`, 0},
		{[]string{"--help"}, `kubectl npc`, 0},
		{[]string{"cleanup"}, `kubectl npc: unknown command`, 1},
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
