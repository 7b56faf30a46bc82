package store

import (
	"fmt"
	"strings"
	"testing"
)

func TestLabelSelectors(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"env": "prod", "tier": "", "example.com/role": "web-1"}
	for selector, want := range map[string]bool{
		"":                                     true,
		"env":                                  true,
		"!env":                                 false,
		"! missing":                            true,
		"env=prod":                             true,
		"env==prod":                            true,
		" env == prod ":                        true,
		"env=":                                 false,
		"tier=":                                true,
		"env!=prod":                            false,
		"env!=test":                            true,
		"missing!=x":                           false,
		"!missing,env!=test":                   true,
		"env in (prod)":                        true,
		"env in (test,prod)":                   true,
		"env in ( test , prod )":               true,
		"env in (test)":                        false,
		"missing in (a)":                       false,
		"env notin (test)":                     true,
		"env notin (test,prod)":                false,
		"missing notin (a,b)":                  false,
		"env=prod,!missing,example.com/role":   true,
		"env=prod,example.com/role in (web-2)": false,
		"hetzner.cloud/x":                      false,
	} {
		s, err := ParseSelector(selector)
		if err != nil {
			t.Errorf("%q: %v", selector, err)
			continue
		}
		if got := s.Matches(labels); got != want {
			t.Errorf("%q matches: %t, want %t", selector, got, want)
		}
	}
}

func TestErrorsOfLabelSelectorsNameTheProblem(t *testing.T) {
	t.Parallel()
	for _, selector := range []string{
		"=", ",", "a,", "a,,b", "a=b=c", "a in", "a in ()x", "a in (b", "a in b", "a notin", "a is b", "!", "!!a",
		"a=b c", "-a", "a-", "a/b/c", "/a", "a=-b", "ä", "a in (b,)x", strings.Repeat("a", 64), "a=" + strings.Repeat("b", 64),
	} {
		if s, err := ParseSelector(selector); err == nil {
			t.Errorf("%q: no error, parsed as %+v", selector, s)
		}
	}
}

func TestLabels(t *testing.T) {
	t.Parallel()
	ok := []map[string]string{
		nil, {}, {"a": ""}, {"a": "b"}, {"example.com/my": "label"}, {"a.b-c_d": "A.b-C_9"},
		{strings.Repeat("a", 63): strings.Repeat("b", 63)}, {"nothetzner.cloud/a": "b"}, {"EXAMPLE.com/a": "b"},
	}
	bad := []map[string]string{
		{"": "a"}, {"-a": "b"}, {"a-": "b"}, {"a": "-b"}, {"a": "b c"}, {"hetzner.cloud/a": "b"},
		{"a/b/c": "d"}, {"/a": "b"}, {"a/": "b"}, {"my_prefix/a": "b"}, {strings.Repeat("a", 64): ""},
		{"a": strings.Repeat("b", 64)}, {strings.Repeat("a.", 127) + "aa/b": "c"},
	}
	for _, l := range ok {
		if problem := LabelProblem(l); problem != "" {
			t.Errorf("%v: %q", l, problem)
		}
	}
	for _, l := range bad {
		if LabelProblem(l) == "" {
			t.Errorf("%v: no problem", l)
		}
	}
}

func TestSelectorsAreIndexedByARequiredLabel(t *testing.T) {
	t.Parallel()
	for selector, want := range map[string][]string{
		"a=1":          {"a=1"},
		"a in (1,2),b": {"a=1", "a=2"},
		"b":            {"b"},
		"!b,a":         {"a"},
		"a!=1":         {""},
		"!a":           {""},
	} {
		s, err := ParseSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Terms(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s is indexed by %q, want %q", selector, got, want)
		}
	}
}

func FuzzParseSelector(f *testing.F) {
	for _, s := range []string{"a=b", "a in (b,c)", "!a", "a!=b,c notin (d)", "((", ",,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		sel, err := ParseSelector(s)
		if err != nil {
			return
		}
		sel.Matches(map[string]string{"a": "b"})
		if sel.String() != s {
			t.Errorf("%q became %q", s, sel)
		}
	})
}
