package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// Sentence is one sentence of an operation's description: a sentence of its text, an entry of a list, or a row of a table.
type Sentence struct {
	Operation string // operationId
	// ID is short and changes with the text.
	ID   string
	Text string // without links and stars
}

// Sentences returns the sentences of all descriptions, in the order of the operations.
func (d *Document) Sentences() []Sentence {
	var all []Sentence
	for _, op := range d.operations {
		for _, text := range split(op.Description) {
			all = append(all, Sentence{Operation: op.ID, ID: sentenceID(text), Text: text})
		}
	}
	return all
}

// FieldSentences returns the sentences about the fields of the requests, each once for an operation.
func (d *Document) FieldSentences() []Sentence {
	var all []Sentence
	for _, op := range d.operations {
		if op.request == nil {
			continue
		}
		seen := make(map[string]bool)
		visit(op.request, func(schema Schema) {
			description, _ := schema["description"].(string)
			for _, text := range split(description) {
				if !seen[text] {
					all = append(all, Sentence{Operation: op.ID, ID: sentenceID(text), Text: text})
				}
				seen[text] = true
			}
		})
	}
	return all
}

func sentenceID(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:4])
}

var (
	markdownLink  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	listEntry     = regexp.MustCompile(`^\s*[-*] `)
	endOfSentence = regexp.MustCompile("([.!?]\\)? )[A-Z`“]")
	abbreviation  = regexp.MustCompile(`\b(e\.g|i\.e)\.$`)
)

// split returns the sentences of a Markdown text. It leaves out headings, the heads of tables and code blocks.
func split(markdown string) []string {
	var sentences, paragraph []string
	flush := func() {
		sentences = append(sentences, splitParagraph(strings.Join(paragraph, " "))...)
		paragraph = nil
	}
	lines := strings.Split(markdown, "\n")
	for i, line := range lines {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
			flush()
		case strings.HasPrefix(line, "|"):
			flush()
			if !isRule(line) && (i+1 == len(lines) || !isRule(lines[i+1])) {
				sentences = append(sentences, plain(line))
			}
		case listEntry.MatchString(line):
			flush()
			paragraph = append(paragraph, listEntry.ReplaceAllString(line, ""))
		default:
			paragraph = append(paragraph, line)
		}
	}
	flush()
	return sentences
}

// isRule reports whether a line of a table is the one below its head.
func isRule(line string) bool {
	line = strings.TrimSpace(line)
	return strings.HasPrefix(line, "|") && strings.Trim(line, "|-: ") == ""
}

func splitParagraph(text string) []string {
	var sentences []string
	text = plain(text)
	for start := 0; text != ""; {
		place := endOfSentence.FindStringSubmatchIndex(text[start:])
		if place == nil {
			return append(sentences, text)
		}
		end := start + place[3] // the next sentence begins here
		if abbreviation.MatchString(strings.TrimSpace(text[:end])) {
			start = end
			continue
		}
		sentences = append(sentences, strings.TrimSpace(text[:end]))
		text, start = text[end:], 0
	}
	return sentences
}

// plain removes links, stars and repeated spaces.
func plain(text string) string {
	text = markdownLink.ReplaceAllString(text, "$1")
	return strings.Join(strings.Fields(strings.ReplaceAll(text, "**", "")), " ")
}
