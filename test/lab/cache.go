package lab

import (
	"os"
	"path/filepath"

	"github.com/pkg/errors"
)

// CacheDir returns the directory of the checkout with what tests build and use again. Tests run in the directory of their
// package, in any module of the checkout.
func CacheDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", errors.Wrap(err, "finding the checkout")
	}
	for {
		_, err := os.Stat(filepath.Join(dir, "test/controlplane/build"))
		if err == nil || dir == filepath.Dir(dir) {
			return filepath.Join(dir, ".cache"), errors.Wrap(err, "finding the checkout")
		}
		dir = filepath.Dir(dir)
	}
}
