package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// work is what is divided into pieces that do not depend on each other.
type work interface {
	name() string
	pieces() int
	// settings are the environment of the pods.
	settings() map[string]string
	// fill puts what a piece needs into the image.
	fill(context.Context, *layer)
	// do does a piece, in a pod. An error means that it has no result, and may be tried again.
	do(ctx context.Context, piece int) (result, error)
	// alone returns the command that does the piece alone, on this machine.
	alone(piece int) string
	// merge writes the results of all pieces into the folder out, and says in a few lines what they are.
	merge(ctx context.Context, results map[int]result, out io.Writer) error
}

// newWork returns the work of a name, by environment variables.
func newWork(name string, getenv func(string) string) (work, error) {
	var errs []error
	number := func(key string, least, most, otherwise int) int {
		text := getenv(key)
		if text == "" {
			return otherwise
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			errs = append(errs, fmt.Errorf("%s=%s: must be a number from %d to %d", key, text, least, most))
		}
		return n
	}
	seeds, first := number("SEEDS", 1, 1e12, 1000), number("FIRST", 1, 1e12, 1)
	otherwise := map[string]int{"sim": min(mostPieces, (seeds+seedsOfAPiece-1)/seedsOfAPiece), "e2e": 10, "mutate": 20}
	shards, procs := number("SHARDS", 1, mostPieces, otherwise[name]), number("PROCS", 1, 16, 4)
	sample, seed, least := number("SAMPLE", 0, 1e6, 0), number("SEED", 1, 1e12, 1), number("LEAST", 0, 100, 0)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	switch name {
	case "mutate":
		return mutants{sample: sample, seed: seed, shards: shards, least: least}, nil
	case "sim":
		return sim{seeds: seeds, first: first, shards: min(shards, seeds)}, nil
	case "e2e":
		if c := getenv("E2E_CLUSTER"); c != "" && c != "embedded" {
			return nil, fmt.Errorf("E2E_CLUSTER=%s: only embedded runs in pods", c)
		}
		if getenv("CCM") != "" {
			return nil, errors.New("CCM is set: only our CCM is tested in pods; use SHARD=2/5 for another one, on several machines")
		}
		return e2e{shards: shards, procs: procs, labels: getenv("LABELS"), focus: getenv("FOCUS")}, nil
	}
	return nil, fmt.Errorf("%s: must be one of sim, e2e, mutate", name)
}

const (
	// seedsOfAPiece take six minutes of a processor: far longer than a pod takes to start, and short enough to be done again.
	seedsOfAPiece = 500
	mostPieces    = 10_000
)

// sim is the simulation of the CCM and of the machine controller.
type sim struct{ seeds, first, shards int }

func (sim) name() string    { return "sim" }
func (s sim) pieces() int   { return s.shards }
func (s sim) end(n int) int { return s.first + s.seeds*n/s.shards }

func (s sim) settings() map[string]string {
	return map[string]string{"SEEDS": strconv.Itoa(s.seeds), "FIRST": strconv.Itoa(s.first), "SHARDS": strconv.Itoa(s.shards)}
}

func (s sim) alone(piece int) string {
	return fmt.Sprintf("make sim FIRST=%d SEEDS=%d", s.end(piece), s.end(piece+1)-s.end(piece))
}

func (sim) fill(ctx context.Context, l *layer) {
	overlay, err := exec.CommandContext(ctx, "scripts/sim-runtime.sh").Output()
	if err != nil {
		l.err = err
		return
	}
	l.compile(ctx, programs+"/ccm-sim.test", "test", "-v", "-overlay", strings.TrimSpace(string(overlay)), "-tags", "sim", "-c",
		"./ccm/internal/proof/sim")
	l.compile(ctx, programs+"/machine-sim.test", "test", "-v", "-c", "./ccm/machine/controller")
}

func (s sim) do(ctx context.Context, piece int) (r result, err error) {
	r.Files = map[string][]byte{}
	tests := "^TestSim$"
	if piece == 0 {
		tests = "^(TestSim|TestRegressions)$"
	}
	for _, program := range []string{"ccm-sim", "machine-sim"} {
		var out bytes.Buffer
		cmd := exec.CommandContext(ctx, programs+"/"+program+".test", "-test.run", tests, "-test.timeout", "0",
			"-first", strconv.Itoa(s.end(piece)), "-seeds", strconv.Itoa(s.end(piece+1)-s.end(piece)))
		cmd.Stdout = io.MultiWriter(&out, os.Stdout)
		cmd.Stderr = cmd.Stdout
		if err := cmd.Run(); err != nil {
			if !exited(err) {
				return r, fmt.Errorf("%s: %w", program, err)
			}
			r.Failed = true
		}
		r.Files[program+".txt"] = out.Bytes()
	}
	return r, nil
}

// exited reports whether a program has ended by itself: its result is a failure, and would be elsewhere.
func exited(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	return ok && exit.Exited()
}

// total is the last line about progress of the simulation of the CCM.
const total = "sim: %d of %d seeds have run, %d failed, %d requests, %d of them writes"

func (s sim) merge(_ context.Context, results map[int]result, out io.Writer) error {
	folder := filepath.Join("out", "sim-kubernetes")
	if err := anew(folder); err != nil {
		return err
	}
	var done, failed, requests, writes int
	for piece := range s.pieces() {
		r := results[piece]
		for line := range strings.Lines(string(r.Files["ccm-sim.txt"])) {
			var n [5]int
			if _, err := fmt.Sscanf(line, total, &n[0], &n[1], &n[2], &n[3], &n[4]); err == nil && n[0] == n[1] {
				done, failed, requests, writes = done+n[0], failed+n[2], requests+n[3], writes+n[4]
			}
		}
		if !r.Failed {
			continue
		}
		for name, text := range r.Files {
			name = filepath.Join(folder, fmt.Sprintf("%d-%s", piece, name))
			if err := os.WriteFile(name, text, 0o644); err != nil {
				return err
			}
			for line := range strings.Lines(string(text)) {
				if strings.Contains(line, ": seed ") {
					fmt.Fprintf(out, "%s: %s\n", name, strings.TrimSpace(line))
				}
			}
		}
	}
	_, err := fmt.Fprintf(out, total+"\n", done, s.seeds, failed, requests, writes)
	return err
}

// anew makes a folder, without what was in it.
func anew(folder string) error {
	return errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o755))
}
