package cli

import (
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/pflag"
)

// Format is the value of --output, and the values that a command supports.
type Format struct {
	Name    string
	formats []string
}

// Register registers --output. The first format is the default.
func (o *Format) Register(f *pflag.FlagSet, usage string, formats ...string) {
	o.formats = formats
	f.StringVarP(&o.Name, "output", "o", formats[0], usage)
	Values(f, "output", formats...)
}

// Check returns an error if the command does not support the value.
func (o *Format) Check() error {
	if slices.Contains(o.formats, o.Name) {
		return nil
	}
	return errors.Errorf("--output: %q is none of %s", o.Name, strings.Join(o.formats, ", "))
}
