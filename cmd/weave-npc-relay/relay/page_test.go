package relay_test

import (
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/relay"
	"github.com/weave-npc/weave-npc/test/lab/apiserver"
)

// TestMetricsAreExplained in docs/relay.md, with their types and labels.
func TestMetricsAreExplained(t *testing.T) {
	dir := t.TempDir()
	writeCertificate(t, dir)
	r, err := relay.New(relay.Config{API: &rest.Config{Host: "https://127.0.0.1:1"}, CertFile: filepath.Join(dir, apiserver.ServerCertFile),
		KeyFile: filepath.Join(dir, apiserver.ServerKeyFile)}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	r.Metrics().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	page, err := os.ReadFile("../../../docs/relay.md")
	if err != nil {
		t.Fatal(err)
	}
	explained := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| (weavenpcrelay_\w+) \| (\w+) \| (\w*) *\|`).FindAllStringSubmatch(string(page), -1) {
		explained[row[1]] = row[2] + " " + row[3]
	}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (weavenpcrelay_\w+) (\w+)\n\w+(?:\{(\w+)=)?`).FindAllStringSubmatch(answer.Body.String(), -1) {
		if got := explained[m[1]]; got != m[2]+" "+m[3] {
			t.Errorf("%s: the page has %q, it is %q", m[1], got, m[2]+" "+m[3])
		}
		delete(explained, m[1])
	}
	for name := range explained {
		t.Errorf("there is no %s", name)
	}
}
