package guests

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// simple is a command of a line.
type simple struct {
	text  string // as it was written
	words []string
	end   string // the operator after it: ; && || or "" at the end
}

// assignment matches a word that sets a variable.
var assignment = regexp.MustCompile(`^([A-Za-z_][A-Za-z_0-9]*)=((?s:.*))$`)

// operators end a command. Those after the newline are refused.
var operators = []string{"&&", "||", ";", "\n", "|", "&", "<", ">", "(", ")"}

// lookup returns a function that looks variables up, of at most maxText bytes together: a line may name a long one many times.
func lookup(env map[string]string) func(string) string {
	left := maxText
	return func(name string) string {
		if left -= len(env[name]); left < 0 {
			return ""
		}
		return env[name]
	}
}

// parse reads the first command of a text, and returns the rest. It knows quotes, variables, comments, && || and ;. It has no pipes,
// redirections, subshells, substitution, patterns of file names, and words such as if and for; a variable is not split into words.
func parse(text string, env map[string]string) (c simple, rest string, err error) {
	var word strings.Builder
	within, quote := false, byte(0) // within a word; within a quote
	begun := 0                      // of what was not written yet
	variables := lookup(env)
	flush := func(to int) {
		word.WriteString(os.Expand(text[begun:to], variables))
		begun = to + 1
	}
	finish := func(to int) {
		if flush(to); within {
			c.words = append(c.words, word.String())
		}
		word.Reset()
		within = false
		c.text = strings.TrimSpace(text[:to])
	}
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case quote == '\'' && b == quote:
			word.WriteString(text[begun:i])
			begun, quote = i+1, 0
		case quote == '\'':
		case b == '\\' && i+1 < len(text):
			flush(i)
			if i++; quote != 0 && !strings.ContainsRune("\"\\$`\n", rune(text[i])) {
				word.WriteByte('\\')
			}
			word.WriteString(strings.TrimPrefix(text[i:i+1], "\n")) // a line goes on after a backslash
			within, begun = true, i+1
		case b == '`' || strings.HasPrefix(text[i:], "$("):
			return c, "", errors.New("it substitutes no commands")
		case b == '"' || b == '\'' && quote == 0:
			flush(i)
			within, quote = true, b-quote
		case quote != 0:
		case b == ' ' || b == '\t' || b == '\r':
			finish(i)
		case b == '#' && !within:
			finish(i)
			comment, _, _ := strings.Cut(text[i:], "\n")
			c.end = ";"
			return c, text[i+len(comment):], nil
		default:
			if at := slices.IndexFunc(operators, func(o string) bool { return strings.HasPrefix(text[i:], o) }); at > 3 {
				return c, "", fmt.Errorf("it has no %q", operators[at])
			} else if at >= 0 {
				finish(i)
				c.end = strings.Replace(operators[at], "\n", ";", 1)
				return c, text[i+len(operators[at]):], nil
			}
			within = true
		}
	}
	if quote != 0 {
		return c, "", errors.New("a quote is not closed")
	}
	finish(len(text))
	return c, "", nil
}
