package readme

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// block is a block of code of a page, and the text of the comment before it: <!-- run by TestX --> or <!-- not run: why -->.
type block struct {
	page, language, text, says string
	line                       int
}

var comment = regexp.MustCompile(`^<!-- (run by (Test|Example)\w*|not run: .+) -->$`)

// blocks returns the blocks of all pages of the repository that are in a language.
func blocks(t *testing.T) (all []block) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "-C", "../..", "ls-files", "*.md").Output()
	if err != nil {
		t.Fatal(err)
	}
	for page := range strings.FieldsSeq(string(out)) {
		text, err := os.ReadFile(filepath.Join("..", "..", page))
		if err != nil {
			t.Fatal(err)
		}
		before, open := "", false
		for i, line := range strings.Split(string(text), "\n") {
			fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
			switch last := len(all) - 1; {
			case isFence && open:
				open = false
			case isFence:
				open = true
				says := ""
				if found := comment.FindStringSubmatch(before); found != nil {
					says = found[1]
				}
				all = append(all, block{page: page, language: fence, says: says, line: i + 1})
			case open:
				all[last].text += line + "\n"
			}
			if line != "" {
				before = line
			}
		}
	}
	return all
}

// TestEachBlockIsRunOrSaysWhyNot shows that a command of a page is not forgotten when it stops to work.
func TestEachBlockIsRunOrSaysWhyNot(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "git", "-C", "../..", "grep", "-hoE", `^func (Test|Example)[A-Za-z0-9_]*\(`, "--", "*_test.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	tests := string(out)
	n := 0
	for _, b := range blocks(t) {
		if b.language == "" || b.language == "text" {
			continue
		}
		n++
		test, run := strings.CutPrefix(b.says, "run by ")
		switch {
		case b.says == "":
			t.Errorf("%s:%d: before the block, say <!-- run by TestX --> or <!-- not run: why -->", b.page, b.line)
		case run && !strings.Contains(tests, "func "+test+"("):
			t.Errorf("%s:%d: %s does not exist", b.page, b.line, test)
		}
	}
	if n < 20 {
		t.Errorf("only %d blocks were found", n)
	}
}

// TestTheCommandsOfThePages runs the blocks that name it. Each command must succeed.
func TestTheCommandsOfThePages(t *testing.T) {
	for _, program := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed, which the pages use", program)
		}
	}
	cloud := start(t)
	shell := newShell(t)
	shell.run(t, cloud.export)
	shell.run(t, "export FAKECLOUD_CONTROL="+cloud.control)
	// The pages talk of server 1000001.
	shell.run(t, `command curl -sS -H "Authorization: Bearer $HCLOUD_TOKEN" "$HCLOUD_ENDPOINT/servers" \
		-d '{"name": "web-1", "server_type": "cx23", "image": "debian-13"}'`)
	shell.run(t, "fakecloud() { '"+filepath.ToSlash(cloud.program)+`' "$@"; }`)
	// A stream of events does not end by itself.
	shell.run(t, `curl() { command curl -sS --fail-with-body --max-time 2 "$@" || [ $? = 28 ]; }`)
	here := strings.NewReplacer("127.0.0.1:4243", cloud.control, "127.0.0.1:4242", cloud.address)
	n := 0
	for _, b := range blocks(t) {
		if b.says != "run by TestTheCommandsOfThePages" {
			continue
		}
		n++
		commands := b.text
		if b.language == "console" {
			commands = ""
			for _, step := range steps(b.text) {
				commands += step.command
			}
		}
		got := shell.run(t, "( set -e\n"+here.Replace(commands)+"\n); echo \"status $?\"")
		if !strings.HasSuffix(got, "\nstatus 0\n") && got != "status 0\n" {
			t.Errorf("%s:%d: a command fails:\n%s", b.page, b.line, got)
		}
	}
	if n < 3 {
		t.Errorf("only %d blocks were run", n)
	}
}
