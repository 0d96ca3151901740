package daemon

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/pkg/errors"
)

// logLevels returns the values of --log-level.
func logLevels() []string { return []string{"debug", "info", "warning", "error"} }

// logFormats returns the values of --log-format.
func logFormats() []string { return []string{"text", "json"} }

// newLogger returns a logger that writes records of a level and above in a format.
func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	l, err := parseLevel(level)
	if err != nil {
		return nil, err
	}
	h := &slog.HandlerOptions{Level: l, ReplaceAttr: plainText}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, h)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, h)), nil
	}
	return nil, errors.Errorf("--log-format: %q is neither text nor json", format)
}

func parseLevel(level string) (slog.Level, error) {
	switch level {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warning":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, errors.Errorf("--log-level: %q is none of debug, info, warning and error", level)
}

// plainText replaces errors and stringers by their text, in JSON as in text: an error that is formatted in full
// includes its stack.
func plainText(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case slog.Level, time.Time:
	case error:
		a.Value = slog.StringValue(v.Error())
	case fmt.Stringer:
		a.Value = slog.StringValue(v.String())
	}
	return a
}
