package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	fence   = regexp.MustCompile("(?ms)^ *(```|~~~).*?^ *(```|~~~)$")
	code    = regexp.MustCompile("`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)|<(?:a href|img [^>]*src)="([^"]+)"`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	notSlug = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// TestLinksOfPagesLeadSomewhere follows each link between files of the repository, also to a heading. It does not ask other hosts.
func TestLinksOfPagesLeadSomewhere(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard",
		"*.md").Output()
	if err != nil {
		t.Skip("git does not list the files: ", err)
	}
	checked := 0
	for page := range strings.FieldsSeq(string(out)) {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(text(t, page), ""), -1) {
			target := m[1] + m[2] + m[3]
			if strings.Contains(target, ":") {
				continue
			}
			checked++
			file, anchor, _ := strings.Cut(target, "#")
			path := page
			if file != "" {
				path = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s links %s: %v", page, target, err)
			} else if anchor != "" && !hasHeading(text(t, path), anchor) {
				t.Errorf("%s links %s, which has no such heading", page, target)
			}
		}
	}
	if checked < 100 {
		t.Errorf("%d links were checked, want at least 100", checked)
	}
}

// text returns a page without its blocks of code.
func text(t *testing.T, page string) string {
	t.Helper()
	return fence.ReplaceAllString(read(t, page), "")
}

// hasHeading reports whether a page has a heading with the anchor that GitHub makes of it.
func hasHeading(page, anchor string) bool {
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		slug := notSlug.ReplaceAllString(strings.ToLower(linked.ReplaceAllString(m[1], "$1")), "")
		if strings.ReplaceAll(strings.TrimSpace(slug), " ", "-") == anchor {
			return true
		}
	}
	return false
}
