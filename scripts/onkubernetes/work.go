package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
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
	name   string
	pieces int
	getenv func(string) string
	env    map[string]string // settings, from which a pod makes the same work
	err    error             // of a setting
	// alone returns the command that does a piece on this machine.
	alone func(piece int) string
	// programs returns the commands of a piece. report is the file that they must leave in the folder out; without it, their output is
	// the result.
	programs    func(piece int) [][]string
	out, report string
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
)

// newWork returns the work of a name, by environment variables.
func newWork(name string, getenv func(string) string) (work, error) {
	kind, ok := map[string]func(*work){"sim": sim, "e2e": e2e, "mutate": mutants}[name]
	if !ok {
		return work{}, fmt.Errorf("%s: must be one of sim, e2e, mutate", name)
	}
	w := work{name: name, out: results, getenv: getenv, env: map[string]string{
		"WORK": name, "CPU": cmp.Or(getenv("CPU"), "1"), "MEMORY": cmp.Or(getenv("MEMORY"), "1Gi"),
	}}
	kind(&w)
	w.number("PARALLELISM", 1, mostPieces, min(100, w.pieces))
	return w, w.err
}

// number returns the number of a setting.
func (w *work) number(key string, least, most, otherwise int) int {
	w.env[key] = cmp.Or(w.getenv(key), strconv.Itoa(otherwise))
	n, err := strconv.Atoi(w.env[key])
	if err != nil || n < least || n > most {
		w.err = errors.Join(w.err, fmt.Errorf("%s=%s: must be a number from %d to %d", key, w.env[key], least, most))
	}
	return n
}

// shard returns the number of a piece from 1, and the number of pieces.
func (w *work) shard(piece int) string { return fmt.Sprintf("%d/%d", piece+1, w.pieces) }

// verdict says which pieces failed, or have no result, and how each is run alone.
func (w *work) verdict(results map[int]result) (err error) {
	for piece := range w.pieces {
		if r, ok := results[piece]; !ok || r.Failed {
			end := map[bool]string{true: "failed", false: "has no result"}[ok]
			err = errors.Join(err, fmt.Errorf("piece %d %s; alone here: %s", piece, end, w.alone(piece)))
		}
	}
	return err
}

// pod does a piece in a pod, and prints the result as a line of JSON.
func (w *work) pod(ctx context.Context, index string) error {
	piece, err := strconv.Atoi(index)
	if err != nil {
		return fmt.Errorf("JOB_COMPLETION_INDEX: %w", err)
	}
	r, err := w.do(ctx, piece)
	if err != nil {
		return err
	}
	fmt.Println(r)
	if r.Failed {
		os.Exit(failedCode)
	}
	return nil
}

// do does a piece. An error means that it has no result.
func (w *work) do(ctx context.Context, piece int) (r result, err error) {
	r.Files = map[string][]byte{}
	if err := fresh(w.out); err != nil {
		return r, err
	}
	for _, args := range w.programs(piece) {
		var out bytes.Buffer
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Env, cmd.WaitDelay = append(os.Environ(), "SHARD="+w.shard(piece)), time.Second
		if w.report == "" { // as many seeds or mutants at a time as it has processors, instead of those of the node
			cmd.Env = append(cmd.Env, "GOMAXPROCS="+os.Getenv("PROCESSORS"))
		}
		cmd.Stdout = io.MultiWriter(&out, os.Stdout)
		cmd.Stderr = cmd.Stdout
		if err := cmd.Run(); err != nil {
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || !exit.Exited() {
				return r, fmt.Errorf("%s: %w", args[0], err)
			}
			r.Failed = true
		}
		r.Files[path.Base(args[0])+".txt"] = out.Bytes()
	}
	if w.report != "" {
		text, err := os.ReadFile(filepath.Join(w.out, w.report))
		return result{r.Failed, map[string][]byte{w.report: text}}, errors.Join(err, ctx.Err())
	}
	return r, ctx.Err()
}

// mark begins the line of a result. An end of a line comes first, since programs print, too.
const mark = "\nRESULT "

func (r result) String() string {
	text, _ := json.Marshal(r)
	return mark + string(text)
}

// readResult reads the log of a pod.
func readResult(log string) (r result, err error) {
	_, text, _ := strings.Cut(log, mark)
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("its log has no whole result: %w", err)
	}
	return r, nil
}

// sim is the simulation of the CCM and of the machine controller.
func sim(w *work) {
	first, seeds := w.number("FIRST", 1, 1e12, 1), w.number("SEEDS", 1, 1e12, 1000)
	most := max(1, min(mostPieces, seeds))
	w.pieces = w.number("SHARDS", 1, most, min(most, (seeds+seedsOfAPiece-1)/seedsOfAPiece))
	part := func(piece int) (from, n int) {
		from = first + seeds*piece/w.pieces
		return from, first + seeds*(piece+1)/w.pieces - from
	}
	w.alone = func(piece int) string {
		from, n := part(piece)
		return fmt.Sprintf("make sim FIRST=%d SEEDS=%d", from, n)
	}
	w.programs = func(piece int) (all [][]string) {
		from, n := part(piece)
		for _, program := range []string{"ccm-sim", "machine-sim"} {
			all = append(all, []string{programs + "/" + program, "-test.run", "^TestSim$", "-test.timeout", "0",
				"-first", strconv.Itoa(from), "-seeds", strconv.Itoa(n)})
		}
		return all
	}
	w.fill = func(ctx context.Context, f *files) {
		overlay := f.run(ctx, "scripts/sim-runtime.sh")
		f.compile(ctx, ".", "ccm-sim", "test", "-overlay", overlay, "-tags", "sim", "-c", "./ccm/internal/proof/sim")
		f.compile(ctx, ".", "machine-sim", "test", "-c", "./ccm/machine/controller")
	}
	w.merge = func(_ context.Context, results map[int]result, out io.Writer) error {
		const total = `^sim: (\d+) of \d+ seeds have run, (\d+) failed, (\d+) requests, (\d+) of them writes`
		found, n, err := gather(results, "out/sim-kubernetes", `\S.*: seed .*`, total)
		fmt.Fprintf(out, "%ssim: %d of %d seeds have run, %d failed, %d requests, %d of them writes\n", found, n[0], seeds, n[1], n[2],
			n[3])
		return err
	}
}

// mutants are those of the CCM (scripts/mutate).
func mutants(w *work) {
	w.pieces = w.number("SHARDS", 1, mostPieces, 20)
	least := w.number("LEAST", 0, 100, 0)
	drawn := []string{"-package", "ccm", "-sample", strconv.Itoa(w.number("SAMPLE", 0, 1e6, 0)),
		"-seed", strconv.Itoa(w.number("SEED", 1, 1e12, 1))}
	const prepared = programs + "/mutants"
	w.alone = func(piece int) string {
		return fmt.Sprintf("go run ./scripts/mutate %s -piece %s", strings.Join(drawn, " "), w.shard(piece))
	}
	w.programs = func(piece int) [][]string {
		return [][]string{{programs + "/mutate", "-package", "ccm", "-prepared", prepared, "-piece", w.shard(piece),
			"-jobs", cmp.Or(w.getenv("PROCESSORS"), "1")}}
	}
	w.fill = func(ctx context.Context, f *files) {
		f.compile(ctx, ".", "mutate", "build", "./scripts/mutate")
		f.shell(ctx, `mkdir "$0$1"`, prepared)
		f.run(ctx, append([]string{"scripts/progress.sh", "compiling the mutants, and running each test once",
			"go", "run", "./scripts/mutate", "-jobs", strconv.Itoa(runtime.NumCPU()), "-prepare", f.root + prepared}, drawn...)...)
	}
	w.merge = func(_ context.Context, results map[int]result, out io.Writer) error {
		found, n, err := gather(results, "out/mutate-kubernetes", `survives: .*`, `^(\d+) mutants, (\d+) survive:`)
		score := 100 * float64(n[0]-n[1]) / float64(max(1, n[0]))
		fmt.Fprintf(out, "%s%d mutants, %d survive: the tests notice %.1f %%\n", found, n[0], n[1], score)
		if score < float64(least) {
			err = errors.Join(err, fmt.Errorf("LEAST=%d: the tests notice %.1f %%: write tests for the mutants that survive", least, score))
		}
		return err
	}
}

// gather writes all results into a folder. It returns the lines that match a pattern, in order, and the sums of the numbers that the last
// match of total in each file has.
func gather(results map[int]result, folder, line, total string) (found string, sums [4]int, err error) {
	var lines []string
	err = fresh(folder)
	for piece, r := range results {
		for name, text := range r.Files {
			err = errors.Join(err, os.WriteFile(fmt.Sprintf("%s/%d-%s", folder, piece, name), text, 0o644))
			lines = append(lines, regexp.MustCompile(line).FindAllString(string(text), -1)...)
			if all := regexp.MustCompile("(?m)"+total).FindAllStringSubmatch(string(text), -1); all != nil {
				for i, number := range all[len(all)-1][1:] {
					n, _ := strconv.Atoi(number)
					sums[i] += n
				}
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(append(lines, ""), "\n"), sums, err
}

// fresh makes a folder without files.
func fresh(folder string) error { return errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o755)) }

// e2e are the specs on embedded control planes, with the CCM that a file describes.
func e2e(w *work) {
	if c := w.getenv("E2E_CLUSTER"); c != "" && c != "embedded" {
		w.err = fmt.Errorf("E2E_CLUSTER=%s: only embedded runs in pods", c)
	}
	labels, focus := w.getenv("LABELS"), w.getenv("FOCUS")
	ccm, err := filepath.Abs(cmp.Or(w.getenv("CCM"), "e2e/ccms/ccm-from-scratch.yaml")) // in the same place in the image
	w.err = errors.Join(w.err, err)
	w.env["LABELS"], w.env["FOCUS"], w.env["CCM"], w.env["MEMORY"] = labels, focus, ccm, cmp.Or(w.getenv("MEMORY"), "3Gi")
	w.pieces = w.number("SHARDS", 1, mostPieces, 10)
	procs := strconv.Itoa(w.number("PROCS", 1, 16, 4))
	w.alone = func(piece int) string {
		command := []string{"make e2e E2E_CLUSTER=embedded SHARD=" + w.shard(piece)}
		for _, key := range []string{"LABELS", "FOCUS", "CCM"} {
			if text := w.getenv(key); text != "" {
				command = append(command, fmt.Sprintf("%s='%s'", key, text))
			}
		}
		return strings.Join(command, " ")
	}
	w.report = "specs.json"
	w.programs = func(int) [][]string {
		filter := "!real-nodes && !hour"
		if labels != "" {
			filter += " && (" + labels + ")"
		}
		return [][]string{
			// For Ginkgo, a known gap is a failure: e2e judges.
			{"/bin/sh", "-c", `"$0" "$@" || :`, programs + "/ginkgo", "run", "--no-color", "--silence-skips", "--randomize-all",
				"--procs=" + procs, "--poll-progress-after=3m", "--timeout=40m", "--label-filter=" + filter,
				"--focus=" + focus, "--keep-going", source + "/e2e/hetzner/specs/specs.test"},
			{programs + "/e2e", "results", results},
		}
	}
	w.fill = func(ctx context.Context, f *files) { fillE2E(ctx, f, ccm) }
	w.merge = func(ctx context.Context, results map[int]result, out io.Writer) error {
		return mergeE2E(ctx, results, w.pieces, out)
	}
}

// mergeScript makes one report of the parts. The mark is for scripts/e2e.sh, which replaces only a folder with it.
const mergeScript = `e2e() { go run ./e2e/cmd/e2e "$@"; }
touch out/e2e-embedded/.made-by-e2e && e2e merge out/e2e-embedded "$@" && e2e report out && e2e results out/e2e-embedded`

func mergeE2E(ctx context.Context, results map[int]result, shards int, w io.Writer) error {
	if len(results) == 0 {
		return nil // the verdict says so
	}
	err := fresh("out/e2e-embedded")
	cmd := exec.CommandContext(ctx, "sh", "-c", mergeScript, "sh")
	for _, piece := range slices.Sorted(maps.Keys(results)) {
		folder := fmt.Sprintf("out/e2e-embedded-%d-of-%d", piece+1, shards)
		err = errors.Join(err, fresh(folder), os.WriteFile(folder+"/specs.json", results[piece].Files["specs.json"], 0o644))
		cmd.Args = append(cmd.Args, folder)
	}
	cmd.Stdout, cmd.Stderr = w, w
	return errors.Join(err, cmd.Run())
}
