package cli

import (
	"maps"
	"strings"

	"github.com/weave-npc/weave-npc/internal/spelling"
)

// nearest returns the name that a misspelt one most likely stands for, in upper or lower case, or an empty string if
// none is near. It is the most similar one, or else the shortest that the misspelt one is a part of.
func nearest(misspelt string, names []string) string {
	const third = 3 // at most every third letter may be wrong, or two of a short name
	given := strings.ToLower(misspelt)
	similar, containing, longest := map[string]string{}, map[string]string{}, 0 // by the name in lower case
	for _, name := range names {
		lower := strings.ToLower(name)
		similar[lower] = name
		if len(given) > third && strings.Contains(lower, given) {
			containing[lower], longest = name, max(longest, len(name))
		}
	}
	if near := spelling.Nearest(given, maps.Keys(similar), min(max(2, len(given)/third), len(given)-1)); near != "" {
		return similar[near]
	}
	return containing[spelling.Nearest(given, maps.Keys(containing), longest)]
}
