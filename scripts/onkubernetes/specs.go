package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// suite is the package of the specs. Ginkgo runs testFile in its folder, and specs read files of the checkout from there.
const (
	suite    = "./e2e/hetzner/specs"
	testFile = source + "/e2e/hetzner/specs/specs.test"
)

// e2e are the specs on embedded control planes.
type e2e struct {
	shards, procs int
	labels, focus string
}

func (e2e) name() string  { return "e2e" }
func (e e2e) pieces() int { return e.shards }

func (e e2e) settings() map[string]string {
	return map[string]string{"SHARDS": strconv.Itoa(e.shards), "PROCS": strconv.Itoa(e.procs), "LABELS": e.labels, "FOCUS": e.focus}
}

func (e e2e) shard(piece int) string { return fmt.Sprintf("%d/%d", piece+1, e.shards) }

func (e e2e) alone(piece int) string {
	text := "make e2e E2E_CLUSTER=embedded SHARD=" + e.shard(piece)
	if e.labels != "" {
		text += fmt.Sprintf(" LABELS='%s'", e.labels)
	}
	if e.focus != "" {
		text += fmt.Sprintf(" FOCUS='%s'", e.focus)
	}
	return text
}

// compiler stands in for go in the image, which has none: it gives what the specs compile, such as fakecloud.
const compiler = `#!/bin/sh
[ "$1 $2" = "build -o" ] && cp ` + programs + `/"${4##*/}" "$3"
`

func (e2e) fill(ctx context.Context, l *layer) {
	folder, err := exec.CommandContext(ctx, "scripts/gorun.sh", "kind/nodeimage", "kubernetes").Output()
	if err != nil {
		l.err = fmt.Errorf("the control plane's programs: %w: see make kubernetes", err)
		return
	}
	for _, program := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kubectl"} {
		l.copy(filepath.Join(strings.TrimSpace(string(folder)), program), programs+"/"+program)
	}
	for _, program := range []string{"./ccm/cmd/ccm-from-scratch", "./ccm/cmd/machine-controller", "./fakecloud/cmd/fakecloud",
		"github.com/onsi/ginkgo/v2/ginkgo"} {
		l.compile(ctx, programs+"/"+filepath.Base(program), "build", "-v", program)
	}
	l.compile(ctx, testFile, "test", "-v", "-c", suite)
	l.checkout(ctx)
	l.tools(ctx, "sh", "cat", "cp", "rm", "sleep")
	l.write("/bin/go", []byte(compiler), 0o755)
}

func (e e2e) do(ctx context.Context, piece int) (r result, err error) {
	out := filepath.Join(os.TempDir(), "out")
	if err := anew(out); err != nil {
		return r, err
	}
	filter := "!real-nodes && !hour"
	if e.labels != "" {
		filter += " && (" + e.labels + ")"
	}
	cmd := exec.CommandContext(ctx, programs+"/ginkgo", "run", "--no-color", "--silence-skips", "--procs="+strconv.Itoa(e.procs),
		"--randomize-all", "--poll-progress-after=3m", "--timeout=40m", "--label-filter="+filter, "--focus="+e.focus,
		"--json-report=report.json", "--output-dir="+out, "--keep-going", testFile)
	cmd.Env = append(os.Environ(), "E2E_CLUSTER=embedded", "E2E_OUT="+out, "SHARD="+e.shard(piece), "KUBEBUILDER_ASSETS="+programs,
		"E2E_CCM="+programs+"/ccm-from-scratch", "E2E_MACHINE_CONTROLLER="+programs+"/machine-controller")
	log, err := os.Create(filepath.Join(out, "ginkgo.log"))
	if err != nil {
		return r, err
	}
	defer func() { _ = log.Close() }()
	cmd.Stdout, cmd.Stderr = log, log
	ran := cmd.Run()
	r.Files = map[string][]byte{}
	for _, name := range []string{"specs.json", "report.json"} {
		if r.Files[name], err = os.ReadFile(filepath.Join(out, name)); err != nil {
			text, _ := os.ReadFile(log.Name())
			return r, fmt.Errorf("the specs have no result: %w\n%s", errors.Join(ran, err), text)
		}
	}
	_, err = os.Stat(filepath.Join(out, "failures.txt")) // without that, what fails are known gaps
	r.Failed = err == nil
	return r, nil
}

func (e e2e) merge(ctx context.Context, results map[int]result, w io.Writer) error {
	out := filepath.Join("out", "e2e-embedded")
	if err := anew(out); err != nil {
		return err
	}
	args := []string{"merge", out}
	for _, piece := range slices.Sorted(maps.Keys(results)) {
		folder := fmt.Sprintf("%s-%d-of-%d", out, piece+1, e.shards)
		if err := anew(folder); err != nil {
			return err
		}
		for name, text := range results[piece].Files {
			if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
				return err
			}
		}
		args = append(args, folder)
	}
	if len(results) == 0 {
		return nil // the runner says that it has none
	}
	if err := os.WriteFile(filepath.Join(out, ".made-by-e2e"), nil, 0o644); err != nil { // so that scripts/e2e.sh replaces it
		return err
	}
	for _, args := range [][]string{args, {"report", "out"}} {
		cmd := exec.CommandContext(ctx, "go", append([]string{"run", "./e2e/cmd/e2e"}, args...)...)
		cmd.Stdout, cmd.Stderr, cmd.Env = w, w, append(os.Environ(), "CCM=e2e/ccms/ccm-from-scratch.yaml")
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("merging the reports: %w", err)
		}
	}
	for _, name := range []string{"failures.txt", "known-gaps.txt", "specs.md"} {
		text, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			continue // it had nothing to say
		}
		line := string(text)
		if name == "specs.md" {
			line, _, _ = strings.Cut(strings.TrimPrefix(line, "# "), "\n")
			line += "\n"
		}
		_, _ = io.WriteString(w, line)
	}
	return nil
}
