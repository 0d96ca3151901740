package docs

import (
	"bytes"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// sitePage is a page of the built site.
type sitePage struct {
	ids        map[string]bool
	links      []string // of the text and of the navigation
	loads      []string // images and style sheets
	navigation map[string]bool
}

// buildSite makes the site in a folder of its own, and returns the folder.
func buildSite(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("hugo"); err != nil {
		const none = "there is no hugo in the PATH; on Debian test/setup site installs it"
		if os.Getenv("CI") != "" {
			t.Fatal(none)
		}
		t.Skip(none)
	}
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "make", "--no-print-directory", "site", "BIN="+bin)
	build.Dir = top
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("make site: %v\n%s", err, output)
	}
	return filepath.Join(bin, "site")
}

// readSitePage returns what a page has and names.
func readSitePage(t *testing.T, text []byte) sitePage {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	page := sitePage{ids: map[string]bool{}, navigation: map[string]bool{}}
	for n := range root.Descendants() {
		values := map[string]string{}
		for _, a := range n.Attr {
			values[a.Key] = a.Val
		}
		if id := values["id"]; id != "" {
			page.ids[id] = true
		}
		switch n.DataAtom {
		case atom.A:
			page.links = append(page.links, values["href"])
			for above := range n.Ancestors() {
				if above.DataAtom == atom.Nav {
					page.navigation[values["href"]] = true
				}
			}
		case atom.Img:
			page.loads = append(page.loads, values["src"])
		case atom.Link:
			page.loads = append(page.loads, values["href"])
		case atom.Script:
			page.loads = append(page.loads, "script:")
		}
	}
	return page
}

// readSite returns the pages of the site, path -> page, and the paths of all its files.
func readSite(t *testing.T, site string) (map[string]sitePage, map[string]bool) {
	t.Helper()
	sitePages, files := map[string]sitePage{}, map[string]bool{}
	root := os.DirFS(site)
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files[name] = true
		if path.Ext(name) != ".html" {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		sitePages[name] = readSitePage(t, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sitePages, files
}

// TestSite checks that the site has every page, that its links and fragments lead to something, and that it loads
// nothing from elsewhere.
func TestSite(t *testing.T) {
	const files = "https://github.com/weave-npc/weave-npc/blob/main/"
	sitePages, there := readSite(t, buildSite(t))
	checked := 0
	for name, page := range sitePages {
		for _, link := range page.links {
			to, err := url.Parse(link)
			if file, ok := strings.CutPrefix(link, files); ok {
				checkThere(t, file)
				continue
			} else if err == nil && to.Scheme != "" {
				continue // another site, which is not asked
			}
			checked++
			target := name
			if err == nil && to.Path != "" {
				target = path.Join(path.Dir(name), to.Path)
			}
			switch {
			case err != nil || link == "" || !there[target]:
				t.Errorf("%s: %q is not there", name, link)
			case to.Fragment != "" && !sitePages[target].ids[to.Fragment]:
				t.Errorf("%s: %q has nothing of that name", name, link)
			}
		}
		for _, load := range page.loads {
			if !there[path.Join(path.Dir(name), load)] {
				t.Errorf("%s: %q is not in the site", name, load)
			}
		}
	}
	if checked < 2000 {
		t.Errorf("only %d links were found", checked)
	}
	checkEveryPageIsInTheSite(t, sitePages)
}

// checkEveryPageIsInTheSite and that the navigation, the README's list, has those of docs.
func checkEveryPageIsInTheSite(t *testing.T, sitePages map[string]sitePage) {
	t.Helper()
	for file := range pages(t) {
		name, err := filepath.Rel(top, file)
		if err != nil {
			t.Fatal(err)
		}
		name = strings.TrimSuffix(filepath.ToSlash(name), ".md") + ".html"
		switch {
		case name == ".github/PULL_REQUEST_TEMPLATE.html":
			continue
		case name == "README.html":
			name = "index.html"
		case path.Dir(name) == "docs" && !sitePages["index.html"].navigation["./"+name]:
			t.Errorf("the list of documentation in README.md has no %s", file)
		}
		if _, ok := sitePages[name]; !ok {
			t.Errorf("the site has no %s (prod/site/hugo.yaml)", name)
		}
	}
}
