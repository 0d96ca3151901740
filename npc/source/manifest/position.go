package manifest

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// position finds the lines of fields in a document. It parses the document again when it is first asked, which is rare.
type position struct {
	doc  document
	root *yaml.Node
}

func newPosition(d document) *position { return &position{doc: d} }

// line returns the line in the file of the field that path names, as "spec.ingress[0].from", or of the nearest field
// above it that exists.
func (p *position) line(path string) int {
	if path == "" {
		return p.doc.firstLine()
	}
	if p.root == nil {
		p.root = &yaml.Node{}
		if err := yaml.Unmarshal(p.doc.text, p.root); err != nil {
			p.root = &yaml.Node{} // the document's first line will do
		}
	}
	if len(p.root.Content) == 0 {
		return p.doc.firstLine()
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

// child returns the node that one step of a path leads to, and the node of its key.
func child(n *yaml.Node, step string) (key, value *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
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
