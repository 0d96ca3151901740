package commandline

import "strings"

// nearest returns the name that a misspelt one most likely stands for, or an empty string if none is near.
func nearest(misspelt string, names []string) string {
	const third = 3 // at most every third letter may be wrong, or two of a short name
	best, least := "", 0
	given := strings.ToLower(misspelt)
	for _, name := range names {
		other := strings.ToLower(name)
		d := distance(given, other)
		part := len(given) > third && strings.Contains(other, given)
		if d > max(2, len(given)/third) && !part || d >= min(len(given), len(other)) && !part {
			continue
		}
		if best == "" || d < least || d == least && name < best {
			best, least = name, d
		}
	}
	return best
}

// distance returns the number of letters to insert, delete or change to turn one text into another (Levenshtein).
func distance(a, b string) int {
	above := make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			changed := above[j]
			if a[i] != b[j] {
				changed++
			}
			row[j+1] = min(changed, above[j+1]+1, row[j]+1)
		}
		above = row
	}
	return above[len(b)]
}
