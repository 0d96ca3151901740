package findings

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func example() *Report {
	return &Report{
		Version: "v1.2.3", Suite: "expectations",
		Rules: []RuleInfo{{ID: "selects-nothing", Level: Warning, Short: "A policy selects no pod.", Help: "It does nothing.\nCorrect it.",
			Doc: "docs/lint.md#selects-nothing"},
			{ID: "unused", Level: Note, Short: "Never found."}},
		Findings: []Finding{
			{Rule: "near", Level: Note, Message: "app=wbe: did you mean app=web?", Object: Object{"NetworkPolicy", "shop", "web"}, File: "b.yaml", Line: 7},
			{Rule: "selects-nothing", Level: Warning, Message: "selects no pod", Detail: "podSelector: app=x\npods: 3\n",
				Object: Object{"NetworkPolicy", "shop", "db"}, File: "a.yaml", Line: 2},
			{Rule: "selects-nothing", Level: Error, Message: "selects no pod", Object: Object{"ClusterNetworkPolicy", "", "all"}},
		},
		Cases: []Case{{Name: "web reaches db", Rule: "expectation"},
			{Name: "dev never reaches prod", Outcome: Failed, Rule: "expectation", Message: "dev/a reaches prod/b on tcp/80", Detail: "why",
				File: "e.yaml", Line: 3},
			{Name: "x", Outcome: skipped, Message: "no pod"}},
	}
}

func write(t *testing.T, r *Report, o Options) string {
	t.Helper()
	var b strings.Builder
	if err := r.Write(&b, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestText(t *testing.T) {
	want := `passed: web reaches db
failed: dev never reaches prod: dev/a reaches prod/b on tcp/80
    why
skipped: x: no pod
error: ClusterNetworkPolicy all: selects no pod [selects-nothing]
a.yaml:2: warning: NetworkPolicy shop/db: selects no pod [selects-nothing]
    podSelector: app=x
    pods: 3
b.yaml:7: note: NetworkPolicy shop/web: app=wbe: did you mean app=web? [near]
1 of 3 expectations passed, 1 skipped, 1 error, 1 warning, 1 note
`
	if diff := cmp.Diff(want, write(t, example(), Options{Format: "text"})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := write(t, &Report{}, Options{Format: "text"}); got != "no findings\n" {
		t.Errorf("nothing: %q", got)
	}
}

func TestLimitKeepsTheGravest(t *testing.T) {
	for _, c := range []struct {
		format string
		want   string
	}{
		{"text", "error: ClusterNetworkPolicy all: selects no pod [selects-nothing]\n... and 2 more findings\n"},
		{"json", `"omitted": 2`},
		{"junit", `2 more findings than the limit`},
		{"sarif", `the limit leaves out 3 more findings`}, // the failed case is one
		{"markdown", "- ... and 2 more findings\n"},
		{"github", "::notice title=limit::3 more findings\n"},
	} {
		got := write(t, example(), Options{Format: c.format, Limit: 1})
		if !strings.Contains(got, c.want) || strings.Contains(got, "wbe") {
			t.Errorf("%s lacks %q or has too much:\n%s", c.format, c.want, got)
		}
	}
}

func TestLevels(t *testing.T) {
	for _, c := range []struct {
		name   string
		report *Report
		at     Level
		want   bool
	}{
		{"nothing", &Report{}, Note, false},
		{"as grave", &Report{Findings: []Finding{{Level: Warning}}}, Warning, true},
		{"less grave", &Report{Findings: []Finding{{Level: Warning}}}, Error, false},
		{"a case", &Report{Cases: []Case{{Outcome: Failed}}}, Error, true},
		{"a skipped case", &Report{Cases: []Case{{Outcome: skipped}}}, Note, false},
		{"never", &Report{Findings: []Finding{{Level: Error}}, Cases: []Case{{Outcome: Failed}}}, never, false},
	} {
		if got := c.report.Failed(c.at); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	for _, name := range Levels() {
		if l, err := ParseLevel(name); err != nil || l.String() != name {
			t.Errorf("%s is %v, %v", name, l, err)
		}
	}
	if _, err := ParseLevel("fatal"); err == nil {
		t.Error("fatal is a level")
	}
}

// TestJSON shows the fields, which other programs read.
func TestJSON(t *testing.T) {
	want := `{
  "version": "v1",
  "counts": {
    "error": 0,
    "failed": 1,
    "note": 0,
    "passed": 0,
    "skipped": 0,
    "warning": 1
  },
  "findings": [
    {
      "rule": "r",
      "level": "warning",
      "message": "<m>",
      "detail": "d",
      "object": {
        "kind": "Pod",
        "namespace": "shop",
        "name": "web"
      },
      "file": "a.yaml",
      "line": 2
    }
  ],
  "cases": [
    {
      "name": "c",
      "outcome": "failed",
      "rule": "e",
      "message": "m"
    }
  ],
  "rules": [
    {
      "id": "r",
      "level": "warning",
      "short": "r"
    }
  ]
}
`
	r := &Report{Version: "v1", Findings: []Finding{{"r", Warning, "<m>", "d", Object{"Pod", "shop", "web"}, "a.yaml", 2}},
		Cases: []Case{{Name: "c", Outcome: Failed, Rule: "e", Message: "m"}}}
	if diff := cmp.Diff(want, write(t, r, Options{Format: "json"})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestJUnit(t *testing.T) {
	want := `<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="weave-npc" tests="6" failures="2" errors="0" skipped="1">
  <testsuite name="expectations" tests="3" failures="1" errors="0" skipped="1" time="0">
    <testcase name="web reaches db" classname="weave-npc.expectations" time="0"></testcase>
    <testcase name="dev never reaches prod" classname="weave-npc.expectations" file="e.yaml" line="3" time="0">
      <failure message="dev/a reaches prod/b on tcp/80" type="expectation">why</failure>
    </testcase>
    <testcase name="x" classname="weave-npc.expectations" time="0">
      <skipped message="no pod"></skipped>
    </testcase>
  </testsuite>
  <testsuite name="rules" tests="3" failures="1" errors="0" skipped="0" time="0">
    <testcase name="selects-nothing" classname="weave-npc.rules" time="0">
      <failure message="1: A policy selects no pod." type="selects-nothing">error: ClusterNetworkPolicy all: selects no pod</failure>
      <system-out>a.yaml:2: warning: NetworkPolicy shop/db: selects no pod&#xA;    podSelector: app=x&#xA;    pods: 3</system-out>
    </testcase>
    <testcase name="unused" classname="weave-npc.rules" time="0"></testcase>
    <testcase name="near" classname="weave-npc.rules" time="0">
      <system-out>b.yaml:7: note: NetworkPolicy shop/web: app=wbe: did you mean app=web?</system-out>
    </testcase>
  </testsuite>
</testsuites>
`
	if diff := cmp.Diff(want, write(t, example(), Options{Format: "junit", FailOn: Error})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMarkdownAndGitHub(t *testing.T) {
	want := "**weave-npc: 1 of 3 expectations passed, 1 skipped, 1 error, 1 warning, 1 note**\n\n" +
		"- **failed** `e.yaml:3` `dev never reaches prod: dev/a reaches prod/b on tcp/80`\n" +
		"  <details><summary>more</summary>\n\n  ```text\n  why\n  ```\n  </details>\n" +
		"- **skipped** `x: no pod`\n" +
		"- **error** `ClusterNetworkPolicy all: selects no pod` (`selects-nothing`)\n" +
		"- **warning** `a.yaml:2` `NetworkPolicy shop/db: selects no pod` (`selects-nothing`)\n" +
		"  <details><summary>more</summary>\n\n  ```text\n  podSelector: app=x\n  pods: 3\n  ```\n  </details>\n" +
		"- **note** `b.yaml:7` `NetworkPolicy shop/web: app=wbe: did you mean app=web?` (`near`)\n"
	if diff := cmp.Diff(want, write(t, example(), Options{Format: "markdown"})); diff != "" {
		t.Errorf("markdown (-want +got):\n%s", diff)
	}
	want = `::error title=selects-nothing::ClusterNetworkPolicy all: selects no pod
::warning file=a.yaml,line=2,title=selects-nothing::NetworkPolicy shop/db: selects no pod%0ApodSelector: app=x%0Apods: 3
::notice file=b.yaml,line=7,title=near::NetworkPolicy shop/web: app=wbe: did you mean app=web?
::error file=e.yaml,line=3,title=expectation::dev never reaches prod: dev/a reaches prod/b on tcp/80%0Awhy
`
	if diff := cmp.Diff(want, write(t, example(), Options{Format: "github"})); diff != "" {
		t.Errorf("github (-want +got):\n%s", diff)
	}
}

// TestMarkdownIsBounded writes more than a comment takes, with details of any size.
func TestMarkdownIsBounded(t *testing.T) {
	for _, detail := range []int{0, 100, 3000} {
		r := &Report{}
		for i := range 5000 {
			r.Findings = append(r.Findings, Finding{Rule: "r", Message: fmt.Sprint("message ", i), Detail: strings.Repeat("é", detail)})
			r.Cases = append(r.Cases, Case{Name: fmt.Sprint("case ", i), Outcome: Failed, Rule: "e", Detail: strings.Repeat("x\n", detail)})
		}
		got := write(t, r, Options{Format: "markdown"})
		if n := utf8.RuneCountInString(got); n > maxMarkdown || n < maxMarkdown/2 || !strings.Contains(got, "5000 more findings") {
			t.Errorf("details of %d: %d characters, end %q", detail, n, got[len(got)-100:])
		}
	}
}

// TestSARIF checks what the specification requires beyond the fields' types.
func TestSARIF(t *testing.T) {
	r := example()
	r.Findings = append(r.Findings, Finding{Rule: "near", Message: "m", File: "dir/with space/ä:[1]%.yaml"},
		Finding{Rule: "near", Message: "m", File: "-", Line: 3},
		Finding{Rule: "near", Message: "m", File: "/work/dir/in.yaml"}, Finding{Rule: "near", Message: "m", File: "/else/where.yaml"},
		Finding{Rule: "near", Message: "m", File: "a:b.yaml"})
	var got struct {
		Schema  string `json:"$schema"`
		Version string
		Runs    []sarifRun
	}
	if err := json.Unmarshal([]byte(write(t, r, Options{Format: "sarif", Dir: "/work/dir"})), &got); err != nil {
		t.Fatal(err)
	}
	if got.Version != "2.1.0" || len(got.Runs) != 1 || len(got.Runs[0].Results) != len(r.Findings)+1 {
		t.Fatalf("%+v", got)
	}
	run := got.Runs[0]
	uris := map[string]string{}
	for _, res := range run.Results {
		if res.RuleIndex < 0 || res.RuleIndex >= len(run.Tool.Driver.Rules) || run.Tool.Driver.Rules[res.RuleIndex].ID != res.RuleID {
			t.Errorf("%s has the rule number %d", res.RuleID, res.RuleIndex)
		}
		if res.Level != "error" && res.Level != "warning" && res.Level != "note" || res.Message.Text == "" || res.Fingerprints["finding/v1"] == "" {
			t.Errorf("%+v", res)
		}
		for _, l := range res.Locations {
			if l.Physical == nil {
				continue
			}
			a := l.Physical.Artifact
			u, err := url.Parse(a.URI)
			if err != nil || u.IsAbs() != (a.BaseID == "") || l.Physical.Region != nil && l.Physical.Region.StartLine < 1 {
				t.Errorf("%+v: %v", l.Physical, err)
				continue
			}
			uris[a.URI] = u.Path
		}
	}
	want := map[string]string{"a.yaml": "a.yaml", "b.yaml": "b.yaml", "e.yaml": "e.yaml", "in.yaml": "in.yaml",
		"file:///else/where.yaml": "/else/where.yaml",
		"a%3Ab.yaml":              "a:b.yaml", "dir/with%20space/%C3%A4%3A%5B1%5D%25.yaml": "dir/with space/ä:[1]%.yaml"}
	if diff := cmp.Diff(want, uris); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
	for _, rule := range run.Tool.Driver.Rules {
		if want := repository + "/blob/main/docs/lint.md#selects-nothing"; rule.HelpURI != "" && rule.HelpURI != want || rule.Short.Text == "" {
			t.Errorf("%+v", rule)
		}
	}
}

// TestOddTextIsEscaped writes what names, labels and paths may hold, and more, in each format.
func TestOddTextIsEscaped(t *testing.T) {
	for _, odd := range []string{"\x1b[31mred\x1b[0m", "a\u202eb", "a\u2028b", "\xff\xfe", "\x00", "]]>", "<script>", "`@team` #1", "```\nx",
		"%0A::error::x",
		"\r\n::error::x", "a|b", "\U000e0001", "\u009b1m", "](http://x)", strings.Repeat("x", 10_000)} {
		r := &Report{Version: odd, Suite: odd, Rules: []RuleInfo{{ID: odd, Short: odd, Help: odd}},
			Findings: []Finding{{odd, Warning, odd, odd + "\n" + odd, Object{odd, odd, odd}, "dir/" + odd, 1}},
			Cases:    []Case{{odd, Failed, odd, odd, odd, "dir/" + odd, 1}, {odd, passed, odd, "", "", "", 0}}}
		for _, format := range Formats() {
			got := write(t, r, Options{Format: format, FailOn: Warning})
			for _, c := range got {
				if c != '\n' && c != ' ' && !unicode.IsPrint(c) {
					t.Errorf("%s of %.20q has %q", format, odd, c)
					break
				}
			}
			if !utf8.ValidString(got) || strings.Count(got, "\n::error::x") > 0 {
				t.Errorf("%s of %.20q:\n%.2000s", format, odd, got)
			}
			switch format {
			case "json", "sarif":
				if !json.Valid([]byte(got)) || strings.Contains(got, "](http") && format == "sarif" && strings.Contains(got, `"text": "](`) {
					t.Errorf("%s of %.20q is not valid:\n%.2000s", format, odd, got)
				}
			case "junit":
				var all junitSuites
				if err := xml.Unmarshal([]byte(got), &all); err != nil || all.Failures != 2 || all.Tests != 3 {
					t.Errorf("%s of %.20q: %v, %d of %d", format, odd, err, all.Failures, all.Tests)
				}
			case "github":
				lines := regexp.MustCompile(`(?m)^::(error|warning) file=[^:]*,line=1,title=[^:,]*::[^\n]*$`).FindAllString(got, -1)
				if len(lines) != strings.Count(got, "\n") {
					t.Errorf("%s of %.20q:\n%.2000s", format, odd, got)
				}
			case "markdown":
				if outside := regexp.MustCompile("(?s)`+").Split(got, -1); strings.Contains(strings.Join(outside[:1], ""), "@") {
					t.Errorf("%s of %.20q mentions a user:\n%.2000s", format, odd, got)
				}
			}
		}
	}
}

// TestJSONKeepsText reads odd text back as it was.
func TestJSONKeepsText(t *testing.T) {
	const odd = "\x1b[31m\u202e\u2028\U000e0001\u009b\x00 <&>"
	var got jsonReport
	text := write(t, &Report{Findings: []Finding{{Message: odd}}}, Options{Format: "json"})
	if err := json.Unmarshal([]byte(text), &got); err != nil || got.Findings[0].Message != odd {
		t.Errorf("%v: %+v", err, got.Findings)
	}
}

func TestUnknownFormat(t *testing.T) {
	err := example().Write(&strings.Builder{}, Options{Format: "pdf"})
	if err == nil || !strings.Contains(err.Error(), `"pdf" is none of text, json,`) {
		t.Error(err)
	}
}
