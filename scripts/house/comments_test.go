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
		for _, m := range described.FindAllStringSubmatch(read(t, path), -1) {
			word, name := m[1], m[2]
			isName := strings.ToLower(word[:1]) == word[:1] && strings.ToLower(word) != word
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
