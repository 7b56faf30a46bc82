package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/dns"
)

// nameCharacters are those of label names and values in addition to letters and digits.
const nameCharacters = "-_."

// LabelProblem returns the first mistake in labels, by the rules of the API document's chapter Labels, or "".
func LabelProblem(labels map[string]string) string {
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if problem := labelKeyProblem(k); problem != "" {
			return fmt.Sprintf("label key %q %s", k, problem)
		}
		if !isLabelValue(labels[k]) {
			return "invalid label value" // terraform-provider-hcloud issue 521
		}
	}
	return ""
}

// labelKeyProblem returns the problem of a label's key, or "".
func labelKeyProblem(key string) string {
	prefix, name, prefixed := strings.Cut(key, "/")
	if !prefixed {
		name = key
	} else {
		switch {
		case prefix == "hetzner.cloud":
			return "has the reserved prefix hetzner.cloud/"
		case !dns.IsHostname(prefix): // also in upper case: terraform-provider-hcloud issue 1131
			return "has a prefix that is not a DNS subdomain"
		}
	}
	if !dns.IsLabel(name, nameCharacters) {
		return "must have a name of 1 to 63 letters, digits, '-', '_' or '.', that begins and ends with a letter or digit"
	}
	return ""
}

func isLabelValue(v string) bool { return v == "" || dns.IsLabel(v, nameCharacters) }

// Selector is a parsed label selector. The zero value matches everything.
type Selector struct {
	source       string
	requirements []requirement
}

type operator int

const (
	opExists operator = iota
	opMissing
	opIn
	opNotIn
)

type requirement struct {
	key    string
	op     operator
	values []string
}

// ParseSelector parses a label selector (API document, chapter Label Selector). The error names the
// problem and its place, as jenkinsci/hetzner-cloud-plugin issue 75 shows it.
func ParseSelector(s string) (Selector, error) {
	p := selectorParser{rest: s, source: s}
	sel := Selector{source: s}
	p.space()
	if p.rest == "" {
		return sel, nil
	}
	for {
		r, err := p.requirement()
		if err != nil {
			return Selector{}, err
		}
		sel.requirements = append(sel.requirements, r)
		p.space()
		if p.rest == "" {
			return sel, nil
		}
		if !p.take(",") {
			return Selector{}, p.failure("expected comma")
		}
	}
}

// String returns the selector as it was written.
func (s Selector) String() string { return s.source }

// Empty reports whether the selector matches everything.
func (s Selector) Empty() bool { return len(s.requirements) == 0 }

// Matches reports whether labels fulfil all requirements. Unlike in Kubernetes, != and notin need the key: a maintained
// client asserts so for RRSets, and no source says that other resources are different.
func (s Selector) Matches(labels map[string]string) bool {
	for _, r := range s.requirements {
		v, ok := labels[r.key]
		switch r.op {
		case opExists:
			if !ok {
				return false
			}
		case opMissing:
			if ok {
				return false
			}
		case opIn:
			if !ok || !slices.Contains(r.values, v) {
				return false
			}
		case opNotIn:
			if !ok || slices.Contains(r.values, v) {
				return false
			}
		}
	}
	return true
}

// Terms returns labels ("key=value") or a key, or "" for a selector that requires no label. All labels that match have at least
// one of the terms, see [LabelTerms].
func (s Selector) Terms() []string {
	for _, r := range s.requirements {
		switch r.op {
		case opIn:
			terms := make([]string, len(r.values))
			for i, v := range r.values {
				terms[i] = r.key + "=" + v
			}
			return terms
		case opExists:
			return []string{r.key}
		}
	}
	return []string{""}
}

// LabelTerms returns the terms of selectors that may match the labels.
func LabelTerms(labels map[string]string) []string {
	terms := make([]string, 1, 1+2*len(labels))
	for k, v := range labels {
		terms = append(terms, k, k+"="+v)
	}
	return terms
}

type selectorParser struct{ source, rest string }

func (p *selectorParser) failure(what string) error {
	return fmt.Errorf("%s at pos %d", what, len(p.source)-len(p.rest))
}

func (p *selectorParser) space() { p.rest = strings.TrimLeft(p.rest, " \t") }

func (p *selectorParser) take(token string) bool {
	p.space()
	rest, ok := strings.CutPrefix(p.rest, token)
	if ok {
		p.rest = rest
	}
	return ok
}

// word reads the longest run of characters that a key or value may have.
func (p *selectorParser) word() string {
	p.space()
	n := strings.IndexFunc(p.rest, func(r rune) bool {
		inWord := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./", r)
		return !inWord
	})
	if n < 0 {
		n = len(p.rest)
	}
	w := p.rest[:n]
	p.rest = p.rest[n:]
	return w
}

func (p *selectorParser) key() (string, error) {
	k := p.word()
	if k == "" {
		return "", p.failure("expected a label key")
	}
	// The reserved prefix is allowed in a selector, though not in a label.
	if problem := labelKeyProblem(k); problem != "" && !strings.HasPrefix(k, "hetzner.cloud/") {
		return "", fmt.Errorf("key %q %s", k, problem)
	}
	return k, nil
}

func (p *selectorParser) value() (string, error) {
	v := p.word()
	if !isLabelValue(v) {
		return "", fmt.Errorf("%q is not a label value", v)
	}
	return v, nil
}

func (p *selectorParser) requirement() (requirement, error) {
	if p.take("!") {
		k, err := p.key()
		return requirement{key: k, op: opMissing}, err
	}
	k, err := p.key()
	if err != nil {
		return requirement{}, err
	}
	for _, o := range []struct {
		token string
		op    operator
	}{{"==", opIn}, {"!=", opNotIn}, {"=", opIn}} {
		if p.take(o.token) {
			v, err := p.value()
			return requirement{key: k, op: o.op, values: []string{v}}, err
		}
	}
	p.space()
	if p.rest == "" || p.rest[0] == ',' {
		return requirement{key: k, op: opExists}, nil
	}
	switch w := p.word(); w {
	case "in":
		return p.set(requirement{key: k, op: opIn})
	case "notin":
		return p.set(requirement{key: k, op: opNotIn})
	default:
		return requirement{}, p.failure("expected =, ==, !=, in or notin")
	}
}

func (p *selectorParser) set(r requirement) (requirement, error) {
	if !p.take("(") {
		return r, p.failure("expected '('")
	}
	for {
		v, err := p.value()
		if err != nil {
			return r, err
		}
		r.values = append(r.values, v)
		switch {
		case p.take(","):
		case p.take(")"):
			return r, nil
		default:
			return r, p.failure("expected comma or ')'")
		}
	}
}
