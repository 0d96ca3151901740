package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/pkg/errors"
)

// subtest is one subtest of the suite's tests.
type subtest struct {
	// test is the short name of the test, by which upstream's report counts.
	test string
	name string
	// sctp is whether it opens SCTP connections.
	sctp bool
	// experimental is whether it is about fields that only the experimental resource definition is sure to have.
	experimental bool
}

// selection is what a user wants to run.
type selection struct {
	focus              *regexp.Regexp
	sctp, experimental bool
}

// listSubtests lists the subtests of the suite in the order of a run. It reads the suite's sources, because nothing
// else shows before a run which subtests exist and which need SCTP. Experimental are the tests about experimental
// fields.
func listSubtests(sources fs.FS, experimental map[string]bool) ([]subtest, error) {
	files, err := fs.Glob(sources, "tests/*.go")
	if err != nil {
		return nil, errors.Wrap(err, "listing the sources of the suite")
	}
	var all []subtest
	for _, file := range files {
		source, err := fs.ReadFile(sources, file)
		if err != nil {
			return nil, errors.Wrap(err, "reading the sources of the suite")
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path.Base(file), source, 0)
		if err != nil {
			return nil, errors.Wrap(err, "parsing the sources of the suite")
		}
		found, err := inFile(parsed)
		if err != nil {
			return nil, errors.Wrapf(err, "the suite's %s", path.Base(file))
		}
		for _, s := range found {
			s.experimental = experimental[s.test]
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("the sources of the suite have no subtests")
	}
	return all, nil
}

// inFile returns the subtests of a file: the calls of t.Run in a literal that has a ShortName.
func inFile(file *ast.File) ([]subtest, error) {
	var all []subtest
	var err error
	ast.Inspect(file, func(n ast.Node) bool {
		test, isTest := shortName(n)
		if !isTest {
			return true
		}
		ast.Inspect(n, func(n ast.Node) bool {
			call, isCall := n.(*ast.CallExpr)
			if !isCall || !isRun(call) {
				return true
			}
			name, isText := text(call.Args[0])
			if !isText {
				err = errors.Errorf("a subtest of %s has no fixed name", test)
			}
			all = append(all, subtest{test: test, name: name, sctp: mentions(call, "sctp")})
			return false
		})
		return false
	})
	return all, err
}

// shortName returns the value of the key ShortName, if the node is a literal that has it.
func shortName(n ast.Node) (string, bool) {
	literal, isLiteral := n.(*ast.CompositeLit)
	if !isLiteral {
		return "", false
	}
	for _, e := range literal.Elts {
		if pair, isPair := e.(*ast.KeyValueExpr); isPair {
			if key, isName := pair.Key.(*ast.Ident); isName && key.Name == "ShortName" {
				return text(pair.Value)
			}
		}
	}
	return "", false
}

// isRun reports whether a call is one of t.Run.
func isRun(call *ast.CallExpr) bool {
	f, isMember := call.Fun.(*ast.SelectorExpr)
	return isMember && f.Sel.Name == "Run" && len(call.Args) == 2
}

// text returns the value of a string literal.
func text(n ast.Node) (string, bool) {
	literal, isLiteral := n.(*ast.BasicLit)
	if !isLiteral || literal.Kind != token.STRING {
		return "", false
	}
	value, err := strconv.Unquote(literal.Value)
	return value, err == nil
}

// mentions reports whether a string literal with this value is somewhere in a node.
func mentions(n ast.Node, value string) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		if v, isText := text(n); isText && v == value {
			found = true
		}
		return !found
	})
	return found
}

// choose splits the subtests of the tests that match into those that run and those that are left out. A test is
// selected as a whole, because its subtests change one policy, each what the one before it left.
func (c selection) choose(all []subtest) (run, skip []subtest) {
	selected := map[string]bool{}
	for _, s := range all {
		selected[s.test] = selected[s.test] || c.focus.MatchString(s.test+" "+s.name)
	}
	for _, s := range all {
		switch {
		case !selected[s.test]:
		case c.why(s) != "":
			skip = append(skip, s)
		default:
			run = append(run, s)
		}
	}
	return run, skip
}

// why returns why a subtest is left out, or nothing.
func (c selection) why(s subtest) string {
	switch {
	case s.experimental && !c.experimental:
		return "is about experimental fields; EXPERIMENTAL=1 runs it"
	case s.sctp && !c.sctp:
		return "needs SCTP sockets in the nodes' kernels; SCTP=1 runs it"
	}
	return ""
}

// path returns the full name of a subtest in the output of Go's tests.
func (s subtest) path() string {
	return strings.Join([]string{suiteName, s.test, strings.ReplaceAll(s.name, " ", "_")}, "/")
}

// pattern returns the value of -test.run that selects these subtests.
func pattern(subtests []subtest) string {
	parts := make([]string, len(subtests))
	for i, s := range subtests {
		elements := strings.Split(s.path(), "/")
		for j, e := range elements {
			elements[j] = "^" + regexp.QuoteMeta(e) + "$"
		}
		parts[i] = strings.Join(elements, "/")
	}
	return strings.Join(parts, "|")
}
