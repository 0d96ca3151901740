// Package page looks at the page of weave-npc show matrix in a real browser.
package page

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/reach"
	"github.com/weave-npc/weave-npc/test/fixture"
)

var screenshot = flag.String("screenshot", "", "file to write a picture of the page at 30 pods to")

// program finds a browser. A machine whose system has none as a package, as Ubuntu, may be without; CI may not.
func program(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const none = "there is no browser in the PATH, chromium or google-chrome; on Debian test/setup browser installs one"
	if os.Getenv("CI") != "" {
		t.Fatal(none)
	}
	t.Skip(none)
	return ""
}

// browser runs a headless browser on a file and returns what it prints. It has a network of its own, where nobody is.
func browser(t *testing.T, file string, args ...string) string {
	t.Helper()
	path := program(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	home := t.TempDir()
	cmd := exec.CommandContext(ctx, path, append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
		"--disable-dev-shm-usage", "--user-data-dir=" + home, "--virtual-time-budget=3000"}, append(args, "file://"+file)...)...)
	cmd.Env = append(os.Environ(), "HOME="+home)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNET, Setpgid: true, Pdeathsig: unix.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("the browser: %v\n%s", err, &stderr)
	}
	return stdout.String()
}

// opened writes the page of a world with a row for each pod, does something in it, and returns its elements.
func opened(t *testing.T, w *cluster.Cluster, script string) string {
	t.Helper()
	return browser(t, written(t, w, script, reach.Options{EachPod: true}), "--dump-dom")
}

func written(t *testing.T, w *cluster.Cluster, script string, o reach.Options) string {
	t.Helper()
	o.Service, o.Addresses = flow.Service{Protocol: unix.IPPROTO_TCP, Port: 80}, []string{"198.51.100.7"}
	m, err := reach.NewMatrix(w.View(), o)
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := m.WritePage(&page); err != nil {
		t.Fatal(err)
	}
	if script != "" {
		page.WriteString("<script>" + script + "</script>")
	}
	file := filepath.Join(t.TempDir(), "matrix.html")
	if err := os.WriteFile(file, page.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func addPod(w *cluster.Cluster, namespace, name string, addr string, labels map[string]string) {
	w.SetPod(npc.Pod{Namespace: namespace, Name: name, Node: "node1", Labels: labels, Addrs: []netip.Addr{netip.MustParseAddr(addr)}})
}

// small has three pods, of which web alone reaches db.
func small(t *testing.T) *cluster.Cluster {
	w := cluster.New()
	w.SetNamespace(npc.Namespace{Name: "shop"})
	for i, name := range []string{"db", "mon", "web"} {
		addPod(w, "shop", name, fmt.Sprintf("10.32.1.%d", i+2), map[string]string{"app": name})
	}
	w.SetPolicy(fixture.Policy(t, "shop/db", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`))
	return w
}

var (
	cellOf = regexp.MustCompile(`<button class="(.)" title="([^"]*)"`)
	shown  = regexp.MustCompile(`(?s)<section id="reason"[^>]*>(.*?)</section>`)
)

// cells returns the titles of the page's cells -> their class.
func cells(dom string) map[string]string {
	found := map[string]string{}
	for _, m := range cellOf.FindAllStringSubmatch(dom, -1) {
		found[m[2]] = m[1]
	}
	return found
}

func TestCells(t *testing.T) {
	dom := opened(t, small(t), "")
	got := cells(dom)
	if len(got) != 16 {
		t.Fatalf("there are %d cells, not 16:\n%s", len(got), dom)
	}
	for title, class := range map[string]string{"shop/web → shop/db: allowed": "a", "shop/mon → shop/db: denied": "d",
		"shop/db → shop/web: allowed": "a", "198.51.100.7 → shop/db: denied": "d"} {
		if got[title] != class {
			t.Errorf("%q has class %q, not %q", title, got[title], class)
		}
	}
	if !strings.Contains(dom, "4 × 4, 14 allowed") {
		t.Error("nothing is counted, or wrongly")
	}
}

func TestReasonOnClick(t *testing.T) {
	dom := opened(t, small(t), `document.querySelector("button[title^='shop/mon → shop/db']").click()`)
	reason := shown.FindStringSubmatch(dom)
	if reason == nil || !strings.Contains(reason[1], "shop/mon → shop/db: denied") ||
		!strings.Contains(reason[1], "rule 1: no: peer wants app=web, shop/mon has app=mon") {
		t.Errorf("the page shows %q", reason)
	}
	if strings.Count(dom, `aria-pressed="true"`) != 1 {
		t.Error("the cell is not marked")
	}
}

func TestFilters(t *testing.T) {
	set := func(id, value string) string {
		return fmt.Sprintf(`{ const e = document.getElementById(%q); e.value = %q; e.dispatchEvent(new Event("input", {bubbles: true})); }`,
			id, value)
	}
	for _, c := range []struct {
		name, script string
		want         int
	}{
		{"from", set("from", "WEB"), 4},
		{"from_and_to", set("from", "web") + set("to", "shop/"), 3},
		{"something_denied", set("reach", "d"), 2},
		{"nobody", set("to", "nobody"), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := cells(opened(t, small(t), c.script)); len(got) != c.want {
				t.Errorf("shows %d cells, not %d: %v", len(got), c.want, got)
			}
		})
	}
}

// TestNamesAreText shows that what is in a name is shown and not obeyed.
func TestNamesAreText(t *testing.T) {
	w := small(t)
	const evil = `</script><img src=x onerror="document.title='obeyed'"><b>`
	addPod(w, "shop", evil, "10.32.1.9", map[string]string{"app": evil})
	w.SetPolicy(fixture.Policy(t, "shop/bad", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: "</script><img src=y>"}}]}]}`))
	dom := opened(t, w, `for (const b of document.querySelectorAll("button[title*='onerror'][title*='shop/db']")) b.click();`)
	if strings.Contains(dom, "<img") || strings.Contains(dom, "<title>obeyed") {
		t.Error("a name has become an element")
	}
	if !strings.Contains(dom, "&lt;img src=x") || !strings.Contains(dom, "&lt;img src=y") {
		t.Error("a name is not shown")
	}
}

// TestThirtyPods fits thirty pods into a window, and takes the picture that the documentation shows.
func TestThirtyPods(t *testing.T) {
	w := thirty(t)
	script := `document.querySelector("button[title^='shop/cart-1 → data/postgres-0']").click()`
	if got := len(cells(opened(t, w, script))); got != 31*31 {
		t.Errorf("there are %d cells", got)
	}
	picture := filepath.Join(t.TempDir(), "matrix.png")
	if *screenshot != "" {
		picture = *screenshot
	}
	picture, err := filepath.Abs(picture)
	if err != nil {
		t.Fatal(err)
	}
	browser(t, written(t, w, script, reach.Options{EachPod: true}), "--window-size=1400,1000", "--screenshot="+picture)
	if info, err := os.Stat(picture); err != nil || info.Size() < 10_000 {
		t.Errorf("there is no picture: %v", err)
	}
}

// TestRowsOfReplicas shows a row for each kind of pods, and leaves the pairs empty that were not asked for.
func TestRowsOfReplicas(t *testing.T) {
	script := `document.querySelector("button[title^='shop/cart-* (4 pods) → shop/cart-*']").click()`
	dom := browser(t, written(t, thirty(t), script, reach.Options{Either: "shop"}), "--dump-dom")
	const kinds, ofShop = 12, 4
	if got := len(cells(dom)); got != kinds*kinds-(kinds-ofShop)*(kinds-ofShop) {
		t.Errorf("there are %d cells", got)
	}
	reason := shown.FindStringSubmatch(dom)
	if reason == nil || !strings.Contains(reason[1], "peer wants app=web, shop/cart-1 has app=cart") &&
		!strings.Contains(reason[1], "peer wants app=web, shop/cart-0 has app=cart") {
		t.Errorf("the page shows %q", reason)
	}
}

// thirty is a cluster of three namespaces and 30 pods.
func thirty(t *testing.T) *cluster.Cluster {
	w := cluster.New()
	n := 0
	for _, g := range []struct {
		namespace, app string
		count          int
	}{{"shop", "web", 4}, {"shop", "cart", 4}, {"shop", "checkout", 3}, {"shop", "mail", 2}, {"data", "postgres", 3}, {"data", "redis", 3},
		{"data", "backup", 1}, {"ops", "prometheus", 2}, {"ops", "grafana", 1}, {"ops", "logs", 3}, {"ingress", "proxy", 4}} {
		w.SetNamespace(npc.Namespace{Name: g.namespace, Labels: map[string]string{"kubernetes.io/metadata.name": g.namespace, "team": g.namespace}})
		for i := range g.count {
			n++
			addPod(w, g.namespace, fmt.Sprintf("%s-%d", g.app, i), fmt.Sprintf("10.32.1.%d", n), map[string]string{"app": g.app})
		}
	}
	for name, spec := range map[string]string{
		"shop/default": `{podSelector: {}, policyTypes: [Ingress]}`,
		"shop/web": `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: ingress}}}],
			ports: [{port: 80}]}]}`,
		"shop/cart": `{podSelector: {matchExpressions: [{key: app, operator: In, values: [cart, checkout]}]},
			ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 80}]}]}`,
		"shop/mail": `{podSelector: {matchLabels: {app: mail}}, policyTypes: [Ingress, Egress],
			ingress: [{from: [{podSelector: {matchLabels: {app: checkout}}}]}],
			egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8]}}]}]}`,
		"data/postgres": `{podSelector: {matchLabels: {app: postgres}}, ingress: [{from: [{podSelector: {matchLabels: {app: backup}}},
			{namespaceSelector: {matchLabels: {team: shop}}, podSelector: {matchLabels: {app: checkout}}}]}]}`,
		"data/redis": `{podSelector: {matchLabels: {app: redis}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: shop}},
			podSelector: {matchLabels: {app: cart}}}]}]}`,
		"ops/in": `{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}`,
		"shop/monitoring": `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: ops}},
			podSelector: {matchLabels: {app: prometheus}}}]}]}`,
	} {
		w.SetPolicy(fixture.Policy(t, name, spec))
	}
	return w
}
