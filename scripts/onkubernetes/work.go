package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"encoding/pem"
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
	"time"
)

// work is divided into pieces that do not depend on each other.
type work struct {
	name                string
	pieces, parallelism int
	memory              string            // of a piece, by default
	env                 map[string]string // from which a pod makes the same work
	// alone returns the command that does a piece on this machine.
	alone func(piece int) string
	// programs returns the commands of a piece. report is the file that they must leave in the folder out; without it, their output is
	// the result. mayFail says that a failure of one is a result; otherwise, the piece is tried again.
	programs    func(piece int) [][]string
	out, report string
	mayFail     bool
	// fill adds the files of a piece to the image.
	fill func(context.Context, *files)
	// merge writes the results of all pieces into the folder out, and sums them up in a few lines.
	merge func(context.Context, map[int]result, io.Writer) error
}

// result is the outcome of a piece: files by name, and whether they tell of a failure.
type result struct {
	Failed bool
	Files  map[string][]byte
}

const (
	// seedsOfAPiece take six minutes of a processor: far longer than a pod takes to start, and short enough to be done again.
	seedsOfAPiece = 500
	mostPieces    = 10_000
	ourCCM        = "e2e/ccms/ccm-from-scratch.yaml"
)

// settings reads environment variables, and remembers those that a pod gets.
type settings struct {
	getenv func(string) string
	env    map[string]string
	err    error
}

func (s *settings) text(key string) string {
	s.env[key] = s.getenv(key)
	return s.env[key]
}

func (s *settings) number(key string, least, most, otherwise int) int {
	n, err := strconv.Atoi(cmp.Or(s.getenv(key), strconv.Itoa(otherwise)))
	if err != nil || n < least || n > most {
		s.err = errors.Join(s.err, fmt.Errorf("%s=%s: must be a number from %d to %d", key, s.getenv(key), least, most))
	}
	s.env[key] = strconv.Itoa(n)
	return n
}

// newWork returns the work of a name, by environment variables.
func newWork(name string, getenv func(string) string) (work, error) {
	newWork, ok := map[string]func(*settings) work{"sim": sim, "e2e": e2e, "mutate": mutants}[name]
	if !ok {
		return work{}, fmt.Errorf("%s: must be one of sim, e2e, mutate", name)
	}
	s := &settings{getenv: getenv, env: map[string]string{}}
	w := newWork(s)
	w.name, w.env, w.out, w.parallelism = name, s.env, results, s.number("PARALLELISM", 1, mostPieces, 100)
	return w, s.err
}

// shard returns the number of a piece from 1, and the number of pieces.
func (w work) shard(piece int) string { return fmt.Sprintf("%d/%d", piece+1, w.pieces) }

// verdict says which pieces failed, or have no result, and how each is run alone.
func (w work) verdict(results map[int]result) (err error) {
	for piece := range w.pieces {
		if r, ok := results[piece]; !ok || r.Failed {
			end := map[bool]string{true: "failed", false: "has no result"}[ok]
			err = errors.Join(err, fmt.Errorf("piece %d %s; alone here: %s", piece, end, w.alone(piece)))
		}
	}
	return err
}

// pod does a piece in a pod, and prints the result.
func (w work) pod(ctx context.Context, index string) error {
	piece, err := strconv.Atoi(index)
	if err != nil {
		return fmt.Errorf("JOB_COMPLETION_INDEX: %w", err)
	}
	r, err := w.do(ctx, piece)
	if err == nil {
		err = r.print(os.Stdout)
	}
	if err == nil && r.Failed {
		os.Exit(failedCode)
	}
	return err
}

// do does a piece. An error means that it has no result.
func (w work) do(ctx context.Context, piece int) (r result, err error) {
	r.Files = map[string][]byte{}
	if err := fresh(w.out); err != nil {
		return r, err
	}
	for _, args := range w.programs(piece) {
		var out bytes.Buffer
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "SHARD="+w.shard(piece))
		cmd.Stdout = io.MultiWriter(&out, os.Stdout)
		cmd.Stderr, cmd.WaitDelay = cmd.Stdout, time.Second
		if err := cmd.Run(); err != nil {
			if exit, ok := errors.AsType[*exec.ExitError](err); !w.mayFail || !ok || !exit.Exited() {
				return r, fmt.Errorf("%s: %w", args[0], err)
			}
			r.Failed = true
		}
		if w.report == "" {
			r.Files[path.Base(args[0])+".txt"] = out.Bytes()
		}
	}
	if w.report != "" {
		r.Files[w.report], err = os.ReadFile(filepath.Join(w.out, w.report))
	}
	return r, errors.Join(err, ctx.Err())
}

// print writes the result as a block of PEM.
func (r result) print(w io.Writer) error {
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	err := errors.Join(json.NewEncoder(zip).Encode(r), zip.Close())
	return errors.Join(err, pem.Encode(w, &pem.Block{Type: "RESULT", Bytes: packed.Bytes()}))
}

// readResult reads the log of a pod. The checksum of gzip shows that the result is whole.
func readResult(log string) (r result, err error) {
	_, log, _ = strings.Cut(log, "-----BEGIN RESULT") // others may print blocks, too
	block, _ := pem.Decode([]byte("-----BEGIN RESULT" + log))
	if block == nil {
		return r, errors.New("its log has no whole result")
	}
	zip, err := gzip.NewReader(bytes.NewReader(block.Bytes))
	var text []byte
	if err == nil {
		text, err = io.ReadAll(zip)
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}

// sim is the simulation of the CCM and of the machine controller.
func sim(s *settings) (w work) {
	seeds := s.number("SEEDS", 1, 1e12, 1000)
	first, most := s.number("FIRST", 1, 1e12, 1), max(1, min(mostPieces, seeds))
	w.pieces, w.mayFail, w.memory = s.number("SHARDS", 1, most, min(most, (seeds+seedsOfAPiece-1)/seedsOfAPiece)), true, "1Gi"
	part := func(piece int) (from, n int) {
		from = first + seeds*piece/w.pieces
		return from, first + seeds*(piece+1)/w.pieces - from
	}
	w.alone = func(piece int) string {
		from, n := part(piece)
		return fmt.Sprintf("make sim FIRST=%d SEEDS=%d", from, n)
	}
	w.programs = func(piece int) (all [][]string) {
		tests := "^TestSim$"
		if piece == 0 {
			tests = "^(TestSim|TestRegressions)$"
		}
		from, n := part(piece)
		for _, program := range []string{"ccm-sim", "machine-sim"} {
			all = append(all, []string{programs + "/" + program, "-test.run", tests, "-test.timeout", "0",
				"-first", strconv.Itoa(from), "-seeds", strconv.Itoa(n)})
		}
		return all
	}
	w.fill = func(ctx context.Context, f *files) {
		overlay := f.run(ctx, "scripts/sim-runtime.sh")
		f.compile(ctx, "ccm-sim", "test", "-v", "-overlay", overlay, "-tags", "sim", "-c", "./ccm/internal/proof/sim")
		f.compile(ctx, "machine-sim", "test", "-v", "-c", "./ccm/machine/controller")
	}
	w.merge = func(_ context.Context, results map[int]result, out io.Writer) error {
		const folder = "out/sim-kubernetes"
		err := fresh(folder)
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
	return w
}

// mutants are those of the CCM (scripts/mutate).
func mutants(s *settings) (w work) {
	sample, seed := s.number("SAMPLE", 0, 1e6, 0), s.number("SEED", 1, 1e12, 1)
	least := s.number("LEAST", 0, 100, 0)
	drawn := []string{"-package", "ccm", "-sample", strconv.Itoa(sample), "-seed", strconv.Itoa(seed)}
	const prepared = programs + "/mutants"
	w.pieces, w.memory = s.number("SHARDS", 1, mostPieces, 20), "1Gi"
	w.alone = func(piece int) string {
		return fmt.Sprintf("go run ./scripts/mutate %s -piece %s", strings.Join(drawn, " "), w.shard(piece))
	}
	w.programs = func(piece int) [][]string {
		return [][]string{{programs + "/mutate", "-package", "ccm", "-prepared", prepared, "-piece", w.shard(piece),
			"-jobs", strconv.Itoa(runtime.GOMAXPROCS(0))}}
	}
	w.fill = func(ctx context.Context, f *files) {
		f.compile(ctx, "mutate", "build", "-v", "./scripts/mutate")
		folder := filepath.Join(f.root, prepared)
		f.err = errors.Join(f.err, os.MkdirAll(folder, 0o755))
		f.run(ctx, append([]string{"scripts/progress.sh", "compiling the mutants, and running each test once",
			"go", "run", "./scripts/mutate", "-jobs", strconv.Itoa(runtime.NumCPU()), "-prepare", folder}, drawn...)...)
	}
	w.merge = func(_ context.Context, results map[int]result, out io.Writer) error {
		found, n := gather(results, "survives: ", regexp.MustCompile(`(?m)^(\d+) mutants, (\d+) survive:`))
		score := 100 * float64(n[0]-n[1]) / float64(max(1, n[0]))
		fmt.Fprintf(out, "%s%d mutants, %d survive: the tests notice %.1f %%\n", found, n[0], n[1], score)
		err := errors.Join(fresh("out/mutate-kubernetes"), os.WriteFile("out/mutate-kubernetes/survivors.txt", []byte(found), 0o644))
		if score < float64(least) {
			err = errors.Join(err, fmt.Errorf("LEAST=%d: the tests notice %.1f %%: write tests for the mutants that survive", least, score))
		}
		return err
	}
	return w
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

// fresh makes a folder without files.
func fresh(folder string) error { return errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o755)) }

// e2e are the specs on embedded control planes, with the CCM that a file describes.
func e2e(s *settings) (w work) {
	if c := s.getenv("E2E_CLUSTER"); c != "" && c != "embedded" {
		s.err = fmt.Errorf("E2E_CLUSTER=%s: only embedded runs in pods", c)
	}
	labels, focus, ccm := s.text("LABELS"), s.text("FOCUS"), s.getenv("CCM")
	description, err := filepath.Abs(cmp.Or(ccm, ourCCM)) // in the same place in the image
	s.env["CCM"], s.err = description, errors.Join(s.err, err)
	procs := s.number("PROCS", 1, 16, 4)
	w.pieces, w.report, w.mayFail, w.memory = s.number("SHARDS", 1, mostPieces, 10), "specs.json", true, "3Gi"
	w.alone = func(piece int) string {
		words := []string{"make e2e E2E_CLUSTER=embedded SHARD=" + w.shard(piece)}
		for _, s := range [][2]string{{"LABELS", labels}, {"FOCUS", focus}, {"CCM", ccm}} {
			if s[1] != "" {
				words = append(words, fmt.Sprintf("%s='%s'", s[0], s[1]))
			}
		}
		return strings.Join(words, " ")
	}
	w.programs = func(int) [][]string {
		filter := "!real-nodes && !hour"
		if labels != "" {
			filter += " && (" + labels + ")"
		}
		return [][]string{
			// For Ginkgo, a known gap is a failure: e2e judges.
			{"/bin/sh", "-c", `"$0" "$@" || :`, programs + "/ginkgo", "run", "--no-color", "--silence-skips", "--randomize-all",
				"--procs=" + strconv.Itoa(procs), "--poll-progress-after=3m", "--timeout=40m", "--label-filter=" + filter,
				"--focus=" + focus, "--keep-going", source + "/e2e/hetzner/specs/specs.test"},
			{programs + "/e2e", "results", results},
		}
	}
	w.fill = func(ctx context.Context, f *files) { fillE2E(ctx, f, description) }
	w.merge = func(ctx context.Context, results map[int]result, out io.Writer) error {
		return mergeE2E(ctx, results, w.pieces, out)
	}
	return w
}

func mergeE2E(ctx context.Context, results map[int]result, shards int, w io.Writer) error {
	if len(results) == 0 {
		return nil // the verdict says so
	}
	const out = "out/e2e-embedded"
	merge := []string{"merge", out}
	err := errors.Join(fresh(out), os.WriteFile(out+"/.made-by-e2e", nil, 0o644)) // so that scripts/e2e.sh replaces it
	for piece := range shards {
		if r, ok := results[piece]; ok {
			folder := fmt.Sprintf("%s-%d-of-%d", out, piece+1, shards)
			err = errors.Join(err, fresh(folder), os.WriteFile(folder+"/specs.json", r.Files["specs.json"], 0o644))
			merge = append(merge, folder)
		}
	}
	for _, args := range [][]string{merge, {"report", "out"}, {"results", out}} {
		cmd := exec.CommandContext(ctx, "go", append([]string{"run", "./e2e/cmd/e2e"}, args...)...)
		cmd.Stdout, cmd.Stderr = w, w
		if failed := cmd.Run(); failed != nil {
			err = errors.Join(err, fmt.Errorf("e2e %s: %w", args[0], failed))
		}
	}
	return err
}
