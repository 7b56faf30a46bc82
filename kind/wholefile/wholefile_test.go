package wholefile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestAFileIsThereWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	failure := errors.New("no")
	err := Replace(path, 0o600, func(w io.Writer) error {
		_, err := io.WriteString(w, "half")
		return errors.Join(err, failure)
	})
	if entries, _ := os.ReadDir(dir); !errors.Is(err, failure) || len(entries) != 0 {
		t.Errorf("%v; %v is left", err, entries)
	}
	write := func(w io.Writer) error { _, err := io.WriteString(w, "whole"); return err }
	if err := Replace(path, 0o600, write); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "whole" {
		t.Errorf("%q, %v", data, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}
