package daemon

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/pkg/errors"
)

// TestLevels checks that each level is logged from its own flag value on.
func TestLevels(t *testing.T) {
	records := []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}
	for i, level := range logLevels() {
		var out bytes.Buffer
		log, err := newLogger(&out, level, "text")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			log.Log(t.Context(), r, "x")
		}
		if n := bytes.Count(out.Bytes(), []byte("\n")); n != len(records)-i {
			t.Errorf("%s: %d records\n%s", level, n, &out)
		}
	}
}

// TestErrorsAreLoggedWithoutStack checks errors and stringers in every format.
func TestErrorsAreLoggedWithoutStack(t *testing.T) {
	for _, format := range logFormats() {
		var out bytes.Buffer
		log, err := newLogger(&out, "info", format)
		if err != nil {
			t.Fatal(err)
		}
		log.Info("x", "err", errors.New("away"), "addr", netip.MustParseAddr("10.32.1.2"))
		if format != "json" {
			if !bytes.HasSuffix(out.Bytes(), []byte("level=INFO msg=x err=away addr=10.32.1.2\n")) {
				t.Errorf("%s", &out)
			}
			continue
		}
		var got map[string]any
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if got["err"] != "away" || got["addr"] != "10.32.1.2" || got["level"] != "INFO" {
			t.Errorf("%s", &out)
		}
	}
}
