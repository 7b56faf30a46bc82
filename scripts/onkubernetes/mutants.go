package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// mutants are small changes of the CCM's code, which its tests must notice (scripts/mutate).
type mutants struct {
	sample, seed, shards int
	least                int // percent
}

// prepared is the folder of the image with the compiled tests.
const prepared = programs + "/mutants"

func (mutants) name() string  { return "mutate" }
func (m mutants) pieces() int { return m.shards }

func (m mutants) settings() map[string]string {
	return map[string]string{"SHARDS": strconv.Itoa(m.shards), "SAMPLE": strconv.Itoa(m.sample), "SEED": strconv.Itoa(m.seed),
		"LEAST": strconv.Itoa(m.least)}
}

func (m mutants) piece(piece int) string { return fmt.Sprintf("%d/%d", piece+1, m.shards) }

func (m mutants) alone(piece int) string {
	return fmt.Sprintf("go run ./scripts/mutate -package ccm -sample %d -seed %d -piece %s", m.sample, m.seed, m.piece(piece))
}

func (m mutants) fill(ctx context.Context, l *layer) {
	folder, err := os.MkdirTemp("", "mutants")
	if err != nil {
		l.err = err
		return
	}
	defer func() { _ = os.RemoveAll(folder) }()
	l.compile(ctx, programs+"/mutate", "build", "-v", "./scripts/mutate")
	cmd := exec.CommandContext(ctx, "scripts/progress.sh", "compiling the mutants, and running each test once",
		"go", "run", "./scripts/mutate", "-package", "ccm", "-sample", strconv.Itoa(m.sample), "-seed", strconv.Itoa(m.seed),
		"-jobs", strconv.Itoa(runtime.NumCPU()), "-prepare", folder)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux"), os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		l.err = fmt.Errorf("preparing the mutants: %w", err)
		return
	}
	for _, pattern := range []string{"*.test", "mutants.json"} {
		files, _ := filepath.Glob(filepath.Join(folder, pattern)) // the pattern is right
		for _, file := range files {
			l.copy(file, prepared+"/"+filepath.Base(file))
		}
	}
	l.checkout(ctx)
}

func (m mutants) do(ctx context.Context, piece int) (r result, err error) {
	cmd := exec.CommandContext(ctx, programs+"/mutate", "-package", "ccm", "-prepared", prepared, "-piece", m.piece(piece),
		"-jobs", strconv.Itoa(runtime.GOMAXPROCS(0)))
	var out strings.Builder
	cmd.Dir, cmd.Stdout, cmd.Stderr = source, io.MultiWriter(&out, os.Stdout), os.Stderr
	if err := cmd.Run(); err != nil {
		return r, fmt.Errorf("mutate: %w", err)
	}
	r.Files = map[string][]byte{"mutate.txt": []byte(out.String())}
	return r, nil
}

func (m mutants) merge(_ context.Context, results map[int]result, out io.Writer) error {
	folder := filepath.Join("out", "mutate-kubernetes")
	if err := anew(folder); err != nil {
		return err
	}
	var tried, survive int
	var survivors []string
	for _, r := range results {
		for line := range strings.Lines(string(r.Files["mutate.txt"])) {
			var a, b int
			if _, err := fmt.Sscanf(line, "%d mutants, %d survive:", &a, &b); err == nil {
				tried, survive = tried+a, survive+b
			}
			if strings.HasPrefix(line, "survives: ") {
				survivors = append(survivors, line)
			}
		}
	}
	slices.Sort(survivors)
	text := strings.Join(survivors, "")
	if err := os.WriteFile(filepath.Join(folder, "survivors.txt"), []byte(text), 0o644); err != nil {
		return err
	}
	score := 100 * float64(tried-survive) / float64(max(1, tried))
	if _, err := fmt.Fprintf(out, "%s%d mutants, %d survive: the tests notice %.1f %%\n", text, tried, survive, score); err != nil {
		return err
	}
	if score < float64(m.least) {
		return fmt.Errorf("LEAST=%d: the tests notice %.1f %%: write tests for the mutants that survive", m.least, score)
	}
	return nil
}
