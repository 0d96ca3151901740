package explain

import (
	"maps"
	"slices"

	"github.com/pkg/errors"
)

// CheckNamespace returns an error if neither an object nor a pod or a policy tells of a namespace; nil for the empty name, which is all.
func (w *World) CheckNamespace(name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.knownNamespaces()
	if _, ok := known[name]; ok || name == "" {
		return nil
	}
	return errors.Errorf("there is no namespace %s%s", name, didYouMean(name, maps.Keys(known)))
}

// knownNamespaces returns those that there are objects of, or in.
func (w *World) knownNamespaces() map[string]struct{} {
	known := map[string]struct{}{}
	for name := range w.namespaces {
		known[name] = struct{}{}
	}
	for _, p := range w.pods {
		known[p.Namespace] = struct{}{}
	}
	for _, p := range w.policies {
		known[p.Object.Namespace] = struct{}{}
	}
	return known
}

// didYouMean returns the end of a sentence that offers the nearest of some names, or nothing if none is near.
func didYouMean(name string, names func(func(string) bool)) string {
	best, least := "", len(name)/3+1
	for _, candidate := range slices.Sorted(names) {
		if d := distance(name, candidate, least); d <= least && (best == "" || d < least) {
			best, least = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// distance returns how many characters have to be added, removed, changed or swapped with the next to make one text of another; more than
// most if it is more.
func distance(a, b string, most int) int {
	if len(a)-len(b) > most || len(b)-len(a) > most {
		return most + 1
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
