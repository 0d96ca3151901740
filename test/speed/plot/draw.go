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

// points are what a line goes through, from left to right. What is not above zero has no place on a logarithmic axis.
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

// axis is a logarithmic one of whole decades.
type axis struct{ first, last, from, to float64 }

func newAxis(values []float64, from, to float64) axis {
	first, last := math.Floor(math.Log10(slices.Min(values))), math.Ceil(math.Log10(slices.Max(values)))
	return axis{first, max(last, first+1), from, to}
}

func (a axis) at(v float64) float64 {
	return a.from + (math.Log10(v)-a.first)/(a.last-a.first)*(a.to-a.from)
}

// draw returns the chart's file; ok says whether there is anything to draw.
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
	x, y := newAxis(xs, left, width-right), newAxis(ys, height-below, top)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/><text x="%d" y="20" font-size="14">%s</text>`+"\n", width, height, left, c.title)
	for e := x.first; e <= x.last; e++ {
		at := x.at(math.Pow(10, e))
		fmt.Fprintf(&b, `<path d="M%.1f %dV%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			at, top, height-below, at, height-below+16, power(e))
	}
	for e := y.first; e <= y.last; e++ {
		at := y.at(math.Pow(10, e))
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, at, width-right, left-6, at+4, power(e))
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
	var way []string
	for _, p := range points {
		way = append(way, fmt.Sprintf("%.1f,%.1f", x.at(p.x), y.at(p.y)))
	}
	colour, legend := colours[i%len(colours)], top+8+18*i
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(way, " "), colour)
	fmt.Fprintf(b, `<path d="M%d %dh18" stroke="%s" stroke-width="2"/><text x="%d" y="%d">%s</text>`+"\n",
		width-right+12, legend, colour, width-right+36, legend+4, c.lines[i].label)
}

// power is a power of ten as it is read.
func power(exponent float64) string { return strconv.FormatFloat(math.Pow(10, exponent), 'f', -1, 64) }
