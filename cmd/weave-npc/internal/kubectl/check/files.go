package check

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/npc/analysis/check/expectation"
	"github.com/weave-npc/weave-npc/npc/source/manifest"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// readExpectations reads the expectations in a file, below a directory, or in standard input.
func readExpectations(path string, stdin io.Reader) (files []expectation.File, err error) {
	if path == snapshot.StandardInput {
		text, err := io.ReadAll(io.LimitReader(stdin, manifest.MaxSize+1))
		if err != nil {
			return nil, errors.Wrap(err, "reading standard input")
		}
		return parse(path, text)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, errors.Wrap(err, "reading expectations")
	}
	if !info.IsDir() {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, errors.Wrap(err, "reading expectations")
		}
		return parse(path, text)
	}
	var problems []string
	err = filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return errors.Wrap(err, "reading expectations")
		case entry.IsDir() || !manifest.IsName(path):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return errors.Wrap(err, "reading expectations")
		}
		if !strings.Contains(string(text), expectation.Kind) {
			return nil // it need not be YAML that can be read
		}
		found, err := parse(path, text)
		if err != nil {
			problems = append(problems, err.Error())
		}
		files = append(files, found...)
		return nil
	})
	if err == nil && len(problems) > 0 {
		err = errors.New(strings.Join(problems, "\n"))
	}
	return files, err
}

// parse reads one file. The error has a line for each problem.
func parse(path string, text []byte) ([]expectation.File, error) {
	if len(text) > manifest.MaxSize {
		return nil, errors.Errorf("%s: has more than %d bytes; split it", path, manifest.MaxSize)
	}
	files, problems := expectation.Parse(path, text)
	if len(problems) == 0 {
		return files, nil
	}
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.Error()
	}
	return nil, errors.New(strings.Join(lines, "\n"))
}
