package page

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"testing"
)

// colour is one in sRGB, each part from 0 to 1.
type colour [3]float64

var numberOf = regexp.MustCompile(`[\d.]+`)

// parseColour reads what the browser computes, rgb(1, 2, 3) or color(srgb 0.1 0.2 0.3).
func parseColour(t *testing.T, text string) (c colour) {
	t.Helper()
	parts := numberOf.FindAllString(text, -1)
	if len(parts) < 3 {
		t.Fatalf("%q is no colour", text)
	}
	for i := range c {
		n, err := strconv.ParseFloat(parts[i], 64)
		if err != nil {
			t.Fatal(err)
		}
		if c[i] = n; text[0] == 'r' {
			c[i] /= 255
		}
	}
	return c
}

// linear returns the colour in linear light.
func (c colour) linear() (out [3]float64) {
	for i, v := range c {
		if v <= 0.04045 {
			out[i] = v / 12.92
		} else {
			out[i] = math.Pow((v+0.055)/1.055, 2.4)
		}
	}
	return out
}

// contrast returns the contrast ratio of WCAG 2, from 1 to 21.
func contrast(a, b colour) float64 {
	luminance := func(c colour) float64 {
		l := c.linear()
		return 0.2126*l[0] + 0.7152*l[1] + 0.0722*l[2]
	}
	x, y := luminance(a), luminance(b)
	return (math.Max(x, y) + 0.05) / (math.Min(x, y) + 0.05)
}

// visions are how people see colours, as matrices over linear light. Those of colour-blind people are by Machado,
// Oliveira and Fernandes (2009).
var visions = map[string][3][3]float64{
	"all colours":  {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
	"deuteranopia": {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
	"protanopia":   {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
	"tritanopia":   {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
	"no colours":   {{0.2126, 0.7152, 0.0722}, {0.2126, 0.7152, 0.0722}, {0.2126, 0.7152, 0.0722}},
}

// lab returns the colour in CIELAB as a person with this vision sees it.
func (c colour) lab(vision [3][3]float64) [3]float64 {
	l := c.linear()
	var seen [3]float64
	for i, row := range vision {
		seen[i] = min(1, max(0, row[0]*l[0]+row[1]*l[1]+row[2]*l[2]))
	}
	f := func(v float64) float64 {
		if v > 216.0/24389 {
			return math.Cbrt(v)
		}
		return (24389.0/27*v + 16) / 116
	}
	x := f((0.4124*seen[0] + 0.3576*seen[1] + 0.1805*seen[2]) / 0.9505)
	y := f(0.2126*seen[0] + 0.7152*seen[1] + 0.0722*seen[2])
	z := f((0.0193*seen[0] + 0.1192*seen[1] + 0.9505*seen[2]) / 1.089)
	return [3]float64{116*y - 16, 500 * (x - y), 200 * (y - z)}
}

func difference(a, b colour, vision [3][3]float64) float64 {
	x, y := a.lab(vision), b.lab(vision)
	return math.Hypot(math.Hypot(x[0]-y[0], x[1]-y[1]), x[2]-y[2])
}

// minDifference is the least difference of two kinds of cells, in CIELAB, where 2.3 can just be seen. Those who see no
// colours at all have the signs and at least a tenth of the way from black to white.
var minDifference = map[string]float64{"all colours": 25, "deuteranopia": 25, "protanopia": 25, "tritanopia": 15, "no colours": 10}

// TestColours measures contrasts, and how different cells are to people who see fewer colours.
func TestColours(t *testing.T) {
	b := newBrowser(t, 1400, 900)
	file := written(t, thirty(t).View(), everyPort())
	for _, theme := range []string{"light", "dark"} {
		for _, how := range []string{"system", "selected"} {
			t.Run(theme+" "+how, func(t *testing.T) {
				state := fragment("theme", theme, "source", "shop/cart-* (4 pods)", "destination", "data/redis-* (3 pods)", "why", "1")
				if how == "system" {
					b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]any{{"name": "prefers-color-scheme", "value": theme}}})
					state = fragment("source", "shop/cart-* (4 pods)", "destination", "data/redis-* (3 pods)", "why", "1", "level", "2")
				}
				b.open(file, state)
				checkContrast(t, b)
				checkVisions(t, b)
				b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]any{}})
			})
		}
	}
}

// of returns a colour of the first element of a selector; for a background that of the first ancestor that has one.
func of(t *testing.T, b *browser, selector, property string) colour {
	t.Helper()
	text := b.text(fmt.Sprintf(`(() => { for (let e = document.querySelector(%s); e; e = e.parentElement) {
		const c = getComputedStyle(e)[%s]; if (!/^rgba.*, 0\)$/.test(c)) return c; } return ""; })()`, quoted(selector), quoted(property)))
	if text == "" {
		t.Fatalf("there is no %s", selector)
	}
	return parseColour(t, text)
}

// checkContrast compares with WCAG 2 AA: 4.5 for text, 3 for signs and edges of controls.
func checkContrast(t *testing.T, b *browser) {
	t.Helper()
	for _, selector := range []string{"h1", "label", "#port", "#from", "#count", "footer", "[role=rowheader].d0", "[role=rowheader].d1",
		"[role=columnheader].d1",
		"[role=rowheader].on", "[role=columnheader].on", "#corner", "#reason h2", "#reason h3", "#lines p", "#lines .i4", "#ports [aria-pressed=true]",
		"#ports [aria-pressed=false]", "#close", "#legend span", ".cell.a", ".cell.p", ".cell.d", "#legend .cell.n"} {
		got := contrast(of(t, b, selector, "color"), of(t, b, selector, "backgroundColor"))
		if got < 4.5 {
			t.Errorf("%s: text and background have a contrast of %.2f", selector, got)
		}
	}
	back, text := of(t, b, "body", "backgroundColor"), of(t, b, "body", "color")
	for _, selector := range []string{"#port", "#from", "#close"} {
		if got := contrast(of(t, b, selector, "borderTopColor"), back); got < 3 {
			t.Errorf("%s: the edge has a contrast of %.2f", selector, got)
		}
	}
	for _, cell := range []string{".cell.a", ".cell.p", ".cell.d"} {
		if got := max(contrast(text, of(t, b, cell, "backgroundColor")), contrast(text, back)); got < 3 {
			t.Errorf("%s: the mark of the active cell has a contrast of %.2f", cell, got)
		}
	}
	if outline := of(t, b, "[role=gridcell].active", "outlineColor"); contrast(outline, back) < 3 {
		t.Error("the mark of the active cell is not seen on the page")
	}
}

// checkVisions compares the kinds of cells with each other.
func checkVisions(t *testing.T, b *browser) {
	t.Helper()
	kinds := []string{"a", "p", "d"}
	for name, vision := range visions {
		least := math.Inf(1)
		for i, x := range kinds {
			for _, y := range kinds[:i] {
				got := difference(of(t, b, ".cell."+x, "backgroundColor"), of(t, b, ".cell."+y, "backgroundColor"), vision)
				least = min(least, got)
				if got < minDifference[name] {
					t.Errorf("%s: cells %s and %s differ by %.1f", name, x, y, got)
				}
			}
		}
		t.Logf("%s: cells differ by %.1f at least", name, least)
	}
}
