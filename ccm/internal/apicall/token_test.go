package apicall

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writeToken writes a file as if at the second.
func writeToken(file, content string, second int) error {
	when := time.Date(2026, 11, 20, 12, 0, second, 0, time.UTC)
	return errors.Join(os.WriteFile(file, []byte(content), 0o600), os.Chtimes(file, when, when))
}

func TestTheTokenFollowsItsFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write := func(content string, second int) func() error {
		return func() error { return writeToken(file, content, second) }
	}
	s := &TokenSource{file: file}
	for _, step := range []struct {
		name string
		do   func() error
		want string // "": an error that names the file
	}{
		{"there is no file", func() error { return nil }, ""},
		{"the file is empty", write(" \n", 0), ""},
		{"the file has a token", write("first\n", 0), "first"},
		{"nothing has changed", write("other\n", 0), "first"}, // the same time and size: it is not read again
		{"only its time has changed", write("third\n", 1), "third"},
		{"only its size has changed", write("the fourth\n", 1), "the fourth"},
		{"the file is empty for a moment", write("", 2), "the fourth"},
		{"the file is gone for a moment", func() error { return os.Remove(file) }, "the fourth"},
		{"the file is there again", write("fifth\n", 3), "fifth"},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		got, err := s.Token()
		if got != step.want || (err != nil) != (step.want == "") || err != nil && !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %q, %v; want %q", step.name, got, err, step.want)
		}
	}
	if got, err := (&TokenSource{static: "fixed"}).Token(); got != "fixed" || err != nil {
		t.Errorf("without a file: %q, %v", got, err)
	}
}
