package findings

import "path/filepath"

// Options are how a report is written.
type Options struct {
	Format string // one of Formats
	// Limit is the number of findings that are written; 0 is all. The gravest ones are.
	Limit int
	// FailOn is the level from which on a rule with findings is a failed test, where there are tests.
	FailOn Level
	// Dir is the working directory, which paths are relative to where a reader needs that.
	Dir string
}

// isFile reports whether a path is one that a reader can open: standard input is not.
func isFile(path string) bool { return path != "" && path != "-" }

// relative returns a path with slashes, relative to the working directory if it lies below it.
func (o Options) relative(path string) string {
	if o.Dir != "" && filepath.IsAbs(path) {
		if r, err := filepath.Rel(o.Dir, path); err == nil && filepath.IsLocal(r) {
			path = r
		}
	}
	return filepath.ToSlash(filepath.Clean(path))
}
