package build

import (
	"bytes"
	"strings"
	"testing"
)

func TestProgressShowsWhatIsCompiledFromTheFirstLine(t *testing.T) {
	t.Setenv("PROGRESS_EVERY", "0")
	var out bytes.Buffer
	script := `echo result
echo "go: downloading example.com/a v1.0.0" >&2
printf 'example.com/a\nexample.com/a/b\n' >&2
echo "x.go:3:1: undefined: y" >&2
printf 'without an end' >&2
exit 3`
	printed, err := Run(t.Context(), &out, "../../scripts/progress.sh", "compiling x", "sh", "-c", script)
	if err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("the command's status is lost: %v", err)
	}
	if printed != "" {
		t.Errorf("a command that fails has printed %q", printed)
	}
	if first, _, _ := strings.Cut(out.String(), "\n"); !strings.Contains(first, "compiling x") || !strings.Contains(first, "Ctrl-C") {
		t.Errorf("the first line is %q", first)
	}
	for _, want := range []string{"2 packages compiled, 1 modules downloaded", "x.go:3:1: undefined: y", "without an end"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("there is no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "result") {
		t.Errorf("standard output is mixed with progress:\n%s", out.String())
	}
	printed, err = Run(t.Context(), nil, "../../scripts/progress.sh", "x", "echo", "result")
	if err != nil || printed != "result" {
		t.Errorf("%q, %v", printed, err)
	}
}

func TestTheCheckoutIsFound(t *testing.T) {
	t.Parallel()
	if root, err := Root(t.Context()); err != nil || root == "" {
		t.Errorf("%q, %v", root, err)
	}
}
