package page

import (
	"bytes"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc/analysis/matrix"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/test/fixture"
)

var pictures = flag.String("pictures", "", "directory to write screenshots to, as the documentation shows them")

// written writes the page of a cluster to a file.
func written(t testing.TB, v *cluster.View, o matrix.PageOptions) string {
	t.Helper()
	var page bytes.Buffer
	if _, err := matrix.WritePage(&page, v, o); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "matrix.html")
	if err := os.WriteFile(file, page.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// fragment returns the state of a page, from names and values in turn.
func fragment(pairs ...string) string {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Add(pairs[i], pairs[i+1])
	}
	return "#" + v.Encode()
}

// on80 asks about one port and an address outside.
func on80() matrix.PageOptions {
	return matrix.PageOptions{Options: matrix.Options{Service: flow.Service{Protocol: 6, Port: 80}, Addresses: []string{"198.51.100.7"}}}
}

// everyPort asks about all ports.
func everyPort() matrix.PageOptions { return matrix.PageOptions{AllPorts: true} }

// cells returns the cells that are shown, one in a line: rows, columns and the words of each.
func cells(b *browser) map[string]string {
	b.t.Helper()
	found := map[string]string{}
	labels := b.text(`[...document.querySelectorAll("[role=gridcell]:not(.x)")].map(e => e.getAttribute("aria-label") + "\n").join("")`)
	for line := range strings.Lines(labels) {
		pair, words, _ := strings.Cut(strings.TrimSpace(line), ": ")
		found[pair] = words
	}
	return found
}

// reason returns the text of the panel; empty if it is closed.
func reason(b *browser) string {
	b.t.Helper()
	return b.text(`(e => e.hidden ? "" : [...e.querySelectorAll("h2, p")].map(p => p.textContent).join("\n"))(document.getElementById("reason"))`)
}

// active returns the label of the cell or heading that keys act on.
func active(b *browser) string {
	b.t.Helper()
	return b.text(`document.getElementById(document.getElementById("grid").getAttribute("aria-activedescendant")).getAttribute("aria-label")`)
}

// label returns a selector of the cell between two names.
func label(from, to string) string {
	return fmt.Sprintf(`[role=gridcell][aria-label^="%s → %s: "]`, from, to)
}

func TestCells(t *testing.T) {
	b := newBrowser(t, 1400, 900)
	b.open(written(t, small(t).View(), on80()), "")
	got := cells(b)
	if len(got) != 49 { // two groups and five rows
		t.Errorf("there are %d cells, not 49: %v", len(got), got)
	}
	for pair, words := range map[string]string{"shop/web → shop/db": "allowed", "shop/mon → shop/db": "denied", "shop/db → shop/web": "allowed",
		"198.51.100.7 → shop/db": "denied", "outside → shop/db": "denied", "shop/db → outside": "allowed", "namespace shop → shop/db": "allowed in part", "addresses → namespace shop": "allowed in part"} {
		if got[pair] != words {
			t.Errorf("%s: %q, not %q", pair, got[pair], words)
		}
	}
	if signs := b.text(`[..."adp"].map(c => document.querySelector("[role=gridcell]." + c).textContent).join("")`); signs != "+×~" {
		t.Errorf("the signs are %q", signs)
	}
}

// TestAWorkloadAndItself shows that the template of a workload stands for two of its pods.
func TestAWorkloadAndItself(t *testing.T) {
	w := small(t)
	w.SetPod(fixture.Pod("shop/db node1 10.32.1.2 app=db Deployment/db"))
	b := newBrowser(t, 1400, 900)
	b.open(written(t, w.View(), on80()), fragment("source", "shop/db", "destination", "shop/db", "why", "1"))
	if got := cells(b)["shop/db → shop/db"]; got != "denied" {
		t.Errorf("the cell says %q", got)
	}
	if got := reason(b); !strings.Contains(got, "ingress to shop/db.2: denied: no rule allows it") {
		t.Errorf("the reason is\n%s", got)
	}
}

// TestOriginAndPorts says in the page what it shows, and in a cell's title which ports are allowed.
func TestOriginAndPorts(t *testing.T) {
	w := small(t)
	w.SetPolicy(fixture.Policy(t, "shop/mon", `{podSelector: {matchLabels: {app: mon}}, ingress: [{ports: [{port: 9090}]}]}`))
	b := newBrowser(t, 1400, 900)
	o := everyPort()
	o.Origin = "manifests of deploy/"
	b.open(written(t, w.View(), o), "")
	if got := b.text(`document.getElementById("origin").textContent`); got != o.Origin {
		t.Errorf("the page says %q", got)
	}
	cell := label("shop/web", "shop/mon")
	b.eval(`document.querySelector('` + cell + `').dispatchEvent(new MouseEvent("mouseover", {bubbles: true}))`)
	if got := b.text(`document.querySelector('` + cell + `').title`); got != "shop/web → shop/mon: allowed in part\nallowed: tcp/9090" {
		t.Errorf("the title is %q", got)
	}
}

// TestEveryPort shows all ports in one page, and each that policies distinguish.
func TestEveryPort(t *testing.T) {
	w := small(t)
	w.SetPolicy(fixture.Policy(t, "shop/mon", `{podSelector: {matchLabels: {app: mon}}, ingress: [{ports: [{port: 9090, endPort: 9099}]}]}`))
	b := newBrowser(t, 1400, 900)
	file := written(t, w.View(), everyPort())
	b.open(file, "")
	got := cells(b)
	for pair, words := range map[string]string{"shop/web → shop/db": "allowed on every port", "shop/mon → shop/db": "denied on every port",
		"shop/web → shop/mon": "allowed in part"} {
		if got[pair] != words {
			t.Errorf("%s: %q, not %q", pair, got[pair], words)
		}
	}
	ports := b.text(`[...document.getElementById("port").options].map(o => o.textContent).join("; ")`)
	if want := "every port; tcp/9090-9099; tcp, every other port; udp, every port; sctp, every port; icmp"; ports != want {
		t.Errorf("the ports are %s,\nnot         %s", ports, want)
	}
	b.click(label("shop/web", "shop/mon"))
	chips := b.text(`[...document.querySelectorAll("#ports button")].map(e => e.textContent).join("; ")`)
	if !strings.HasPrefix(chips, "+ tcp/9090-9099; × tcp, every") {
		t.Errorf("the ports of the cell are %s", chips)
	}
	b.click(`#ports [data-port="udp/1"]`)
	if got := reason(b); !strings.Contains(got, "port wants tcp/9090-9099, asked for is udp/1") {
		t.Errorf("the page shows %q", got)
	}
	b.choose("port", "tcp/9090")
	if got := cells(b)["shop/web → shop/mon"]; got != "allowed" {
		t.Errorf("on one port it is %q", got)
	}
	b.open(file, fragment("port", "tcp/9095", "source", "shop/web", "destination", "shop/mon", "why", "1"))
	if got := reason(b); !strings.Contains(got, "tcp/9095: allowed") {
		t.Errorf("asked for a port within a range, the page shows %q", got)
	}
}

// TestTheReasonIsNextToTheCell shows it within the window, whatever the size, and the cell next to it.
func TestTheReasonIsNextToTheCell(t *testing.T) {
	file := written(t, thirty(t).View(), on80())
	b := newBrowser(t, 1400, 900)
	for _, size := range [][2]int{{1400, 900}, {2400, 1300}, {901, 500}, {700, 600}, {360, 640}, {640, 360}} {
		b.resize(size[0], size[1])
		b.open(file, fragment("level", "2"))
		b.press("Control+Home")
		b.eval(`document.getElementById("grid").focus()`)
		b.press("Control+End", "Enter")
		inside := b.text(`["reason", document.getElementById("grid").getAttribute("aria-activedescendant"), "close"].map(id => {
			const r = document.getElementById(id).getBoundingClientRect();
			return id + (r.width > 0 && r.left >= 0 && r.top >= 0 && r.right <= innerWidth && r.bottom <= innerHeight ? "" :
				" is outside: " + JSON.stringify(r));
		}).join("; ")`)
		if strings.Contains(inside, "outside") {
			t.Errorf("%v: %s", size, inside)
		}
		covered := b.eval(`(() => { const cell = document.querySelector("[role=gridcell].active"), r = cell.getBoundingClientRect();
			return document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2) === cell; })()`)
		if covered != true {
			t.Errorf("%v: something is over the cell", size)
		}
	}
}

func TestReasonOnClick(t *testing.T) {
	b := newBrowser(t, 1400, 900)
	b.open(written(t, small(t).View(), on80()), "")
	b.click(label("shop/mon", "shop/db"))
	if got := reason(b); !strings.Contains(got, "shop/mon → shop/db\n×denied") ||
		!strings.Contains(got, "rule 1: no: peer wants app=web, shop/mon has app=mon") {
		t.Errorf("the page shows %q", got)
	}
	b.click("#close")
	if got := reason(b); got != "" {
		t.Errorf("it is closed, and shows %q", got)
	}
	b.click(label("namespace shop", "namespace shop"))
	if got := reason(b); !strings.Contains(got, "+ 5 allowed") || !strings.Contains(got, "× 1 denied") {
		t.Errorf("of namespaces the page shows %q", got)
	}
}

// TestTwoPodsOfAWorkload shows two of its pods where a workload meets itself.
func TestTwoPodsOfAWorkload(t *testing.T) {
	b := newBrowser(t, 1400, 900)
	b.open(written(t, thirty(t).View(), on80()), "")
	b.click(label("shop/cart-* (4 pods)", "shop/cart-* (4 pods)"))
	if got := reason(b); !strings.Contains(got, "peer wants app=web, shop/cart-0 has app=cart") || !strings.Contains(got, "-> shop/cart-1") {
		t.Errorf("the page shows %q", got)
	}
}

func TestFilters(t *testing.T) {
	file := written(t, thirty(t).View(), on80())
	b := newBrowser(t, 1400, 900)
	for _, c := range []struct{ name, from, to, want string }{
		{"from", "CART", "", "2 rows × 18 columns"},
		{"from and to", "web", "data/", "2 rows × 4 columns"},
		{"a namespace", "ops", "", "4 rows × 18 columns"},
		{"one pod's name", "cart-3", "", "2 rows × 18 columns"},
		{"an address", "198.", "", "2 rows × 18 columns"},
		{"unknown", "", "unknown", "18 rows × 0 columns"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.open(file, "")
			b.choose("from", c.from)
			b.choose("to", c.to)
			if got := b.text(`document.getElementById("count").textContent`); got != c.want {
				t.Errorf("shows %s, not %s", got, c.want)
			}
			b.press("ArrowDown", "Enter") // whatever there is, keys break nothing
		})
	}
}

// TestNamespacesThatWereNotAskedFor leaves the pairs empty that -n excludes.
func TestNamespacesThatWereNotAskedFor(t *testing.T) {
	b := newBrowser(t, 1400, 900)
	o := everyPort()
	o.Either = "shop"
	b.open(written(t, thirty(t).View(), o), "")
	const rows, ofShop = 17, 5
	if got := len(cells(b)); got != rows*rows-(rows-ofShop)*(rows-ofShop) {
		t.Errorf("there are %d cells", got)
	}
	o.Either, o.From, o.To = "", "shop", "data"
	b.open(written(t, thirty(t).View(), o), "")
	if got := b.text(`document.getElementById("count").textContent`); got != "5 rows × 4 columns" { // without outside
		t.Errorf("from shop to data it has %s", got)
	}
}

// TestNamesAreText shows that what is in a name is shown and not obeyed, and that the page fetches nothing.
func TestNamesAreText(t *testing.T) {
	w := small(t)
	const evil = `</script><!--<script><img src=x onerror="document.title='obeyed'"><b>`
	p := fixture.Pod("shop/evil node1 10.32.1.9")
	p.Name, p.Labels = evil, map[string]string{"app": evil}
	w.SetPod(p)
	w.SetPod(fixture.Pod("__proto__/constructor node1 10.32.1.10 __proto__=x app=toString"))
	w.SetPolicy(fixture.Policy(t, "shop/bad", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: "</script><img src=y>"}}]}]}`))
	b := newBrowser(t, 1400, 900)
	file := written(t, w.View(), on80())
	b.open(file, fragment("source", "shop/"+evil, "destination", "shop/db", "why", "1", "row", `"><img src=z>`))
	if b.eval(`document.images.length + document.querySelectorAll("b").length`) != 0.0 || strings.Contains(b.text("document.title"), "obeyed") {
		t.Error("a name has become an element")
	}
	got := reason(b)
	if !strings.Contains(got, "<img src=x") || !strings.Contains(got, "<img src=y>") {
		t.Errorf("a name is not shown: %q", got)
	}
	if got := cells(b)["__proto__/constructor → shop/db"]; got != "denied" {
		t.Errorf("a pod of an odd name is %q", got)
	}
	policy := b.text(`document.querySelector("meta[http-equiv]").content`)
	if strings.Contains(policy, "unsafe") || !strings.Contains(policy, "default-src 'none'") {
		t.Errorf("the page's policy is %s", policy)
	}
	b.eval(`document.body.append(Object.assign(document.createElement("script"), {textContent: "document.title = 'obeyed'"}))`)
	if b.text("document.title") == "obeyed" {
		t.Error("a script that is not the page's runs")
	}
	if source, err := os.ReadFile(file); err != nil || bytes.Contains(source, []byte("http:")) || bytes.Contains(source, []byte("https:")) {
		t.Errorf("the page names something elsewhere: %v", err)
	}
}

// TestDomainNames shows a column for each domain name of a policy, and what is not known of other addresses.
func TestDomainNames(t *testing.T) {
	w := small(t)
	w.SetClusterPolicy(fixture.ClusterPolicy(t, "names", `{tier: Admin, priority: 10, subject: {namespaces: {}}, egress: [
		{action: Accept, to: [{domainNames: [api.example.com]}], protocols: [{tcp: {destinationPort: {number: 80}}}]},
		{action: Deny, to: [{networks: [0.0.0.0/0]}]}]}`))
	b := newBrowser(t, 1400, 900)
	b.open(written(t, w.View(), on80()), "")
	got := cells(b)
	for pair, words := range map[string]string{"shop/web → api.example.com": "allowed", "shop/web → 198.51.100.7": "unknown",
		"namespace shop → domain names": "allowed", "198.51.100.7 → api.example.com": "allowed", "namespace shop → 198.51.100.7": "unknown", "shop/web → outside": "denied"} {
		if got[pair] != words {
			t.Errorf("%s: %q, not %q", pair, got[pair], words)
		}
	}
	if _, ok := got["api.example.com → shop/db"]; ok {
		t.Error("a domain name is a source")
	}
	b.click(label("shop/web", "api.example.com"))
	if got := reason(b); !strings.Contains(got, "rule 1, Accept: matches the domain name") {
		t.Errorf("the page shows %q", got)
	}
	b.click(label("shop/web", "198.51.100.7"))
	if got := reason(b); !strings.Contains(got, "unknown: it may be an address of api.example.com: no node's learned addresses") {
		t.Errorf("the page shows %q", got)
	}
	b.click(label("namespace shop", "addresses"))
	if got := reason(b); !strings.Contains(got, "? 3 unknown") || !strings.Contains(got, "× 3 denied") {
		t.Errorf("the page shows %q", got)
	}
}
