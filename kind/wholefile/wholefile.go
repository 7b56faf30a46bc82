// Package wholefile replaces files at once: a reader finds the old file or the new one.
package wholefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace writes a file under a temporary name next to it and renames it when it is complete: others may read or replace it
// at the same time. On error, the old file is unchanged.
func Replace(path string, mode fs.FileMode, write func(io.Writer) error) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	if err := errors.Join(write(file), file.Chmod(mode), file.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return os.Rename(file.Name(), path)
}
