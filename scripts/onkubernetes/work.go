package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// work is divided into pieces that do not depend on each other.
type work struct {
	name   string
	pieces int
	env    map[string]string // from which a pod makes the same work
	// alone returns the command that does a piece on this machine.
	alone func(piece int) string
	// programs returns those that a pod runs for a piece. report is the file that they must leave; without it, their output is the result.
	// mayFail says that a failure of one is a result; otherwise, the piece is tried again.
	programs func(piece int) [][]string
	report   string
	mayFail  bool
	// fill puts into the image what a piece needs.
	fill func(context.Context, *files)
	// merge writes the results of all pieces into the folder out, and sums them up in a few lines.
	merge func(context.Context, map[int]result, io.Writer) error
}

const (
	// seedsOfAPiece take six minutes of a processor: far longer than a pod takes to start, and short enough to be done again.
	seedsOfAPiece = 500
	mostPieces    = 10_000
	// description is the file of the image that describes the CCM.
	description = programs + "/ccm.yaml"
	ourCCM      = "e2e/ccms/ccm-from-scratch.yaml"
)

// newWork returns the work of a name, by environment variables.
func newWork(name string, getenv func(string) string) (work, error) {
	var errs []error
	w := work{name: name, env: map[string]string{}}
	text := func(key string) string {
		w.env[key] = getenv(key)
		return w.env[key]
	}
	number := func(key string, least, most, otherwise int) int {
		n, err := strconv.Atoi(cmp.Or(getenv(key), strconv.Itoa(otherwise)))
		if err != nil || n < least || n > most {
			errs = append(errs, fmt.Errorf("%s=%s: must be a number from %d to %d", key, getenv(key), least, most))
		}
		w.env[key] = strconv.Itoa(n)
		return n
	}
	shards := func(otherwise, most int) int { return number("SHARDS", 1, most, otherwise) }
	switch name {
	case "sim":
		seeds := number("SEEDS", 1, 1e12, 1000)
		w.sim(number("FIRST", 1, 1e12, 1), seeds, shards(min(mostPieces, (seeds+seedsOfAPiece-1)/seedsOfAPiece), min(mostPieces, seeds)))
	case "e2e":
		if c := getenv("E2E_CLUSTER"); c != "" && c != "embedded" {
			errs = append(errs, fmt.Errorf("E2E_CLUSTER=%s: only embedded runs in pods", c))
		}
		w.e2e(shards(10, mostPieces), number("PROCS", 1, 16, 4), text("LABELS"), text("FOCUS"), getenv("CCM"))
	case "mutate":
		w.mutate(shards(20, mostPieces), number("SAMPLE", 0, 1e6, 0), number("SEED", 1, 1e12, 1), number("LEAST", 0, 100, 0))
	default:
		errs = append(errs, fmt.Errorf("%s: must be one of sim, e2e, mutate", name))
	}
	return w, errors.Join(errs...)
}

// do does a piece, in a pod. An error means that it has no result.
func (w work) do(ctx context.Context, piece int) (r result, err error) {
	r.Files = map[string][]byte{}
	if err := anew(results); err != nil {
		return r, err
	}
	for _, args := range w.programs(piece) {
		var out bytes.Buffer
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "SHARD="+w.shard(piece))
		cmd.Stdout = io.MultiWriter(&out, os.Stdout)
		cmd.Stderr = cmd.Stdout
		if err := cmd.Run(); err != nil {
			if exit, ok := errors.AsType[*exec.ExitError](err); !w.mayFail || !ok || !exit.Exited() {
				return r, fmt.Errorf("%s: %w", args[0], err)
			}
			r.Failed = true
		}
		r.Files[path.Base(args[0])+".txt"] = out.Bytes()
	}
	if w.report != "" {
		var run struct {
			Incomplete string
			Specs      []struct{ Result string }
		}
		text, err := os.ReadFile(results + "/" + w.report)
		if err = errors.Join(err, json.Unmarshal(text, &run)); err != nil {
			return r, fmt.Errorf("the specs have no result: %w", err)
		}
		r = result{Failed: run.Incomplete != "", Files: map[string][]byte{}}
		for _, spec := range run.Specs { // a known gap is none
			r.Failed = r.Failed || spec.Result == "failed"
		}
	}
	written, _ := filepath.Glob(results + "/*.json") // the pattern is right
	for _, file := range written {
		text, failed := os.ReadFile(file)
		r.Files[filepath.Base(file)], err = text, errors.Join(err, failed)
	}
	return r, errors.Join(err, ctx.Err())
}

// shard returns the number of a piece from 1, and that of all.
func (w work) shard(piece int) string { return fmt.Sprintf("%d/%d", piece+1, w.pieces) }

// sim is the simulation of the CCM and of the machine controller.
func (w *work) sim(first, seeds, shards int) {
	begin := func(piece int) int { return first + seeds*piece/shards }
	w.pieces, w.mayFail = shards, true
	w.alone = func(piece int) string {
		return fmt.Sprintf("make sim FIRST=%d SEEDS=%d", begin(piece), begin(piece+1)-begin(piece))
	}
	w.programs = func(piece int) (all [][]string) {
		tests := "^TestSim$"
		if piece == 0 {
			tests = "^(TestSim|TestRegressions)$"
		}
		for _, program := range []string{"ccm-sim", "machine-sim"} {
			all = append(all, []string{programs + "/" + program, "-test.run", tests, "-test.timeout", "0",
				"-first", strconv.Itoa(begin(piece)), "-seeds", strconv.Itoa(begin(piece+1) - begin(piece))})
		}
		return all
	}
	w.fill = func(ctx context.Context, f *files) {
		overlay, err := exec.CommandContext(ctx, "scripts/sim-runtime.sh").Output()
		f.err = errors.Join(f.err, err)
		f.compile(ctx, "ccm-sim", "test", "-v", "-overlay", strings.TrimSpace(string(overlay)), "-tags", "sim", "-c",
			"./ccm/internal/proof/sim")
		f.compile(ctx, "machine-sim", "test", "-v", "-c", "./ccm/machine/controller")
	}
	w.merge = func(_ context.Context, results map[int]result, out io.Writer) error {
		const folder = "out/sim-kubernetes"
		err := anew(folder)
		for piece, r := range results {
			for name, text := range r.Files {
				if r.Failed { // to read its histories
					err = errors.Join(err, os.WriteFile(fmt.Sprintf("%s/%d-%s", folder, piece, name), text, 0o644))
				}
			}
		}
		total := regexp.MustCompile(`(?m)^sim: (\d+) of \d+ seeds have run, (\d+) failed, (\d+) requests, (\d+) of them writes`)
		found, n := gather(results, ": seed ", total)
		fmt.Fprintf(out, "%ssim: %d of %d seeds have run, %d failed, %d requests, %d of them writes\n",
			found, n[0], seeds, n[1], n[2], n[3])
		return err
	}
}

// mutate is the mutants of the CCM (scripts/mutate).
func (w *work) mutate(shards, sample, seed, least int) {
	drawn := []string{"-package", "ccm", "-sample", strconv.Itoa(sample), "-seed", strconv.Itoa(seed)}
	const mutants = programs + "/mutants"
	w.pieces = shards
	w.alone = func(piece int) string {
		return fmt.Sprintf("go run ./scripts/mutate %s -piece %s", strings.Join(drawn, " "), w.shard(piece))
	}
	w.programs = func(piece int) [][]string {
		return [][]string{{programs + "/mutate", "-package", "ccm", "-prepared", mutants, "-piece", w.shard(piece),
			"-jobs", strconv.Itoa(runtime.GOMAXPROCS(0))}}
	}
	w.fill = func(ctx context.Context, f *files) {
		f.compile(ctx, "mutate", "build", "-v", "./scripts/mutate")
		folder := filepath.Join(f.root, mutants)
		f.err = errors.Join(f.err, os.MkdirAll(folder, 0o755))
		f.run(ctx, append([]string{"scripts/progress.sh", "compiling the mutants, and running each test once",
			"go", "run", "./scripts/mutate", "-jobs", strconv.Itoa(runtime.NumCPU()), "-prepare", folder}, drawn...)...)
	}
	w.merge = func(_ context.Context, results map[int]result, out io.Writer) error {
		found, n := gather(results, "survives: ", regexp.MustCompile(`(?m)^(\d+) mutants, (\d+) survive:`))
		score := 100 * float64(n[0]-n[1]) / float64(max(1, n[0]))
		fmt.Fprintf(out, "%s%d mutants, %d survive: the tests notice %.1f %%\n", found, n[0], n[1], score)
		err := errors.Join(anew("out/mutate-kubernetes"), os.WriteFile("out/mutate-kubernetes/survivors.txt", []byte(found), 0o644))
		if score < float64(least) {
			err = errors.Join(err, fmt.Errorf("LEAST=%d: the tests notice %.1f %%: write tests for the mutants that survive", least, score))
		}
		return err
	}
}

// gather returns the lines of all results that contain the text, in order, and the sums of the numbers that the last match of the pattern
// in each file has.
func gather(results map[int]result, text string, total *regexp.Regexp) (found string, sums []int) {
	var lines []string
	sums = make([]int, total.NumSubexp())
	for _, r := range results {
		for _, content := range r.Files {
			for line := range strings.Lines(string(content)) {
				if strings.Contains(line, text) {
					lines = append(lines, strings.TrimSpace(line)+"\n")
				}
			}
			if all := total.FindAllStringSubmatch(string(content), -1); len(all) > 0 {
				for i, number := range all[len(all)-1][1:] {
					n, _ := strconv.Atoi(number)
					sums[i] += n
				}
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, ""), sums
}

// anew makes a folder, without what was in it.
func anew(folder string) error { return errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o755)) }

// e2e are the specs on embedded control planes, with the CCM that a file describes.
func (w *work) e2e(shards, procs int, labels, focus, ccm string) {
	w.pieces, w.report, w.mayFail = shards, "specs.json", true
	w.alone = func(piece int) string {
		var text strings.Builder
		text.WriteString("make e2e E2E_CLUSTER=embedded SHARD=" + w.shard(piece))
		for _, s := range [][2]string{{"LABELS", labels}, {"FOCUS", focus}, {"CCM", ccm}} {
			if s[1] != "" {
				fmt.Fprintf(&text, " %s='%s'", s[0], s[1])
			}
		}
		return text.String()
	}
	w.programs = func(piece int) [][]string {
		filter := "!real-nodes && !hour"
		if labels != "" {
			filter += " && (" + labels + ")"
		}
		return [][]string{{programs + "/ginkgo", "run", "--no-color", "--silence-skips", "--procs=" + strconv.Itoa(procs),
			"--randomize-all", "--poll-progress-after=3m", "--timeout=40m", "--label-filter=" + filter, "--focus=" + focus,
			"--keep-going", source + "/e2e/hetzner/specs/specs.test"}}
	}
	w.fill = func(ctx context.Context, f *files) { fillE2E(ctx, f, cmp.Or(ccm, ourCCM)) }
	w.merge = func(ctx context.Context, results map[int]result, out io.Writer) error {
		return mergeE2E(ctx, results, shards, out)
	}
}

// compiler stands in for go in the image, which has none: it gives the programs that the specs compile, such as fakecloud.
const compiler = `#!/bin/sh
[ "$1 $2" = "build -o" ] && cp ` + programs + `/"${4##*/}" "$3"
`

func fillE2E(ctx context.Context, f *files, ccm string) {
	folder, err := exec.CommandContext(ctx, "scripts/gorun.sh", "kind/nodeimage", "kubernetes").Output()
	f.err = errors.Join(f.err, err)
	f.run(ctx, "cp", "-R", strings.TrimSpace(string(folder))+"/.", filepath.Join(f.root, programs)) // a link stays one
	for _, program := range []string{"./ccm/cmd/machine-controller", "./fakecloud/cmd/fakecloud", "github.com/onsi/ginkgo/v2/ginkgo"} {
		f.compile(ctx, path.Base(program), "build", "-v", program)
	}
	// Ginkgo runs the suite in its folder, and specs read files of the checkout from there.
	f.compile(ctx, "../source/e2e/hetzner/specs/specs.test", "test", "-v", "-c", "./e2e/hetzner/specs")
	f.tools(ctx, "sh", "cat", "cp", "rm", "sleep")
	f.write("/bin/go", []byte(compiler))
	f.describe(ctx, ccm)
}

// describe puts a CCM into the image: its file, and the programs and the manifest that the file names.
func (f *files) describe(ctx context.Context, ccm string) {
	var d map[string]any
	text, err := os.ReadFile(ccm)
	if err = errors.Join(f.err, err, yaml.Unmarshal(text, &d)); err != nil {
		f.err = fmt.Errorf("CCM=%s: %w", ccm, err)
		return
	}
	local := func(name any) string {
		if text, _ := name.(string); filepath.IsAbs(text) {
			return text
		}
		return filepath.Join(filepath.Dir(ccm), fmt.Sprint(name))
	}
	if folder, ok := d["source"]; ok {
		f.compile(ctx, "ccm", "-C", local(folder), "build", "-v", ".")
		d["binary"] = programs + "/ccm"
	} else if file, ok := d["binary"]; ok {
		f.copy(local(file), programs+"/ccm")
		d["binary"] = programs + "/ccm"
	}
	if file, ok := d["manifest"]; ok {
		f.copy(local(file), programs+"/manifest.yaml")
		d["manifest"] = programs + "/manifest.yaml"
	}
	if command, _ := d["driverCommand"].([]any); len(command) > 0 {
		f.copy(local(command[0]), programs+"/driver")
		command[0] = programs + "/driver"
	}
	delete(d, "source")
	delete(d, "archive") // it is for kind
	text, err = yaml.Marshal(d)
	f.err = errors.Join(f.err, err)
	f.write(description, text)
}

func mergeE2E(ctx context.Context, results map[int]result, shards int, w io.Writer) error {
	if len(results) == 0 {
		return nil // the verdict says so
	}
	const out = "out/e2e-embedded"
	merge := []string{"merge", out}
	err := errors.Join(anew(out), os.WriteFile(out+"/.made-by-e2e", nil, 0o644)) // so that scripts/e2e.sh replaces it
	for piece := range shards {
		r, ok := results[piece]
		if !ok {
			continue
		}
		folder := fmt.Sprintf("%s-%d-of-%d", out, piece+1, shards)
		err = errors.Join(err, anew(folder))
		for name, text := range r.Files {
			err = errors.Join(err, os.WriteFile(filepath.Join(folder, name), text, 0o644))
		}
		merge = append(merge, folder)
	}
	for _, args := range [][]string{merge, {"report", "out"}, {"results", out}} {
		cmd := exec.CommandContext(ctx, "go", append([]string{"run", "./e2e/cmd/e2e"}, args...)...)
		cmd.Stdout, cmd.Stderr = w, w
		if failed := cmd.Run(); args[0] != "results" { // the verdict says whether specs failed
			err = errors.Join(err, failed)
		}
	}
	return err
}
