package cli

import (
	"io/fs"
	"os"

	"github.com/pkg/errors"
)

// OpenFile opens the file that is the value of a flag.
func OpenFile(flag, path string) (*os.File, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Errorf("--%s: %s does not exist: name a file, or - for standard input", flag, path)
	}
	if err != nil {
		return nil, errors.Wrapf(err, "--%s", flag)
	}
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		err = errors.Errorf("%s is a directory: name a file in it", path)
	}
	if err != nil {
		_ = file.Close()
		return nil, errors.Wrapf(err, "--%s", flag)
	}
	return file, nil
}
