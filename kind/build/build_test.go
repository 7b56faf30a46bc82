package build

import (
	"bytes"
	"strings"
	"testing"
)

// scripts/shell has the tests of the progress itself.
func TestProgressAndOutputOfACommandStayApart(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	const script = "../../scripts/progress.sh"
	printed, err := Run(t.Context(), &out, script, "compiling x", "sh", "-c", "echo result; echo a mistake >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || printed != "" {
		t.Errorf("%q, %v", printed, err)
	}
	if !strings.Contains(out.String(), "a mistake") || strings.Contains(out.String(), "result") {
		t.Errorf("progress: %s", out.String())
	}
	if printed, err = Run(t.Context(), nil, script, "x", "echo", "result"); err != nil || printed != "result" {
		t.Errorf("%q, %v", printed, err)
	}
}

func TestTheCheckoutIsFound(t *testing.T) {
	t.Parallel()
	if root, err := Root(t.Context()); err != nil || root == "" {
		t.Errorf("%q, %v", root, err)
	}
}
