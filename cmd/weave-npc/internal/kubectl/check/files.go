package check

import (
	"io"
	"strings"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/npc/analysis/check/expectation"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// readExpectations reads the expectations in a file, below a directory, or in standard input. A file
// without any need not be YAML. The error has a line for each problem.
func readExpectations(path string, stdin io.Reader) (files []expectation.File, skipped []string, err error) {
	texts, skipped, err := snapshot.Files(path, stdin, expectation.Kind)
	if err != nil {
		return nil, nil, err
	}
	var problems []string
	for _, text := range texts {
		found, wrong := expectation.Parse(text.Path, text.Text)
		for _, p := range wrong {
			problems = append(problems, p.Error())
		}
		files = append(files, found...)
	}
	if len(problems) > 0 {
		err = errors.New(strings.Join(problems, "\n"))
	}
	return files, skipped, err
}
