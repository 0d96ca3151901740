package findings

import (
	"bytes"
	"fmt"
	"strings"
)

// writeGitHub writes a workflow command of GitHub for each finding, which shows it next to the line of the file.
func (r *Report) writeGitHub(out *bytes.Buffer, o Options) {
	selected, omitted := r.selected(o.Limit)
	for _, f := range selected {
		properties := "title=" + escapeProperty(clean(f.Rule))
		if isFile(f.File) {
			where := "file=" + escapeProperty(clean(o.relative(f.File)))
			if f.Line > 0 {
				where += fmt.Sprintf(",line=%d", f.Line)
			}
			properties = where + "," + properties
		}
		text := strings.Join(append([]string{f.text()}, cleanLines(f.Detail)...), "\n")
		fmt.Fprintf(out, "::%s %s::%s\n", gitHubLevel(f.Level), properties, escapeData(text))
	}
	if omitted > 0 {
		fmt.Fprintf(out, "::notice title=limit::%s\n", more(omitted))
	}
}

// gitHubLevel returns what GitHub calls a level.
func gitHubLevel(l Level) string {
	if l == Note {
		return "notice"
	}
	return l.String()
}

func escapeData(text string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(text)
}

func escapeProperty(text string) string {
	return strings.NewReplacer(":", "%3A", ",", "%2C").Replace(escapeData(text))
}
