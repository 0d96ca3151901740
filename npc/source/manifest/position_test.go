package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
)

// TestItemLinesOfJSON compares the lines of a list's items in JSON with those that the YAML parser has for the same
// text.
func TestItemLinesOfJSON(t *testing.T) {
	pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","annotations":{"items":"[{\n}]"}},"spec":{"x":[{},{"items":[1]}]}}`
	for _, test := range []struct{ name, text string }{
		{"one line", `{"kind":"List","items":[` + pod + `,` + pod + `]}`},
		{"a line for each", "{\"kind\":\"List\",\n\"items\":[\n" + pod + "\n,\n\n" + pod + " , " + pod + "\n]}"},
		{"other lists before", "{\"metadata\":{\"items\":[{}]},\"x\":[\n{\"items\":[2]}],\n\n\"items\":\n[" + pod + ",\n" + pod + "],\n\"y\":1}"},
		{"no objects", "{\"items\":[\n1,\n\"{\",\n[\n{}],\nnull,{\n}]}"},
		{"no list", "{\"items\":\n{\"a\":1}}"},
		{"no items", "\n{\"kind\":\n\"List\"}"},
		{"empty", "{\"items\":[\n]}"},
	} {
		for _, pretty := range []bool{false, true} {
			text := []byte(test.text)
			if pretty {
				var out bytes.Buffer
				if err := json.Indent(&out, text, "", "  "); err != nil {
					t.Fatal(err)
				}
				text = out.Bytes()
			}
			t.Run(fmt.Sprintf("%s/pretty_%t", test.name, pretty), func(t *testing.T) {
				fast, slow := newPosition(document{line: 5, text: text}), newPosition(document{line: 5, text: text})
				slow.items = []int{} // asked for, and there are none
				for i := range 4 {
					path := fmt.Sprintf("items[%d]", i)
					if got, want := fast.line(path), slow.line(path); got != want {
						t.Errorf("%s is on line %d, want %d of\n%s", path, got, want, text)
					}
				}
			})
		}
	}
}
