package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestColours: G, R and Y begin green, red and yellow, and 0 ends them.
func TestColours(t *testing.T) {
	for text, want := range map[string]string{
		"a -> b, tcp/80: allowed\n":           "a -> b, tcp/80G: allowed0\n",
		"ingress to b: denied: no rule\n":     "ingress to bR: denied:0 no rule\n",
		"a -> b: unknown (not read)\n":        "a -> bY: unknown (0not read)\n",
		"passed: a\nfailed: b\n":              "Gpassed:0 a\nRfailed:0 b\n",
		"m.yaml:3: warning: w\nm: error: e\n": "m.yaml:3Y: warning:0 w\nmR: error:0 e\n",
		"  a  tcp/80  denied   because\n":     "  a  tcp/80R  denied  0 because\n",
		"+ a -> b: tcp/80\n- a -> c: allowed": "G+ a -> b: tcp/800\nR- a -> c: allowed0",
		"- from: []\n  unknown/denied\n":      "- from: []\n  unknown/denied\n",
		`{"verdict": "allowed"}`:              `{"verdict": "allowed"}`,
	} {
		var out bytes.Buffer
		if n, err := (colours{&out}).Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("%q: %d, %v", text, n, err)
		}
		got := strings.NewReplacer("\x1b[32m", "G", "\x1b[31m", "R", "\x1b[33m", "Y", "\x1b[0m", "0").Replace(out.String())
		if got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// TestColoursAreForTerminals that the user has not set otherwise.
func TestColoursAreForTerminals(t *testing.T) {
	terminal, file := opened(t, "/dev/ptmx"), opened(t, t.TempDir()+"/file")
	for _, tc := range []struct {
		name, noColor, kind string
		out                 *os.File
		want                bool
	}{
		{"terminal", "", "xterm", terminal, true}, {"file", "", "xterm", file, false},
		{"NO_COLOR", "1", "xterm", terminal, false}, {"dumb", "", "dumb", terminal, false},
	} {
		t.Setenv("NO_COLOR", tc.noColor)
		t.Setenv("TERM", tc.kind)
		if _, got := coloured(tc.out).(colours); got != tc.want {
			t.Errorf("%s: coloured %t", tc.name, got)
		}
	}
}

// opened returns a file, such as a terminal, that is closed at the end of the test.
func opened(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}
