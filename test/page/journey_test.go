package page

import (
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc/analysis/matrix"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// TestKeyboardJourney goes through the page without a mouse.
func TestKeyboardJourney(t *testing.T) {
	b := newBrowser(t, 1400, 600)
	o := matrix.PageOptions{Options: matrix.Options{Service: flow.Service{Protocol: 6, Port: 80}}}
	b.open(written(t, thirty(t).View(), o), "")
	for range 9 { // through the controls
		b.press("Tab")
		if b.text("document.activeElement.id") == "grid" {
			break
		}
	}
	if got := b.text("document.activeElement.id"); got != "grid" {
		t.Fatalf("the tabulator does not come to the grid, but to %q", got)
	}
	if got := b.text(`getComputedStyle(document.getElementById("grid")).outlineStyle +
		getComputedStyle(document.querySelector(".active")).outlineWidth`); got != "solid3px" {
		t.Errorf("the focus looks like %q", got)
	}
	for _, step := range []struct{ keys, want, panel string }{
		{"ArrowDown ArrowRight", "data/backup-0 → data/backup-0: allowed", ""},
		{"ArrowRight ArrowDown", "data/postgres-* (3 pods) → data/postgres-* (3 pods): denied", ""},
		{"Enter", "data/postgres-* (3 pods) → data/postgres-* (3 pods): denied", "ingress to data/postgres-1: denied: no rule allows it"},
		{"ArrowUp", "data/backup-0 → data/postgres-* (3 pods): allowed", "rule 1: allows it"},
		{"Escape", "data/backup-0 → data/postgres-* (3 pods): allowed", ""},
		{"End", "data/backup-0 → outside: allowed", ""},
		{"Home", "data/backup-0 → namespace data: allowed in part", ""},
		{"Control+End", "outside → outside: allowed", ""},
		{"Control+Home", "namespace data → namespace data: allowed in part", ""},
		{"PageDown", "shop/checkout-* (3 pods) → namespace data: allowed in part", ""},
		{"PageUp", "namespace data → namespace data: allowed in part", ""},
		{"ArrowUp", "namespace data", ""},
		{"ArrowDown ArrowLeft", "namespace data", ""},
		{"Enter", "namespace data", ""}, // folds the row
		{"ArrowDown", "namespace ingress", ""},
		{"ArrowRight", "namespace ingress → namespace data: allowed in part", ""},
		{"ArrowDown ArrowRight ArrowRight", "ingress/proxy-* (4 pods) → data/postgres-* (3 pods): denied", ""},
		{"+", "ingress/proxy-* (4 pods) → data/postgres-* (3 pods): denied", ""},
		{"ArrowDown ArrowRight", "ingress/proxy-0 → data/postgres-0: denied", ""},
		{"Enter", "ingress/proxy-0 → data/postgres-0: denied", "ingress/proxy-0 (10.32.1.27) -> data/postgres-0 (10.32.1.14), tcp/80: denied"},
		{"-", "ingress/proxy-* (4 pods) → data/postgres-* (3 pods): denied", "denied"},
		{"Escape", "ingress/proxy-* (4 pods) → data/postgres-* (3 pods): denied", ""},
	} {
		b.press(strings.Fields(step.keys)...)
		if got := active(b); got != step.want {
			t.Fatalf("%s: comes to %q, not %q", step.keys, got, step.want)
		}
		if got := reason(b); !strings.Contains(got, step.panel) || step.panel == "" && got != "" {
			t.Errorf("%s: shows %q, not %q", step.keys, got, step.panel)
		}
	}
	if got := b.text(`document.getElementById("r0").getAttribute("aria-expanded")`); got != "false" {
		t.Errorf("the row was folded, and is expanded: %s", got)
	}
}

// TestTheAddressHoldsTheState opens a page again by its address.
func TestTheAddressHoldsTheState(t *testing.T) {
	file := written(t, thirty(t).View(), everyPort())
	b := newBrowser(t, 1400, 900)
	b.open(file, "")
	b.choose("port", "tcp/80")
	b.choose("from", "shop")
	b.choose("theme", "dark")
	b.click(`[role=rowheader][aria-label="shop/cart-* (4 pods)"]`)
	b.click(`[role=columnheader][aria-label="namespace data"]`)
	b.click(label("shop/cart-2", "ops/grafana-0"))
	const looks = `[document.getElementById("port").value, document.getElementById("from").value, document.documentElement.dataset.theme,
		document.getElementById("count").textContent, document.getElementById("reason").textContent,
		document.querySelector("[role=gridcell].active").getAttribute("aria-label")].join("|")`
	before := b.text(looks)
	if !strings.Contains(before, "tcp/80|shop|dark|9 rows × 14 columns|") || !strings.Contains(before, "shop/cart-2 → ops/grafana-0: denied") {
		t.Fatalf("the page is not as it was made: %s", before)
	}
	b.open(file, b.text("location.hash"))
	if after := b.text(looks); after != before {
		t.Errorf("opened again it is\n%s,\nnot\n%s", after, before)
	}
	for _, odd := range []string{"#port=tcp/0&level=9&row=%00&source=unknown", "#port=nonsense", "#%%%",
		"#level=x&theme=blue&why=1&destination=" + strings.Repeat("x", 5000)} {
		b.open(file, odd)
		if got := len(cells(b)); got != 17*17 {
			t.Errorf("%.40s: shows %d cells", odd, got)
		}
	}
	b.open(file, "")
	b.eval(`location.hash = "port=tcp/80&to=redis"`) // as a user edits it
	b.waitIdle()
	if got := b.text(`document.getElementById("count").textContent`); got != "17 rows × 2 columns" {
		t.Errorf("the address was edited, and the page has %s", got)
	}
}

// TestScreenReaders checks what the browser reports to them.
func TestScreenReaders(t *testing.T) {
	b := newBrowser(t, 1400, 900)
	b.open(written(t, thirty(t).View(), everyPort()), "")
	b.call("Accessibility.enable", nil)
	count := map[string]int{}
	names := map[string]bool{}
	for _, n := range b.call("Accessibility.getFullAXTree", nil)["nodes"].([]any) {
		node := n.(map[string]any)
		role, _ := node["role"].(map[string]any)["value"].(string)
		count[role]++
		if name, ok := node["name"].(map[string]any); ok {
			names[role+" "+name["value"].(string)] = true
		}
	}
	for role, want := range map[string]int{"grid": 1, "columnheader": 17, "rowheader": 17, "gridcell": 17 * 17, "row": 18} {
		if count[role] != want {
			t.Errorf("%d of role %s, not %d", count[role], role, want)
		}
	}
	for _, name := range []string{"grid Reachability: sources in rows, destinations in columns", "rowheader namespace shop",
		"gridcell shop/cart-* (4 pods) → data/redis-* (3 pods): allowed on every port", "combobox port", "searchbox from"} {
		if !names[name] {
			t.Errorf("there is no %s", name)
		}
	}
	at := b.text(`(g => [g.getAttribute("aria-rowcount"), g.getAttribute("aria-colcount"), ...["aria-rowindex", "aria-colindex"].map(a =>
		document.querySelector("#x14-14").closest("[" + a + "]").getAttribute(a))].join())(document.getElementById("grid"))`)
	if at != "18,18,16,16" {
		t.Errorf("rows, columns and the last cell's place are %s", at)
	}
}
