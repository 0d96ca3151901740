package ulogd

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	lineMax         = 512 // bytes that are kept of a line
	linesPerPeriod  = 50
	lineLimitPeriod = time.Minute
	complaintLevel  = '7' // of ulogd2's own levels: 5 notice, 7 error, 8 fatal
)

// lineLog writes the output of ulogd2 to the log, bounded in length and number of lines.
type lineLog struct {
	log        *slog.Logger
	began      time.Time // start of the current period
	passed     int       // lines in the current period
	suppressed int       // lines since the last logged one

	mu        sync.Mutex // guards complaint
	complaint string
}

// copy reads lines until in ends. It keeps reading when the limit is reached, so that ulogd2 never blocks.
func (l *lineLog) copy(in io.Reader) {
	r := bufio.NewReaderSize(in, lineMax)
	continued := false
	for {
		b, more, err := r.ReadLine()
		if err != nil {
			return
		}
		if !continued && len(b) > 0 {
			l.pass(string(b))
		}
		continued = more
	}
}

// pass logs one line.
func (l *lineLog) pass(line string) {
	level, text := parseLine(line)
	if level >= slog.LevelWarn {
		l.mu.Lock()
		l.complaint = text
		l.mu.Unlock()
	}
	if time.Since(l.began) >= lineLimitPeriod {
		l.began, l.passed = time.Now(), 0
	}
	if l.passed++; l.passed > linesPerPeriod {
		l.suppressed++
		return
	}
	var args []any
	if l.suppressed > 0 {
		args = append(args, "suppressed", l.suppressed)
		l.suppressed = 0
	}
	l.log.Log(context.Background(), level, "ulogd2: "+text, args...)
}

// lastComplaint returns the last error that ulogd2 has logged.
func (l *lineLog) lastComplaint() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.complaint
}

// parseLine splits "Sat Nov 21 11:55:31 2026 <7> ulogd.c:408 text" into a log level and the text.
func parseLine(line string) (slog.Level, string) {
	level, text := slog.LevelWarn, line
	if i := strings.Index(line, " <"); i >= 0 && len(line) > i+4 && line[i+3:i+5] == "> " {
		if line[i+2] < complaintLevel {
			level = slog.LevelDebug
		}
		text = line[i+5:]
		if source, rest, ok := strings.Cut(text, " "); ok && strings.Contains(source, ".c:") {
			text = rest
		}
	}
	// ulogd2 asks for a higher priority than it may have, and runs without it.
	if strings.HasPrefix(text, "Could not nice process") ||
		strings.HasPrefix(text, "WARNING: scheduler configuration") {
		level = slog.LevelDebug
	}
	return level, strings.TrimSpace(text)
}
