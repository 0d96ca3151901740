// Package docs asks whether what the documentation refers to is there, and whether comments say what they have to.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const top = "../.."

// pages returns all pages, path -> text: those of the top, of docs, and the chart's.
func pages(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(top, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	names = append(names, filepath.Join(top, "prod", "chart", "README.md"), filepath.Join(top, ".github", "PULL_REQUEST_TEMPLATE.md"))
	err = filepath.WalkDir(filepath.Join(top, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	return all
}

// anchors returns the headings of a page as links name them.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, h := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		name := strings.ToLower(strings.TrimSpace(h[1]))
		name = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(name, "")
		all[strings.ReplaceAll(name, " ", "-")] = true
	}
	return all
}

// code matches literal text, which has no links.
var code = regexp.MustCompile("(?m)^    .*$|`[^`]*`")

func TestLinksHaveTargets(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	all := pages(t)
	found := 0
	for page, text := range all {
		for _, l := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
			found++
			to, anchor, _ := strings.Cut(l[1], "#")
			if strings.Contains(to, ":") {
				continue // another site, which is not asked
			}
			target := page
			if to != "" {
				target = filepath.Join(filepath.Dir(page), to)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s is not there", page, l[1])
			} else if anchor != "" && !anchors(all[target])[anchor] {
				t.Errorf("%s: %s has no heading of that name", page, l[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d links were found", found)
	}
}

// TestEveryPageIsLinked checks that another page links to each page, so that readers find it.
func TestEveryPageIsLinked(t *testing.T) {
	all := pages(t)
	for page := range all {
		name, linked := filepath.Base(page), false
		if name == "README.md" || name == "CHANGELOG.md" || name == "PULL_REQUEST_TEMPLATE.md" || filepath.Base(filepath.Dir(page)) == "decisions" {
			continue
		}
		for other, text := range all {
			linked = linked || other != page && regexp.MustCompile(`\]\([^)]*\b`+regexp.QuoteMeta(name)+`[)#]`).MatchString(text)
		}
		if !linked {
			t.Errorf("no page links to %s", page)
		}
	}
}

// TestTargetsOfMakeAreThere that are named in code.
func TestTargetsOfMakeAreThere(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(top, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("(?m)(?:`|^    )make ([a-z-]+)")
	for page, text := range pages(t) {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			if !regexp.MustCompile(`(?m)^` + m[1] + `:`).Match(makefile) {
				t.Errorf("%s: there is no make %s", page, m[1])
			}
		}
	}
}

// TestFilesAreThere that are named in code by their folders.
func TestFilesAreThere(t *testing.T) {
	named := regexp.MustCompile("(?:`|\\s|\")((?:prod|docs|test|cmd|npc|ipset|iptables|ulogd)/[A-Za-z0-9_./-]*[A-Za-z0-9])")
	for page, text := range pages(t) {
		for _, f := range named.FindAllStringSubmatch(text, -1) {
			path := f[1]
			if strings.HasSuffix(path, "/cni.yaml") {
				path = filepath.Dir(path) // which its user puts there
			}
			if strings.HasPrefix(path, "test/e2e/") {
				continue // of Kubernetes
			}
			if _, err := os.Stat(filepath.Join(top, path)); err != nil {
				t.Errorf("%s: there is no %s", page, f[1])
			}
		}
	}
}

// TestFlagsAreThere that are named in code.
func TestFlagsAreThere(t *testing.T) {
	list, err := os.ReadFile(filepath.Join(top, "docs", "flags.md"))
	if err != nil {
		t.Fatal(err)
	}
	relay, err := os.ReadFile(filepath.Join(top, "docs", "relay.md")) // which the relay's own tests compare with its flags
	if err != nil {
		t.Fatal(err)
	}
	list = append(list, relay...)
	others := regexp.MustCompile(`^--(run-firewall|name|config|internal|unit|namespace|selector|set|for|timeout|previous|as|help|noflush|` +
		`dport|comment|match-set|ctstate|dst-type|restart-always|platform|timestamp|version|publish)$`)
	named := regexp.MustCompile("`(--[a-z][a-z0-9-]+)")
	for page, text := range pages(t) {
		if strings.Contains(page, "decisions") {
			continue
		}
		for _, f := range named.FindAllStringSubmatch(text, -1) {
			if !others.MatchString(f[1]) && !strings.Contains(string(list), "`"+f[1]+"`") {
				t.Errorf("%s: there is no flag %s", page, f[1])
			}
		}
	}
}

// TestTestsAreThere that are named.
func TestTestsAreThere(t *testing.T) {
	there := map[string]bool{}
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == ".cache" {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, name := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			there[name[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`\bTest[A-Z]\w+`)
	for page, text := range pages(t) {
		for _, name := range named.FindAllString(text, -1) {
			if !there[name] {
				t.Errorf("%s: there is no %s", page, name)
			}
		}
	}
}

// TestDecisionsHaveTheirSections, in this order, and are listed in the index.
func TestDecisionsHaveTheirSections(t *testing.T) {
	folder := filepath.Join(top, "docs", "decisions")
	index, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	sections := regexp.MustCompile(`(?s)^# [^\n]+\n\n## Context\n.+\n## Decision\n.+\n## Consequences\n.+\n## Alternatives\n.+$`)
	found := 0
	for page, text := range pages(t) {
		if filepath.Dir(page) != folder || filepath.Base(page) == "README.md" {
			continue
		}
		found++
		if !sections.MatchString(text) {
			t.Errorf("%s lacks a title, Context, Decision, Consequences or Alternatives", page)
		}
		title, _, _ := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
		if row := "[" + title + "](" + filepath.Base(page) + ")"; !strings.Contains(string(index), row) {
			t.Errorf("docs/decisions/README.md does not list %s", row)
		}
	}
	if found < 36 {
		t.Errorf("only %d decisions were found", found)
	}
}

// TestLinesAreShort outside of tables and code. Generated pages are left out.
func TestLinesAreShort(t *testing.T) {
	for page, text := range pages(t) {
		if strings.Contains(text, "\nGenerated by ") {
			continue
		}
		for i, line := range strings.Split(text, "\n") {
			if utf8.RuneCountInString(line) > 100 && !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "    ") &&
				!strings.HasPrefix(line, "[") {
				t.Errorf("%s:%d has %d characters", page, i+1, utf8.RuneCountInString(line))
			}
		}
	}
}
