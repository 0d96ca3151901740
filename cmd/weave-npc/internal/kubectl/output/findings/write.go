package findings

import (
	"bytes"
	"io"
	"strings"

	"github.com/pkg/errors"
)

// The formats.
const (
	formatText     = "text"
	formatJSON     = "json"
	formatJUnit    = "junit"
	formatSARIF    = "sarif"
	formatMarkdown = "markdown"
	formatGitHub   = "github"
)

// Formats returns the names of the formats, the default first.
func Formats() []string {
	return []string{formatText, formatJSON, formatJUnit, formatSARIF, formatMarkdown, formatGitHub}
}

// Write writes the report.
func (r *Report) Write(to io.Writer, o Options) error {
	out := &bytes.Buffer{}
	var err error
	switch o.Format {
	case formatText:
		r.writeText(out, o)
	case formatJSON:
		err = r.writeJSON(out, o)
	case formatJUnit:
		err = r.writeJUnit(out, o)
	case formatSARIF:
		err = r.asFindings().writeSARIF(out, o)
	case formatMarkdown:
		r.writeMarkdown(out, o)
	case formatGitHub:
		r.asFindings().writeGitHub(out, o)
	default:
		return errors.Errorf("%q is none of %s", o.Format, strings.Join(Formats(), ", "))
	}
	if err == nil {
		_, err = out.WriteTo(to)
	}
	return errors.Wrap(err, "writing findings")
}
