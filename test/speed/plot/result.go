package main

import (
	"bufio"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
)

// result is what one benchmark measured: unit -> median.
type result struct {
	name    string
	metrics map[string]float64
}

// read reads the output of go test -bench, in the order of the benchmarks.
func read(in io.Reader) (results []result, err error) {
	measured := map[string]map[string][]float64{}
	var names []string
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 4 || !strings.HasPrefix(words[0], "Benchmark") {
			continue
		}
		name := words[0]
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			name = name[:i] // the number of processors
		}
		if measured[name] == nil {
			measured[name] = map[string][]float64{}
			names = append(names, name)
		}
		for i := 2; i+1 < len(words); i += 2 {
			value, err := strconv.ParseFloat(words[i], 64)
			if err != nil {
				return nil, errors.Wrapf(err, "reading what %s measured", name)
			}
			measured[name][words[i+1]] = append(measured[name][words[i+1]], value)
		}
	}
	for _, name := range names {
		r := result{name: name, metrics: map[string]float64{}}
		for unit, values := range measured[name] {
			slices.Sort(values)
			r.metrics[unit] = values[len(values)/2]
		}
		results = append(results, r)
	}
	return results, errors.Wrap(lines.Err(), "reading the benchmarks")
}
