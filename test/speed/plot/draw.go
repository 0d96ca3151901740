package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Sizes in pixels; the plot is what the margins leave.
const (
	width, height           = 640, 360
	left, right, top, below = 60, 190, 40, 45
)

var colours = [...]string{"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf"}

type point struct{ x, y float64 }

// points returns what a line goes through, from left to right. What is not above zero has no place on a logarithmic
// axis.
func (l line) points(results []result) (out []point) {
	for _, r := range results {
		found := l.name.FindStringSubmatch(r.name)
		if found == nil {
			continue
		}
		x, err := strconv.ParseFloat(found[1], 64)
		if y := l.value(r.metrics); err == nil && x > 0 && y > 0 && !math.IsInf(y, 0) {
			out = append(out, point{x, y})
		}
	}
	slices.SortStableFunc(out, func(a, b point) int { return int(a.x - b.x) })
	return out
}

// axis shows values between its first and its last tick, at least two, in pixels.
type axis struct {
	ticks    []float64
	scale    func(float64) float64
	from, to float64
}

// decades returns a logarithmic axis of whole decades.
func decades(values []float64, from, to float64) axis {
	a := axis{scale: math.Log10, from: from, to: to}
	first := math.Floor(math.Log10(slices.Min(values)))
	for e := first; e <= max(first+1, math.Ceil(math.Log10(slices.Max(values)))); e++ {
		a.ticks = append(a.ticks, math.Pow(10, e))
	}
	return a
}

// twentieths returns an axis for ratios that differ little.
func twentieths(values []float64, from, to float64) axis {
	a := axis{scale: func(v float64) float64 { return v }, from: from, to: to}
	first := math.Floor(20 * slices.Min(values))
	for n := first; n <= max(first+1, math.Ceil(20*slices.Max(values))); n++ {
		a.ticks = append(a.ticks, n/20)
	}
	return a
}

func (a axis) at(v float64) float64 {
	first, last := a.scale(a.ticks[0]), a.scale(a.ticks[len(a.ticks)-1])
	return a.from + (a.scale(v)-first)/(last-first)*(a.to-a.from)
}

// draw returns the chart's file; ok is whether there is anything to draw.
func (c chart) draw(results []result) (text string, ok bool) {
	var xs, ys []float64
	lines := make([][]point, len(c.lines))
	for i, l := range c.lines {
		lines[i] = l.points(results)
		for _, p := range lines[i] {
			xs, ys = append(xs, p.x), append(ys, p.y)
		}
	}
	if len(xs) == 0 {
		return "", false
	}
	upwards := decades
	if c.ratios {
		upwards = twentieths
	}
	x, y := decades(xs, left, width-right), upwards(ys, height-below, top)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" `+
		`font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/><text x="%d" y="20" font-size="14">%s</text>`+"\n",
		width, height, left, c.title)
	for _, tick := range x.ticks {
		at := x.at(tick)
		fmt.Fprintf(&b, `<path d="M%.1f %dV%d" stroke="#ddd"/>`+
			`<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			at, top, height-below, at, height-below+16, number(tick))
	}
	for _, tick := range y.ticks {
		at := y.at(tick)
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, at, width-right, left-6, at+4, number(tick))
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text><text x="8" y="%d">%s</text>`+"\n",
		(left+width-right)/2, height-8, c.x, top-6, c.y)
	for i, points := range lines {
		c.drawLine(&b, i, points, x, y)
	}
	b.WriteString("</svg>\n")
	return b.String(), true
}

func (c chart) drawLine(b *strings.Builder, i int, points []point, x, y axis) {
	if len(points) == 0 {
		return
	}
	var polyline []string
	for _, p := range points {
		polyline = append(polyline, fmt.Sprintf("%.1f,%.1f", x.at(p.x), y.at(p.y)))
	}
	colour, legend := colours[i%len(colours)], top+8+18*i
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n",
		strings.Join(polyline, " "), colour)
	fmt.Fprintf(b, `<path d="M%d %dh18" stroke="%s" stroke-width="2"/><text x="%d" y="%d">%s</text>`+"\n",
		width-right+12, legend, colour, width-right+36, legend+4, c.lines[i].label)
}

// number returns a number in the form that readers expect.
func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
