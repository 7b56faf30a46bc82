package house

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// described matches the first word of a comment, and the name of the function, the method or the type below.
var described = regexp.MustCompile(`(?m)^// (\w+).*\n(?://.*\n)*(?:func (?:\([^)]*\) )?|type )(\w+)`)

// field matches the same of an exported field.
var field = regexp.MustCompile(`(?m)^\t+// (\w+).*\n(?:\t+//.*\n)*\t+([A-Z]\w*)\b`)

// TestACommentNamesWhatItDescribes finds comments that begin with a former name: "quiet suppresses" above Quiet, once private, or
// another name in camelCase.
func TestACommentNamesWhatItDescribes(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "git", "-C", filepath.Join("..", ".."), "ls-files", "*.go").Output()
	if err != nil {
		t.Skip("git does not list the files: ", err)
	}
	right := 0
	for path := range strings.FieldsSeq(string(out)) {
		text := read(t, path)
		for _, m := range append(described.FindAllStringSubmatch(text, -1), field.FindAllStringSubmatch(text, -1)...) {
			word, name := m[1], m[2]
			isName := m[0][0] == '/' && strings.ToLower(word[:1]) == word[:1] && strings.ToLower(word) != word
			if word == name {
				right++
			} else if isName || strings.EqualFold(word, name) {
				t.Errorf("%s: the comment of %s begins with %q", path, name, word)
			}
		}
	}
	if right < 5000 {
		t.Errorf("only %d comments begin with the name of what they describe", right)
	}
}
