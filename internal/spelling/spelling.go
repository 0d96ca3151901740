// Package spelling finds the name that a mistyped one probably stands for, puts names and numbers in words, and escapes
// what must not be printed as it is.
//
//	errors.Errorf("there is no pod %s%s", name, spelling.DidYouMean(name, maps.Keys(pods)))
//	spelling.List([]string{"web", "db", "cache"}) // web, db and cache
//	spelling.Count(3, "pod")                      // 3 pods
//	spelling.Escape("a\n\x1b[2J")                 // a\n\u001b[2J
//
// It knows nothing of what the names are of.
package spelling

import (
	"fmt"
	"slices"
	"strings"
)

// Texts returns the text of each of some values.
func Texts[S fmt.Stringer](of []S) (texts []string) {
	for _, s := range of {
		texts = append(texts, s.String())
	}
	return texts
}

// Count returns a number of things.
func Count[N int | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// List joins words as a sentence does.
func List(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// Some joins words as a sentence does, a few of them.
func Some(words []string) string {
	const most = 5
	if len(words) > most {
		words = append(slices.Clone(words[:most]), fmt.Sprintf("%d more", len(words)-most))
	}
	return List(words)
}

// DidYouMean returns the end of a sentence that offers the most similar of some names. It is empty if none is similar.
func DidYouMean(name string, names func(func(string) bool)) string {
	best := Nearest(name, names, len(name)/3+1)
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// Nearest returns the most similar of some names, the first in order of several: that which the fewest characters have
// to be added, removed, changed or swapped with the next for, and at most a number of them. It is empty if there is
// none.
func Nearest(name string, names func(func(string) bool), most int) string {
	best, least := "", most
	for _, candidate := range slices.Sorted(names) {
		if d := distance(name, candidate, least); d <= least && (best == "" || d < least) {
			best, least = candidate, d
		}
	}
	return best
}

// distance returns how many characters have to be added, removed, changed or swapped with the next to turn one text
// into another. If that is more than most, it returns any number above most.
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
