package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	checkTranscript(t, "testdata/check.txt")
}

// TestEmptyPathIsNoCluster refuses what a variable that is not set leaves.
func TestEmptyPathIsNoCluster(t *testing.T) {
	out, code := execute(t, "check", "", "testdata/check/expectations.yaml")
	if want := "weave-npc: MANIFESTS is empty: give a directory, a file, - for standard input, or cluster\n"; out != want || code != 2 {
		t.Errorf("it ends with %d and prints\n%s", code, out)
	}
}

// TestCheckPage shows that the page about check has the files and the output of the transcript.
func TestCheckPage(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	page := read("../../docs/check.md")
	transcript, _, _ := strings.Cut(strings.TrimPrefix(read("testdata/check.txt"), "$ "), "\n$ ")
	_, policy, _ := strings.Cut(read("testdata/check/shop.yaml"), "kind: NetworkPolicy\n")
	_, lines, _ := strings.Cut(transcript, "\n")
	for name, text := range map[string]string{"expectations": read("testdata/check/expectations.yaml"), "policy": "kind: NetworkPolicy\n" + policy, "output": lines} {
		if indented := regexp.MustCompile(`(?m)^.`).ReplaceAllString(strings.TrimSpace(text), "    $0"); !strings.Contains(page, indented) {
			t.Errorf("docs/check.md does not have the %s:\n%s", name, indented)
		}
	}
}
