package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"
	"go.yaml.in/yaml/v3"
)

// place is where an object is in its file.
type place struct {
	document int    // the line of its document
	path     string // in the document, as "items[3]"; empty for the document itself
}

// position finds the lines of fields in a document. It parses the document again when it is first asked, which is rare.
type position struct {
	doc   document
	first int   // the document's first line; 0 before it is asked for
	items []int // the lines of a list's items, for JSON; nil before they are asked for
	root  *yaml.Node
}

func newPosition(d document) *position { return &position{doc: d} }

// firstLine returns the document's first line, which every object of a list asks for.
func (p *position) firstLine() int {
	if p.first == 0 {
		p.first = p.doc.firstLine()
	}
	return p.first
}

// line returns the line in the file of the field that path names, as "spec.ingress[0].from", or of the nearest field
// above it that exists.
func (p *position) line(path string) int {
	if path == "" {
		return p.firstLine()
	}
	if line, ok := p.itemLine(path); ok {
		return line
	}
	if p.root == nil {
		p.root = &yaml.Node{}
		if err := yaml.Unmarshal(p.doc.text, p.root); err != nil {
			p.root = &yaml.Node{} // the document's first line will do
		}
	}
	if len(p.root.Content) == 0 {
		return p.firstLine()
	}
	n := p.root.Content[0]
	line := n.Line
	for step := range pathSteps(path) {
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		key, value := child(n, step)
		if value == nil {
			break
		}
		n, line = value, key.Line
	}
	return p.doc.line + line - 1
}

// itemLine returns the line of an item of a list in JSON, which every item asks for.
func (p *position) itemLine(path string) (line int, ok bool) {
	number, isItem := strings.CutPrefix(path, "items[")
	number, isWhole := strings.CutSuffix(number, "]")
	i, err := strconv.Atoi(number)
	if !isItem || !isWhole || err != nil {
		return 0, false
	}
	if p.items == nil {
		p.items = []int{}
		if p.doc.isJSON() {
			p.items = itemLines(p.doc)
		}
	}
	if i < 0 || i >= len(p.items) {
		return 0, false
	}
	return p.items[i], true
}

// itemLines returns the lines of the items of a list, which is valid JSON.
func itemLines(d document) []int {
	in := json.NewDecoder(bytes.NewReader(d.text))
	lines, line, counted := []int{}, d.line, 0
	var skipped json.RawMessage
	for key, err := in.Token(); err == nil; key, err = in.Token() { // the brace first, then keys
		switch key {
		case json.Delim('{'):
			continue
		case "items":
		default:
			_ = in.Decode(&skipped) // valid
			continue
		}
		if open, err := in.Token(); err != nil || open != json.Delim('[') {
			return lines
		}
		for in.More() {
			from := int(in.InputOffset())
			from = len(d.text) - len(bytes.TrimLeft(d.text[from:], ", \t\n"))
			line, counted = line+bytes.Count(d.text[counted:from], []byte("\n")), from
			lines = append(lines, line)
			if in.Decode(&skipped) != nil {
				return lines
			}
		}
		return lines
	}
	return lines
}

// child returns the node that one step of a path leads to, and the node of its key.
func child(n *yaml.Node, step string) (key, value *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := len(n.Content) - 2; i >= 0; i -= 2 { // of duplicates, the last is the one to be removed
			if n.Content[i].Value == step {
				return n.Content[i], n.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i]
		}
	}
	return nil, nil
}

// pathSteps yields "spec", "ingress", "0", "from" for "spec.ingress[0].from".
func pathSteps(path string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for path != "" {
			var step string
			if rest, ok := strings.CutPrefix(path, "["); ok {
				step, path, _ = strings.Cut(rest, "]")
			} else {
				end := strings.IndexAny(path, ".[")
				if end < 0 {
					end = len(path)
				}
				step, path = path[:end], path[end:]
			}
			path = strings.TrimPrefix(path, ".")
			if !yield(step) {
				return
			}
		}
	}
}

// Decoders report the place of an error within their message only. These functions find it there.

// typeMismatch matches what the JSON decoder says of a value of another type.
var typeMismatch = regexp.MustCompile(`cannot unmarshal (\w+).* into Go (?:struct field \w+\.(\S+)|value) of type (\S+)`)

// typeError returns the field that an error of the JSON decoder names, empty if it names none, and what is wrong.
func typeError(err error) (path, text string) {
	var noTime *time.ParseError
	if errors.As(err, &noTime) {
		return "", fmt.Sprintf("%q is no time such as 2026-01-31T12:00:00Z", noTime.Value)
	}
	found := typeMismatch.FindStringSubmatch(err.Error())
	if found == nil {
		return "", strings.TrimPrefix(err.Error(), "json: ")
	}
	has, path, wanted := found[1], found[2], found[3]
	switch {
	case wanted == "string" && (has == "number" || has == "bool"):
		wanted = "a string belongs: put it in quotes"
	case wanted == "string":
		wanted = "a string belongs"
	case wanted == "bool":
		wanted = "true or false belongs"
	case strings.HasPrefix(wanted, "int"):
		wanted = "a whole number belongs"
	case strings.HasPrefix(wanted, "[]"):
		wanted = "a list belongs"
	default:
		wanted = "a mapping belongs"
	}
	has = cmp.Or(map[string]string{"array": "list", "object": "mapping"}[has], has)
	return path, fmt.Sprintf("%s has a %s where %s", cmp.Or(path, "it"), has, wanted)
}

// strictErrorPath returns the field that a strict decoding error names: `unknown field "spec.x"`.
func strictErrorPath(err error) string {
	_, rest, _ := strings.Cut(err.Error(), `"`)
	path, _, _ := strings.Cut(rest, `"`)
	return path
}

// lineError is one error of the YAML parser.
type lineError struct {
	line int // within the document, counted from 1
	text string
}

// plainTexts replaces what the YAML parser says by what a writer of manifests can do about it.
var plainTexts = strings.NewReplacer(
	"found character that cannot start any token", "found a character that no value begins with, such as a tab: indent with spaces",
	"found a tab character that violates indentation", "found a tab: indent with spaces",
	"did not find expected ',' or '}'", "a comma or a closing } is missing",
	"did not find expected ',' or ']'", "a comma or a closing ] is missing",
	"found unexpected end of stream", "the file ends within a value: is a quote closed?",
	"could not find expected ':'", "a colon is missing after a key")

// braces matches a line on which a template begins where a value or a key does, outside of quotes.
var braces = regexp.MustCompile(`(?m)^[^#"'{]*\{\{`)

// mappingAsKey matches what the YAML parser says of a mapping where a key belongs, with its form in Go.
var mappingAsKey = regexp.MustCompile(`invalid map key: map\[.*`)

// yamlErrors divides an error of the YAML parser into those of single lines.
func yamlErrors(err error) []lineError {
	found := regexp.MustCompile(`line (\d+): ([^\n]*)`).FindAllStringSubmatch(err.Error(), -1)
	if len(found) == 0 {
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		return []lineError{{1, mappingAsKey.ReplaceAllString(text, "a mapping stands where a key belongs")}}
	}
	var errs []lineError
	for _, f := range found {
		line, err := strconv.Atoi(f[1])
		if err != nil {
			line = 1
		}
		errs = append(errs, lineError{line, plainTexts.Replace(f[2])})
	}
	return errs
}
