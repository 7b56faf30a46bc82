package dns

import (
	"strings"
	"testing"
)

func TestHostnames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"a": true, "a-b.c9": true, "A1": true, "1a": true, strings.Repeat("a", 63): true,
		"": false, "-a": false, "a-": false, "a..b": false, "a_b": false, "ä": false, ".": false,
		strings.Repeat("a", 64): false, strings.Repeat("a.", 127): false,
	} {
		if got := IsHostname(name); got != want {
			t.Errorf("%q: %t", name, got)
		}
	}
}
