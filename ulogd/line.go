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
	lineMax         = 512 // bytes of a line that are kept
	linesPerPeriod  = 50
	lineLimitPeriod = time.Minute
	complaintLevel  = '7' // of ulogd2's own levels: 5 notice, 7 error, 8 fatal
)

// lineLog passes what ulogd2 says on to our log, bounded in length and number.
type lineLog struct {
	log        *slog.Logger
	began      time.Time // of the current period
	passed     int       // in the current period
	suppressed int       // since the last line that was passed on

	mu        sync.Mutex
	complaint string
}

func newLineLog(log *slog.Logger) *lineLog {
	return &lineLog{log: log}
}

// copy reads lines until in ends. It keeps reading when nothing is passed on any more: ulogd2 must not wait for us.
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

// lastComplaint is the last error that ulogd2 has logged.
func (l *lineLog) lastComplaint() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.complaint
}

// parseLine splits "Sat Nov 21 11:55:31 2026 <7> ulogd.c:408 text" into our level and the text.
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
	// It asks for a higher priority than it may have, and does without.
	if strings.HasPrefix(text, "Could not nice process") || strings.HasPrefix(text, "WARNING: scheduler configuration") {
		level = slog.LevelDebug
	}
	return level, strings.TrimSpace(text)
}
