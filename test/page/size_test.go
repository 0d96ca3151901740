package page

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc/cluster"
)

// The limits of a page of 10,000 pods. The time is that of the page in the browser, from its address to what is seen. On a
// busy machine it takes longer: a test allows for slow ones by a factor, and opens a page again that was slow.
const (
	maxBytes  = 2_000_000
	maxMillis = 1_000
	factor    = 5
	attempts  = 20
)

// TestSizes measures pages of 30, 300 and 10,000 pods, and takes the pictures that the documentation shows.
func TestSizes(t *testing.T) {
	b := newBrowser(t, 1200, 800)
	for _, c := range []struct {
		name    string
		cluster *cluster.Cluster
		state   string
		want    string
	}{
		{"30", thirty(t), fragment("source", "ingress/proxy-* (4 pods)", "destination", "shop/web-* (4 pods)", "why", "1"), "17 rows × 17 columns"},
		{"300", large(t, 300, 60), fragment("source", "team-002/api-*", "theme", "dark"), "74 rows × 74 columns"},
		{"10000", large(t, 10_000, 500), "", "101 rows × 101 columns"},
		{"10000 workloads", large(t, 10_000, 500), fragment("level", "1"), "602 rows × 602 columns"},
		{"10000 pods", large(t, 10_000, 500), fragment("level", "2"), "10602 rows × 10602 columns"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := written(t, c.cluster.View(), everyPort())
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			ms := b.open(file, c.state)
			for range attempts {
				if ms <= maxMillis*factor {
					break
				}
				ms = b.open(file, c.state)
			}
			drawn := b.eval(`document.querySelectorAll("[role=gridcell]").length`)
			t.Logf("%d bytes, drawn after %d ms, %v cells in the document", info.Size(), ms, drawn)
			if info.Size() > maxBytes || ms > maxMillis*factor {
				t.Errorf("%d bytes are drawn after %d ms", info.Size(), ms)
			}
			if got := b.text(`document.getElementById("count").textContent`); got != c.want {
				t.Errorf("shows %s, not %s", got, c.want)
			}
			if n, _ := drawn.(float64); n < 225 || n > 6_000 {
				t.Errorf("%v cells are drawn, which are not those of the window", drawn)
			}
			if *pictures != "" {
				b.picture(filepath.Join(*pictures, "matrix-"+strings.ReplaceAll(c.name, " ", "-")+".png"))
			}
		})
	}
}

// TestScrolling goes to the end of 10,000 pods and back.
func TestScrolling(t *testing.T) {
	b := newBrowser(t, 1200, 800)
	b.open(written(t, large(t, 10_000, 500).View(), everyPort()), fragment("level", "2"))
	b.eval(`document.getElementById("grid").focus()`)
	b.press("Control+End")
	last := b.text(`document.querySelector("[role=gridcell].active").getAttribute("aria-label")`)
	if !strings.HasPrefix(last, "outside → outside") {
		t.Errorf("the last cell is %q", last)
	}
	seen := `(() => { const r = document.querySelector("[role=gridcell].active").getBoundingClientRect(),
		g = document.getElementById("grid").getBoundingClientRect(); return r.bottom <= g.bottom && r.right <= g.right; })()`
	if b.eval(seen) != true {
		t.Error("it is not in view")
	}
	for _, at := range []string{"g.scrollHeight / 2, g.scrollWidth / 3", "0, g.scrollWidth", "g.scrollHeight, 0", "12345, 67890"} {
		b.eval(`(g => { [g.scrollTop, g.scrollLeft] = [` + at + `]; })(document.getElementById("grid"))`)
		b.waitIdle()
		holes := b.text(`(() => { const g = document.getElementById("grid").getBoundingClientRect(), out = [];
			for (let x = g.left + 250; x < g.right - 14; x += 97) for (let y = g.top + 200; y < g.bottom - 14; y += 97) {
				const e = document.elementFromPoint(x, y);
				if (!e.closest("[role=row]")) out.push([x, y, e.id || e.tagName].join());
			} return out.join(" "); })()`)
		if holes != "" {
			t.Errorf("scrolled to %s nothing is drawn at %s", at, holes)
		}
	}
	b.press("Control+Home")
	if got := active(b); !strings.HasPrefix(got, "namespace team-000 → namespace team-000") {
		t.Errorf("the first cell is %q", got)
	}
}
