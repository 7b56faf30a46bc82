package readme

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// python returns a Python with the packages that the pages use. Without one, the test is skipped, unless REQUIRE_PYTHON is set.
func python(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("PYTHON"), "python3", "/usr/bin/python3"} {
		if exec.CommandContext(t.Context(), name, "-c", "import hcloud, requests").Run() == nil {
			return name
		}
	}
	missing := t.Skip
	if os.Getenv("REQUIRE_PYTHON") != "" {
		missing = t.Fatal
	}
	missing("no Python has the packages hcloud and requests: PYTHON=$(scripts/python.sh)")
	return ""
}

// strict makes requests raise an error for each answer that is one. The pages do not look at the status.
const strict = `
import requests
_send = requests.Session.send
def send(*args, **options):
    answer = _send(*args, **options)
    answer.raise_for_status()
    return answer
requests.Session.send = send
`

// TestThePythonOfThePages runs the blocks that name it. Those of a page are one program, since later ones use names of earlier ones.
func TestThePythonOfThePages(t *testing.T) {
	program := python(t)
	pages, n := map[string]string{}, 0
	for _, b := range blocks(t) {
		if b.says == "run by TestThePythonOfThePages" {
			pages[b.page] += b.text
			n++
		}
	}
	if n < 3 {
		t.Errorf("only %d blocks are run", n)
	}
	for page, text := range pages {
		t.Run(filepath.Base(page), func(t *testing.T) {
			cloud := start(t)
			here := strings.NewReplacer("127.0.0.1:4243", cloud.control, "127.0.0.1:4242", cloud.address)
			cmd := exec.CommandContext(t.Context(), program, "-c", strict+here.Replace(text)+"\nprint('the end')\n")
			cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), cloud.env(t)...)
			out, err := cmd.CombinedOutput()
			if err != nil || string(out) != "the end\n" {
				t.Errorf("%s: %v: the program printed\n%s", page, err, out)
			}
		})
	}
}

// env returns the variables that the program's line exports.
func (r running) env(t *testing.T) []string {
	t.Helper()
	variables := strings.Fields(strings.TrimPrefix(r.export, "export "))
	if len(variables) < 2 {
		t.Fatalf("the program printed %q", r.export)
	}
	return variables
}
