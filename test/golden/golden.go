// Package golden compares what tests generate with files, and writes the files when a test runs with the flag -update.
//
//	golden.Compare(t, "testdata/base.txt", got)
package golden

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the files that tests compare with what they generate, before comparing")

// Compare fails the test if a file does not contain the text. With -update it writes the file first.
func Compare(t testing.TB, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n"))
	if diff == "" {
		return
	}
	folder, err := os.Getwd() // tests run in the folder of their package
	if err != nil {
		t.Fatal(err)
	}
	t.Errorf("%s does not contain what was generated; if that is right, run go test %s -update (-want +got):\n%s",
		path, folder, diff)
}
