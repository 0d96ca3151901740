package check

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/output/findings"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// section is the part of the page about one rule, with its example.
type section struct{ page, rule, manifest, output string }

var update = flag.Bool("update", false, "rewrite the output of the examples on the page")

// rewrite writes the output of an example into the page.
func rewrite(t *testing.T, s section, output string) {
	t.Helper()
	text, err := os.ReadFile(s.page)
	if err != nil {
		t.Fatal(err)
	}
	before, after, _ := strings.Cut(string(text), "\n### "+s.rule+"\n")
	after = strings.Replace(after, indented(s.output), indented(output), 1)
	if err := os.WriteFile(s.page, []byte(before+"\n### "+s.rule+"\n"+after), 0o600); err != nil {
		t.Fatal(err)
	}
}

func indented(text string) string {
	return regexp.MustCompile(`(?m)^.`).ReplaceAllString(text, "    $0")
}

// readPage returns the objects that all examples are about, and the sections.
func readPage(t *testing.T) (objects string, sections []section) {
	t.Helper()
	path, err := filepath.Abs("../../../../../" + lintPage)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(text), "\n### ")
	inHead := blocks(parts[0])
	objects = inHead[len(inHead)-1]
	for _, part := range parts[1:] {
		rule, rest, _ := strings.Cut(part, "\n")
		s := section{page: path, rule: rule}
		if b := blocks(rest); len(b) == 2 {
			s.manifest, s.output = b[0], b[1]
		} else {
			t.Fatalf("%s has %d blocks", rule, len(b))
		}
		sections = append(sections, s)
	}
	return objects, sections
}

// blocks returns the indented parts of a text.
func blocks(text string) (out []string) {
	for _, b := range regexp.MustCompile(`(?m)^(    .*\n)+`).FindAllString(text, -1) {
		out = append(out, regexp.MustCompile(`(?m)^    `).ReplaceAllString(b, ""))
	}
	return out
}

// run returns the lines about findings in manifests.
func run(t *testing.T, files map[string]string) (string, []findings.Finding) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(".", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m, err := snapshot.Open(".", nil)
	if err != nil {
		t.Fatal(err)
	}
	o, err := m.WithWorkloads()
	if err != nil {
		t.Fatal(err)
	}
	c := cluster.New()
	o.Deliver(c)
	n, err := m.Network()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	r := findings.Report{Rules: lintRules(), Findings: lintFindings(o, c.View(), n)}
	if err := r.Write(&b, findings.Options{Format: "text"}); err != nil {
		t.Fatal(err)
	}
	text := strings.TrimSuffix(b.String(), "\n")
	return text[:strings.LastIndex(text, "\n")+1], r.Findings // without the line that counts
}

// TestExamplesOfTheRules lints the example of each rule on the page, which has a section for each, in their order.
func TestExamplesOfTheRules(t *testing.T) {
	objects, sections := readPage(t)
	if text, _ := run(t, map[string]string{"objects.yaml": objects}); text != "" {
		t.Errorf("the objects of all examples have findings:\n%s", text)
	}
	rules := lintRules()
	for i, s := range sections {
		t.Run(s.rule, func(t *testing.T) {
			if i >= len(rules) || rules[i].ID != s.rule {
				t.Fatalf("section %d of the page is not about the rule with this number", i)
			}
			text, found := run(t, map[string]string{"objects.yaml": objects, "policy.yaml": s.manifest})
			if *update {
				rewrite(t, s, text)
				return
			}
			if diff := cmp.Diff(s.output, text); diff != "" {
				t.Errorf("(-page +printed):\n%s", diff)
			}
			if !strings.Contains(fmt.Sprint(found), "{"+s.rule+" ") {
				t.Error("the example has no finding of the rule")
			}
		})
	}
	if len(sections) != len(rules) {
		t.Errorf("the page has %d sections, and there are %d rules", len(sections), len(rules))
	}
}
