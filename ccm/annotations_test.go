package ccm

import (
	"flag"
	"os"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

var update = flag.Bool("update", false, "rewrite ANNOTATIONS.md")

func TestAnnotationsReference(t *testing.T) {
	const file = "ANNOTATIONS.md"
	if *update {
		if err := os.WriteFile(file, []byte(plan.AnnotationsMarkdown()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != plan.AnnotationsMarkdown() {
		t.Error("ANNOTATIONS.md differs from the declarations; run this test with -update")
	}
}
