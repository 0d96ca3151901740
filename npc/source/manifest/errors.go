package manifest

import (
	"regexp"
	"strconv"
	"strings"
)

// Decoders report the place of an error within their message only. These functions find it there.

// typeErrorPath returns the field that an error of the JSON decoder names; empty if it names none.
func typeErrorPath(err error) string {
	found := regexp.MustCompile(`Go struct field \w+\.(\S+) of type`).FindStringSubmatch(err.Error())
	if found == nil {
		return ""
	}
	return found[1]
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

// yamlErrors divides an error of the YAML parser into those of single lines.
func yamlErrors(err error) []lineError {
	found := regexp.MustCompile(`line (\d+): ([^\n]*)`).FindAllStringSubmatch(err.Error(), -1)
	if len(found) == 0 {
		return []lineError{{1, strings.TrimPrefix(err.Error(), "yaml: ")}}
	}
	var errs []lineError
	for _, f := range found {
		line, err := strconv.Atoi(f[1])
		if err != nil {
			line = 1
		}
		errs = append(errs, lineError{line, f[2]})
	}
	return errs
}
