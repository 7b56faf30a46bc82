package main

import (
	"io"
	"strings"
	"testing"
	"time"
)

func TestSummary(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in   string
		want []string
		ok   bool
	}{
		"all well": {
			`{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Elapsed":1.25}`,
			[]string{"ok    1.3s", "x: 1 passed, 0 failed, 0 skipped"}, true,
		},
		"a failure is shown": {
			`{"Action":"output","Package":"p","Test":"TestA","Output":"    boom\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p"}`,
			[]string{"    boom\n", "FAIL", "x: 0 passed, 1 failed, 0 skipped"}, false,
		},
		"a skip says why": {
			`{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:1: needs root\n"}
{"Action":"skip","Package":"p","Test":"TestA"}`,
			[]string{"skipped:\n  p TestA: a_test.go:1: needs root\n", "x: 1 passed, 0 failed, 1 skipped"}, true,
		},
		"a build that fails": {
			`{"Action":"build-output","ImportPath":"p","Output":"undefined: x\n"}
{"Action":"build-fail","ImportPath":"p"}
{"Action":"pass","Package":"q","Test":"TestA"}`,
			[]string{"undefined: x\n"}, false,
		},
		"a panic outside of tests": {
			`{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"panic: boom\n"}
{"Action":"fail","Package":"p"}`,
			[]string{"panic: boom\n"}, false,
		},
		"a panic while a test runs, which then never ends": {
			`{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"panic: boom\n"}
{"Action":"output","Package":"q","Test":"TestB","Output":"of another\n"}
{"Action":"fail","Package":"p"}`,
			[]string{"panic: boom\nFAIL"}, false,
		},
		"nothing": {``, []string{"x: 0 passed, 0 failed, 0 skipped"}, false},
		"no JSON": {"go: something\n", []string{"go: something\n"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			s := &summary{out: &out, output: map[test][]string{}}
			if err := s.read(strings.NewReader(tc.in), nil); err != nil {
				t.Fatal(err)
			}
			if ok := s.finish("x"); ok != tc.ok {
				t.Errorf("well: %t", ok)
			}
			for _, w := range tc.want {
				if !strings.Contains(out.String(), w) {
					t.Errorf("%q is not in\n%s", w, out.String())
				}
			}
		})
	}
}

func TestAPersonIsToldThatItWorks(t *testing.T) {
	t.Parallel()
	in, feed := io.Pipe()
	tick := make(chan time.Time)
	var out strings.Builder
	s := &summary{out: &out, output: map[test][]string{}}
	done := make(chan error, 1)
	go func() { done <- s.read(in, tick) }()
	tick <- time.Time{}
	_, _ = io.WriteString(feed, `{"Action":"pass","Package":"p"}`+"\n")
	_, _ = io.WriteString(feed, "\n") // returns when the line before it was taken
	tick <- time.Time{}
	_ = feed.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"so far: 0 packages have ended", "so far: 1 packages have ended"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
