package manifest

import "bytes"

// Lines finds the lines of fields in a file. It parses a document when one of its fields is first asked for.
type Lines struct {
	text      []byte
	documents map[int]*position // by line; nil until the first question
}

// NewLines returns the lines of a file, whose objects have been parsed from a copy of text.
func NewLines(text []byte) *Lines { return &Lines{text: text} }

// Of returns the line of a field of an object of the file, such as "spec.ingress[0].from", or of the nearest field
// above it that exists.
func (l *Lines) Of(o Object, field string) int {
	if l.documents == nil {
		l.documents = map[int]*position{}
		for d := range splitDocuments(bytes.Clone(l.text)) { // which it changes
			l.documents[d.line] = newPosition(d)
		}
	}
	p := l.documents[o.place.document]
	if p == nil || field == "" {
		return o.Line
	}
	return node{path: o.place.path, position: p}.line(field)
}
