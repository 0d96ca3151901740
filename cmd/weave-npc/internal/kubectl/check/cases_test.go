package check

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestRulesLinkToHeadings reads the page of each rule, which has the heading that the rule links to.
func TestRulesLinkToHeadings(t *testing.T) {
	for _, rule := range rules() {
		t.Run(rule.ID, func(t *testing.T) {
			path, anchor, _ := strings.Cut(rule.Doc, "#")
			text, err := os.ReadFile("../../../../../" + path)
			if err != nil {
				t.Fatal(err)
			}
			is := func(line string) bool {
				heading := strings.TrimLeft(line, "#")
				return heading != line && strings.ReplaceAll(strings.ToLower(strings.TrimSpace(heading)), " ", "-") == anchor
			}
			if !slices.ContainsFunc(strings.Split(string(text), "\n"), is) {
				t.Errorf("%s has no heading for #%s", path, anchor)
			}
		})
	}
}
