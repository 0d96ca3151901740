package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pkg/errors"
)

// mutant is an engine that is broken in one way.
type mutant struct {
	// name is that of its file, without .patch.
	name string
	// about is one sentence on what is broken.
	about string
	// breaks names the promise that is broken.
	breaks string
	// runs are the tests that must catch it, at the latest.
	runs []tests
	// changed holds file, from the root -> its text.
	changed map[string]string
}

// tests are some tests of a package.
type tests struct {
	pkg string // as the go command names it at the root: ./npc
	run string // regular expressions for its flag -run
}

// relayModule is where the module of weave-npc-relay is, from the root. It has the engine's module in its place.
const relayModule = "./cmd/weave-npc-relay"

// module returns the directory of a package's module, from the root, and the package as the go command names it there.
func module(pkg string) (dir, inside string) {
	if rest, ok := strings.CutPrefix(pkg, relayModule); ok && (rest == "" || rest[0] == '/') {
		return relayModule, "." + rest
	}
	return ".", pkg
}

// packages returns the packages that the mutant changes, as the go command names them at the root.
func (m mutant) packages() []string {
	var out []string
	for file := range m.changed {
		out = append(out, "./"+filepath.Dir(file))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ofEngine reports whether the mutant changes the engine's module, and not the relay's alone.
func (m mutant) ofEngine() bool {
	return slices.ContainsFunc(m.packages(), func(pkg string) bool {
		dir, _ := module(pkg)
		return dir == "."
	})
}

// loadMutants reads the patches in test/mutants and applies each to the files as they are.
func loadMutants(root string) ([]mutant, error) {
	paths, err := filepath.Glob(filepath.Join(root, "test/mutants/*.patch"))
	if err != nil {
		return nil, errors.Wrap(err, "looking for patches")
	}
	var out []mutant
	for _, path := range paths {
		m, err := loadMutant(root, path)
		if err != nil {
			return nil, errors.Wrap(err, filepath.Base(path))
		}
		out = append(out, m)
	}
	return out, nil
}

func loadMutant(root, path string) (mutant, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return mutant{}, err
	}
	m := mutant{name: strings.TrimSuffix(filepath.Base(path), ".patch"), changed: map[string]string{}}
	if err := m.parseHead(string(text)); err != nil {
		return mutant{}, err
	}
	files, err := parseDiff(string(text))
	if err != nil {
		return mutant{}, err
	}
	for file, hunks := range files {
		now, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return mutant{}, err
		}
		if m.changed[file], err = applyAll(string(now), hunks); err != nil {
			return mutant{}, errors.Wrap(err, file)
		}
	}
	return m, nil
}

// field is a line of a patch's head, "Name: value".
var field = regexp.MustCompile(`^([A-Z][a-z]+): (.+)$`)

// parseHead reads what precedes the diff: a sentence, an empty line, and the fields.
func (m *mutant) parseHead(text string) error {
	head, _, _ := strings.Cut(text, "\n--- ")
	sentence, fields, _ := strings.Cut(head, "\n\n")
	m.about = strings.Join(strings.Fields(sentence), " ")
	for _, line := range strings.Split(strings.TrimSpace(fields), "\n") {
		f := field.FindStringSubmatch(line)
		if f == nil {
			return errors.Errorf("%q is no field", line)
		}
		switch f[1] {
		case "Breaks":
			m.breaks = f[2]
		case "Run":
			pkg, run, _ := strings.Cut(f[2], " ")
			m.runs = append(m.runs, tests{pkg, run})
		default:
			return errors.Errorf("there is no field %q", f[1])
		}
	}
	if m.about == "" || m.breaks == "" || len(m.runs) == 0 {
		return errors.New("a patch begins with a sentence, an empty line, and lines that begin with Breaks and Run")
	}
	return nil
}

// overlay writes the changed files to a directory, and a file that has the go command take them for those of the
// modules.
func (m mutant) overlay(root, dir string) (path string, err error) {
	replace := map[string]string{}
	for file, text := range m.changed {
		instead := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(instead, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = instead
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}
