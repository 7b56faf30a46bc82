package recording

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// fixedSegments are the words in the paths of the API.
var fixedSegments = sync.OnceValue(func() map[string]bool {
	all := map[string]bool{}
	for _, r := range routes() {
		for _, s := range r.segments {
			if !strings.HasPrefix(s, "{") {
				all[s] = true
			}
		}
	}
	return all
})

// longWord is the length of a word that is more likely a key than a word of the message.
const longWord = 40

var (
	quoted    = regexp.MustCompile(`'[^']*'|"[^"]*"|` + "`[^`]*`")
	word      = regexp.MustCompile(`\[[a-z]+( [0-9]+)?\]|[^\s'"` + "`" + `,;()\[\]{}<>]+`)
	anyNumber = regexp.MustCompile(`^#?[0-9]{4,18}$`)
	plainWord = regexp.MustCompile(`^([A-Za-z]+(-[a-z]+)*|IPv[46]|[0-9]{1,3}|[-–=/+*&]+|\[[a-z]+( [0-9]+)?\])$`)
)

// message replaces what is private in the message of an error: secrets and values that were replaced elsewhere, quoted texts that the
// API does not have, addresses, numbers that may be ids, and very long words. It rather replaces too much: messages are not compared.
func (r *Redactor) message(s string) string {
	for _, secret := range slices.SortedFunc(maps.Keys(r.secrets), func(a, b string) int { return len(b) - len(a) }) {
		if len(secret) >= 4 {
			s = strings.ReplaceAll(s, secret, markerSecret)
		}
	}
	// Those with a space are looked for as a whole: they are several words.
	for _, known := range r.longest() {
		if strings.ContainsAny(known, " \t\n,;()[]{}<>'\"`") {
			s = strings.ReplaceAll(s, known, r.texts[known])
		}
	}
	s = quoted.ReplaceAllStringFunc(s, func(part string) string {
		return part[:1] + r.quoted(part[1:len(part)-1]) + part[len(part)-1:]
	})
	made := map[string]bool{}
	for _, pseudonym := range r.texts {
		made[pseudonym] = true
	}
	return word.ReplaceAllStringFunc(s, func(part string) string {
		trimmed := strings.TrimRight(part, ".:!?")
		if made[trimmed] {
			return part
		}
		return r.word(trimmed) + part[len(trimmed):]
	})
}

// quoted returns what stands for a quoted text.
func (r *Redactor) quoted(s string) string {
	if id, ok := r.idIn(s); ok {
		return id
	}
	if s == "" || r.isWord(s) || isField(s) {
		return s
	}
	return r.text(s)
}

// isWord reports whether a text is a word of the API or of its catalogue.
func (r *Redactor) isWord(s string) bool { return allFields().words[s] || r.public[s] }

func (r *Redactor) word(s string) string {
	known, isKnown := r.texts[s]
	id, isID := r.idIn(s)
	switch {
	case isID:
		return id
	case r.isWord(s) && !anyNumber.MatchString(s):
		return s
	case isKnown:
		return known
	case anyNumber.MatchString(s):
		if n, _ := number(s); r.used[n] { // a pseudonym already
			return s
		}
		return markerNumber
	case strings.Contains(s, "@"):
		return r.text(s)
	case len(s) > longWord:
		return markerString
	case s == "" || plainWord.MatchString(s) || isField(s):
		return s
	}
	return r.text(s)
}

// idIn returns the pseudonym of a number in a message, if it is an id that was seen.
func (r *Redactor) idIn(s string) (string, bool) {
	id, ok := number(strings.TrimPrefix(s, "#"))
	if !ok || r.ids[id] == 0 {
		return "", false
	}
	return fmt.Sprint(r.ids[id]), true
}
