package ulogd

import (
	"log/slog"
	"strings"
	"testing"
)

func TestParseLine(t *testing.T) {
	cases := []struct {
		name, in string
		level    slog.Level
		text     string
	}{
		{"notice", "Sat Nov 21 11:55:31 2026 <5> ulogd.c:408 registering plugin `NFLOG'", slog.LevelDebug,
			"registering plugin `NFLOG'"},
		{"error", "Sat Nov 21 11:55:31 2026 <7> ulogd_inppkt_NFLOG.c:610 unable to bind to log group 86", slog.LevelWarn,
			"unable to bind to log group 86"},
		{"fatal", "Sat Nov 21 11:55:31 2026 <8> ulogd.c:1588 not even a single working plugin stack", slog.LevelWarn,
			"not even a single working plugin stack"},
		{"priority", "Sat Nov 21 11:55:31 2026 <7> ulogd.c:1594 Could not nice process: Operation not permitted", slog.LevelDebug,
			"Could not nice process: Operation not permitted"},
		{"scheduler", "WARNING: scheduler configuration failed: Operation not permitted", slog.LevelDebug,
			"WARNING: scheduler configuration failed: Operation not permitted"},
		{"loader", "ulogd: error while loading shared libraries: libnfnetlink.so.0", slog.LevelWarn,
			"ulogd: error while loading shared libraries: libnfnetlink.so.0"},
		{"cut", "x <5", slog.LevelWarn, "x <5"},
		{"cut after the level", "x <5> ", slog.LevelDebug, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if level, text := parseLine(c.in); level != c.level || text != c.text {
				t.Errorf("%s %q, want %s %q", level, text, c.level, c.text)
			}
		})
	}
}

func TestLineLogIsBounded(t *testing.T) {
	book := &logBook{}
	l := &lineLog{log: slog.New(book)}
	l.copy(strings.NewReader(strings.Repeat(strings.Repeat("x", 100_000)+"\n", 1000)))
	all := book.find("")
	if len(all) != linesPerPeriod {
		t.Errorf("%d lines, want %d", len(all), linesPerPeriod)
	}
	for _, r := range all {
		if len(r.text) > 2*lineMax {
			t.Errorf("a line of %d bytes", len(r.text))
		}
	}
	if l.suppressed != 1000-linesPerPeriod {
		t.Errorf("%d lines suppressed", l.suppressed)
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add("Sat Nov 21 11:55:31 2026 <5> ulogd.c:408 text")
	f.Add(" <")
	f.Fuzz(func(t *testing.T, line string) {
		if _, text := parseLine(line); len(text) > len(line) {
			t.Errorf("%q became longer: %q", line, text)
		}
	})
}
