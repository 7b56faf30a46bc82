package plan

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite ANNOTATIONS.md")

func TestAnnotationsReference(t *testing.T) {
	t.Parallel()
	file := filepath.Join("..", "..", "ANNOTATIONS.md")
	if *update {
		if err := os.WriteFile(file, []byte(annotationsMarkdown()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != annotationsMarkdown() {
		t.Errorf("ANNOTATIONS.md differs from the declarations (%v): run this test with -update", err)
	}
}

// annotationsMarkdown returns the text of ANNOTATIONS.md.
func annotationsMarkdown() string {
	var b strings.Builder
	b.WriteString("# Service annotations\n\n" +
		"Generated from `annotations.go`; run `go test ./ccm/internal/plan -run TestAnnotationsReference -update` after a change.\n\n" +
		"All names start with `" + AnnotationPrefix + "`. The settings apply to all ports of the Service. Those with\n" +
		"\"yes\" in the column *per port* can also be set for one port, by its number: `protocol.443` is the protocol of port 443,\n" +
		"and `protocol` that of all ports without such an annotation. A port with settings of its own has the general ones\n" +
		"for everything else. A setting for a port that the Service does not have causes a Warning event.\n\n" +
		"Booleans have the format of Go's `strconv.ParseBool`, durations that of `time.ParseDuration`. An\n" +
		"environment variable, where there is one, sets the default for all Services.\n\n" +
		"An invalid value causes a Warning event on the Service. No load balancer is created until it is\n" +
		"corrected. An existing load balancer keeps what it has for this setting, and follows the Service and\n" +
		"the nodes in all others.\n\n" +
		"| annotation | allowed | default | environment | per port | meaning |\n|---|---|---|---|---|---|\n")
	for _, a := range Annotations {
		doc := a.Doc
		if a.NeedsNetwork {
			doc += " Needs `HCLOUD_NETWORK`."
		}
		perPort := ""
		if a.perPort() {
			perPort = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", a.Name, a.Allowed, code(a.Default), code(a.Env), perPort, doc)
	}
	return b.String()
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}
