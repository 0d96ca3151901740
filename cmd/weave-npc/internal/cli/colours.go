package cli

import (
	"io"
	"os"
	"regexp"

	"golang.org/x/term"
)

// colours has verdicts stand out on a terminal.
type colours struct{ io.Writer }

// coloured returns what writes to out: in colours, if it is a terminal and $NO_COLOR is empty (https://no-color.org).
func coloured(out io.Writer) io.Writer {
	f, is := out.(*os.File)
	if !is || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" || !term.IsTerminal(int(f.Fd())) {
		return out
	}
	return colours{out}
}

// Raw returns what is written to.
func (c colours) Raw() io.Writer { return c.Writer }

// verdicts match what is coloured: verdicts, results of checks, and lines of a difference.
var (
	verdicts = regexp.MustCompile(`(?m)^[+-] .* -> .*$|(^|: |  )(allowed|passed|denied|failed|error|unknown|warning)(:|$| \(|  )`)
	good     = regexp.MustCompile(`^\+|allowed|passed`)
	unsure   = regexp.MustCompile(`^(: |  )?(unknown|warning)`)
)

// Write writes text. Words that are divided between two calls are not coloured.
func (c colours) Write(text []byte) (int, error) {
	_, err := c.Writer.Write(verdicts.ReplaceAllFunc(text, func(found []byte) []byte {
		colour := "31"
		if found[0] != '-' && good.Match(found) {
			colour = "32"
		} else if unsure.Match(found) {
			colour = "33"
		}
		return []byte("\x1b[" + colour + "m" + string(found) + "\x1b[0m")
	}))
	return len(text), err
}
