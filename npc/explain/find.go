package explain

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

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
	return errors.Errorf("there is no namespace %s%s", name, DidYouMean(name, maps.Keys(known)))
}

// noPod returns why a text is neither a pod nor an address, and what it may have been meant for.
func (w *World) noPod(text string) error {
	const forms = "give a pod as NAMESPACE/NAME, or an address"
	namespace, name, ok := strings.Cut(text, "/")
	if p, err := netip.ParsePrefix(text); err == nil {
		return errors.Errorf("%s is a range; ask about one of its addresses, such as %s, or about a pod as NAMESPACE/NAME", text, p.Addr())
	}
	var named []string // namespace/name of those that only lack the right namespace
	for _, key := range slices.Sorted(maps.Keys(w.pods)) {
		if p := w.pods[key]; p.Name == text || ok && p.Name == name {
			named = append(named, key)
		}
	}
	meant := ""
	if len(named) > 0 {
		meant = "; did you mean " + named[0] + "?"
	}
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return errors.Errorf("%q is neither an address nor a pod as NAMESPACE/NAME%s", text, cmp.Or(meant, "; "+forms))
	}
	known := w.knownNamespaces()
	if _, ok := known[namespace]; !ok {
		return errors.Errorf("there is no namespace %s%s", namespace, cmp.Or(meant, DidYouMean(namespace, maps.Keys(known))))
	}
	near := DidYouMean(text, func(yield func(string) bool) {
		for key, p := range w.pods {
			if p.Namespace == namespace && !yield(key) {
				return
			}
		}
	})
	return errors.Errorf("there is no pod %s%s", text, cmp.Or(near, meant))
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

// DidYouMean returns the end of a sentence that offers the nearest of some names, or nothing if none is near.
func DidYouMean(name string, names func(func(string) bool)) string {
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
