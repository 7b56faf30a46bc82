package contract

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Rule is a row of the table of behaviour: one sentence of the document, in our own words, and what guards it. A sentence that
// clients deny has no test, but a reason that names their assertion (see [Assertion]): otherwise, the table would keep an error of
// the document.
type Rule struct {
	Topic     string // the name of the file: servers
	Operation string // operationId
	ID        string // see [Sentence]
	Says      string
	// Guard names tests, or is a reason that begins with one of [Reasons]. "clients deny it: " is followed by the words of the
	// assertion.
	Guard string
}

// TopicFields has the rules about fields of requests. It has only those that state behaviour that the descriptions of the
// operations do not state.
const TopicFields = "fields"

// Reasons are the beginnings of a guard that names no test.
var Reasons = []string{"no behaviour: ", "left out: ", "not tested: ", "clients deny it: "}

// Tests returns the names of the tests that guard a rule: "TestName", or "TestName/case".
func (r Rule) Tests() []string {
	if r.Reason() != "" {
		return nil
	}
	return strings.Split(r.Guard, " + ")
}

// Reason returns the beginning of the reason why no test guards a rule, or "".
func (r Rule) Reason() string {
	i := slices.IndexFunc(Reasons, func(reason string) bool { return strings.HasPrefix(r.Guard, reason) })
	if i < 0 {
		return ""
	}
	return Reasons[i]
}

// ReadRules reads the table of behaviour: the files of a folder, one for each topic. A line has the operation, the id, our
// words and the guard, separated by tabs.
func ReadRules(folder string) ([]Rule, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.tsv"))
	if err != nil {
		return nil, err
	}
	var rules []Rule
	for _, path := range files {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		topic := strings.TrimSuffix(filepath.Base(path), ".tsv")
		read, err := readTopic(file, topic)
		if err := file.Close(); err != nil {
			return nil, err
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		rules = append(rules, read...)
	}
	return rules, nil
}

func readTopic(file io.Reader, topic string) ([]Rule, error) {
	var rules []Rule
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		cells := strings.Split(lines.Text(), "\t")
		if len(cells) != 4 || slices.Contains(cells, "") {
			return nil, fmt.Errorf("want operation, id, words and guard, separated by tabs: %q", lines.Text())
		}
		rules = append(rules, Rule{topic, cells[0], cells[1], cells[2], cells[3]})
	}
	return rules, lines.Err()
}

// sourceOf is where the links of the page lead: it is read outside of the repository, as a file of a release.
const sourceOf = "https://github.com/ccm-from-scratch/ccm-from-scratch/blob/main/fakecloud/"

// WriteBehaviour writes the page of behaviour in Markdown. file returns the file of a test, relative to the root of the module.
func WriteBehaviour(w io.Writer, rules []Rule, assertions []Assertion, file func(test string) string) error {
	var page strings.Builder
	counts := make(map[string]int)
	for _, rule := range rules {
		if rule.Topic == TopicFields {
			counts[TopicFields]++
		} else {
			counts[rule.Reason()]++
		}
	}
	fmt.Fprintf(&page, "# What clients and the API document say, and which test guards it\n\n"+
		"Maintained clients assert, read or wait for %d things that the first two chapters list. They outrank the document.\n\n"+
		"The descriptions of the operations in the official document have %d sentences, entries of lists and rows of tables.\n"+
		"Tests guard %d of them, %d state no behaviour, %d are left out of the simulation, %d are denied by clients,\n"+
		"and %d are not tested.\n"+
		"What %d sentences about single fields of requests say is in the chapter Fields. The words are ours.\n\n"+
		"`make behaviour` writes this page from [the table]("+sourceOf+"internal/contract/testdata/behaviour) and the\n"+
		"[list of assertions]("+sourceOf+"internal/contract/testdata/clients.tsv). A test fails if the document has a sentence that the "+
		"table lacks,\n"+
		"or if a test of the table or the list does not exist.\n",
		len(assertions), len(rules)-counts[TopicFields],
		counts[""], counts[Reasons[0]], counts[Reasons[1]], counts[Reasons[3]], counts[Reasons[2]], counts[TopicFields])
	writeAssertions(&page, assertions, file)
	topic := ""
	for _, rule := range rules {
		if rule.Topic != topic {
			topic = rule.Topic
			fmt.Fprintf(&page, "\n## %s\n\n| Operation | What the document says | Guard |\n| --- | --- | --- |\n", heading(topic))
		}
		fmt.Fprintf(&page, "| `%s` | %s | %s |\n", rule.Operation, rule.Says, rule.guardCell(file))
	}
	_, err := io.WriteString(w, page.String())
	return err
}

func heading(topic string) string {
	return strings.ToUpper(topic[:1]) + strings.ReplaceAll(topic[1:], "_", " ")
}

func (r Rule) guardCell(file func(test string) string) string {
	var links []string
	for _, test := range r.Tests() {
		name, part, _ := strings.Cut(test, "/")
		link := fmt.Sprintf("[%s](%s)", name, sourceOf+file(name))
		if part != "" {
			link += ": " + part
		}
		links = append(links, link)
	}
	if links == nil {
		return r.Guard
	}
	return strings.Join(links, ", ")
}
