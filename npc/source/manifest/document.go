package manifest

import (
	"bytes"
	"encoding/json"
	"iter"
	"strings"

	"github.com/pkg/errors"
	"go.yaml.in/yaml/v3"
)

const (
	// MaxSize limits the bytes of a file.
	MaxSize = 16 << 20
	// maxNodes limits the fields and values of a document, estimated from its lines, commas and brackets: each takes
	// some hundred bytes of memory while it is read.
	maxNodes = 3 << 18
	// maxExpanded limits the bytes of a document with all aliases written out.
	maxExpanded = 2 * MaxSize
)

// document is one YAML document of a file.
type document struct {
	line int // of its first line in the file, counted from 1
	text []byte
}

// firstLine returns the line of the document's first content, after blanks and comments.
func (d document) firstLine() int {
	line := d.line
	for text := range bytes.Lines(d.text) {
		if !isBlank(text) {
			break
		}
		line++
	}
	return line
}

// splitDocuments yields the documents of a file, which document markers divide (YAML 1.2, section 9.1.2). The documents
// share the memory of data. It overwrites markers with blanks, and makes directives, which have no meaning here,
// comments.
func splitDocuments(data []byte) iter.Seq[document] {
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	if bytes.IndexByte(data, '\r') >= 0 {
		data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
		data = bytes.ReplaceAll(data, []byte("\r"), []byte("\n"))
	}
	return func(yield func(document) bool) {
		first, from := 1, 0 // line and offset at which the document begins
		at, line := 0, 0    // offset and number of the line
		content := false    // the document has more than blanks and comments
		for text := range bytes.Lines(data) {
			line++
			begins := -1 // offset at which the next document begins
			switch {
			case isMarker(text, "---"):
				begins = at
				copy(text, "   ") // what follows on the marker's line belongs to the document
			case isMarker(text, "..."):
				begins = at + len(text)
			case text[0] == '%' && !content:
				text[0] = '#'
			}
			if begins >= 0 {
				if content && !yield(document{line: first, text: data[from:at:at]}) {
					return
				}
				first, from, content = line, begins, false
				if begins > at {
					first, text = line+1, nil
				}
			}
			content = content || !isBlank(text)
			at += len(text)
			at = max(at, begins)
		}
		if content {
			yield(document{line: first, text: data[from:]})
		}
	}
}

func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || strings.ContainsRune(" \t\n", rune(rest[0])))
}

// isBlank reports whether a text has only blanks and comments.
func isBlank(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// isJSON reports whether the document is an object of JSON: what reads that takes a fraction of the memory that reading
// YAML takes.
func (d document) isJSON() bool {
	return bytes.HasPrefix(bytes.TrimSpace(d.text), []byte("{")) && json.Valid(d.text)
}

// tooBig returns why the document would take too much memory to read.
func (d document) tooBig() error {
	nodes := 0
	for _, b := range d.text {
		switch b {
		case '\n', ',', '[', '{':
			nodes++
		}
	}
	if nodes > maxNodes {
		return errors.Errorf("the document has more than %d fields and values; split it", maxNodes)
	}
	if bytes.IndexByte(d.text, '&') < 0 || bytes.IndexByte(d.text, '*') < 0 {
		return nil
	}
	var root yaml.Node
	// A document that cannot be parsed is reported when it is read.
	if yaml.Unmarshal(d.text, &root) == nil && expanded(&root, map[*yaml.Node]int{}) > maxExpanded {
		return errors.Errorf("with its aliases written out, the document has more than %d bytes", maxExpanded)
	}
	return nil
}

// expanded returns the approximate size of a node in bytes with all aliases written out. It stops counting a little
// above maxExpanded, which a node that contains itself exceeds too.
func expanded(n *yaml.Node, known map[*yaml.Node]int) int {
	if size, ok := known[n]; ok {
		return size
	}
	known[n] = maxExpanded + 1 // while it is being counted
	size := len(n.Value) + 4
	if n.Kind == yaml.AliasNode {
		size = expanded(n.Alias, known)
	}
	for _, child := range n.Content {
		size = min(size+expanded(child, known), maxExpanded+1)
	}
	known[n] = size
	return size
}
