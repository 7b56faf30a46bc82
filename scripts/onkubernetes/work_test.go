package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

func env(pairs ...string) func(string) string {
	values := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return values[name] }
}

func TestThePiecesOfASimulationHaveEachSeedOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		seeds, first, shards string
		pieces               int
	}{{"1000000", "1", "", 2000}, {"7", "100", "3", 3}, {"10001", "5", "17", 17}, {"1", "1", "", 1}} {
		w, err := newWork("sim", env("SEEDS", c.seeds, "FIRST", c.first, "SHARDS", c.shards))
		if err != nil || w.pieces != c.pieces {
			t.Fatal(w.pieces, err)
		}
		again, err := newWork("sim", func(name string) string { return w.env[name] }) // what a pod makes of its environment
		if err != nil {
			t.Fatal(err)
		}
		var next, from, seeds int
		_, _ = fmt.Sscan(c.first, &next)
		for piece := range w.pieces {
			text := again.alone(piece)
			if _, err := fmt.Sscanf(text, "make sim FIRST=%d SEEDS=%d", &from, &seeds); err != nil || from != next || seeds < 1 {
				t.Errorf("%v: piece %d is %s, want it from %d", c, piece, text, next)
			}
			want := fmt.Sprintf(" -first %d -seeds %d", from, seeds)
			if args := strings.Join(again.programs(piece)[1], " "); !strings.HasSuffix(args, want) {
				t.Errorf("a pod runs %s, want it as %s", args, text)
			}
			next = from + seeds
		}
		var all, first int
		_, _ = fmt.Sscan(c.seeds+" "+c.first, &all, &first)
		if next != first+all {
			t.Errorf("%v: the last seed is %d", c, next-1)
		}
	}
}

func TestAWrongSettingIsNamed(t *testing.T) {
	t.Parallel()
	job := func(pairs ...string) error {
		_, err := newJob(work{memory: "1Gi"}, "../../"+template, env(pairs...))
		return err
	}
	for want, try := range map[string]func() error{
		"SEEDS=many: must be a number from 1": func() error { _, err := newWork("sim", env("SEEDS", "many")); return err },
		"SHARDS=9: must be a number from 1":   func() error { _, err := newWork("sim", env("SEEDS", "8", "SHARDS", "9")); return err },
		"E2E_CLUSTER=kind: only embedded":     func() error { _, err := newWork("e2e", env("E2E_CLUSTER", "kind")); return err },
		"bench: must be one of sim, e2e":      func() error { _, err := newWork("bench", env()); return err },
		"SAMPLE=-1: must be a number from 0":  func() error { _, err := newWork("mutate", env("SAMPLE", "-1")); return err },
		"CPU or MEMORY: much: must be such":   func() error { return job("CPU", "much") },
		"PARALLELISM=0: must be a number":     func() error { _, err := newWork("sim", env("PARALLELISM", "0")); return err },
	} {
		if err := try(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestTheSpecsOfAPieceRunWithAnyCCM(t *testing.T) {
	t.Parallel()
	w, err := newWork("e2e", env("SHARDS", "20", "LABELS", "service && !fault", "CCM", "my/ccm.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if got := w.alone(7); got != "make e2e E2E_CLUSTER=embedded SHARD=8/20 LABELS='service && !fault' CCM='my/ccm.yaml'" {
		t.Errorf("alone, the piece is run by %s", got)
	}
	filter := "--label-filter=!real-nodes && !hour && (service && !fault)"
	if args := w.programs(7)[0]; w.shard(7) != "8/20" || !slices.Contains(args, filter) {
		t.Errorf("a pod runs %q", args)
	}
	folder, f := t.TempDir(), &files{root: t.TempDir()}
	all := map[string]string{"ccm.yaml": "name: my-ccm\nbinary: bin/ccm\nmanifest: deploy.yaml\narchive: ccm.tar\n" +
		"driverCommand: [python3, ./driver, --quiet]\n", "bin/ccm": "program", "deploy.yaml": "kind: List", "driver": "#!/bin/sh"}
	for name, text := range all {
		(&files{root: folder}).write(name, []byte(text))
	}
	f.describe(t.Context(), filepath.Join(folder, "ccm.yaml"))
	for name, want := range all {
		place := filepath.Join(f.root, folder, name)
		if name == "bin/ccm" {
			place = filepath.Join(f.root, programs, "ccm")
		}
		if got, err := os.ReadFile(place); err != nil || f.err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, %v", name, got, err, f.err)
		}
	}
	if here, _ := os.Getwd(); w.env["CCM"] != filepath.Join(here, "my", "ccm.yaml") {
		t.Errorf("a pod gets CCM=%s", w.env["CCM"])
	}
}

func TestAPieceWithoutItsReportHasNoResult(t *testing.T) {
	t.Parallel()
	w := work{out: filepath.Join(t.TempDir(), "out"), report: "specs.json", mayFail: true, pieces: 3}
	for script, want := range map[string]string{
		"echo $SHARD >specs.json":            "passed 2/3",
		"echo specs >specs.json; exit 1":     "failed specs",
		"true":                               "no such file",
		"echo specs >specs.json; kill -9 $$": "signal: killed",
	} {
		w.programs = func(int) [][]string { return [][]string{{"sh", "-c", "cd " + w.out + "; " + script}} }
		r, err := w.do(t.Context(), 1)
		got := map[bool]string{false: "passed ", true: "failed "}[r.Failed] + string(r.Files["specs.json"]) + fmt.Sprint(err)
		if !strings.Contains(got, want) || (err == nil) != (r.Files["specs.json"] != nil) {
			t.Errorf("%s: %s", script, got)
		}
	}
}

func TestTheResultsOfASimulationAreOneTotal(t *testing.T) {
	t.Chdir(t.TempDir())
	w, err := newWork("sim", env("SEEDS", "30", "SHARDS", "3"))
	if err != nil {
		t.Fatal(err)
	}
	failing := "sim: 5 of 10 seeds have run, 0 failed, 50 requests, 5 of them writes, 1s\n" +
		"sim: 10 of 10 seeds have run, 1 failed, 100 requests, 10 of them writes, 2s\n" +
		"--- FAIL: TestSim (2.00s)\n    sim_test.go:7: seed 13: leak: a load balancer is left\n        3 nodes, and these steps\n"
	var b strings.Builder
	err = w.merge(t.Context(), map[int]result{
		0: found("sim: 10 of 10 seeds have run, 0 failed, 7 requests, 3 of them writes, 1s\nPASS\n", false),
		1: found(failing, true),
	}, &b)
	want := "sim_test.go:7: seed 13: leak: a load balancer is left\n" +
		"sim: 20 of 30 seeds have run, 1 failed, 107 requests, 13 of them writes\n"
	if err != nil || b.String() != want {
		t.Errorf("got %v\n%s", err, &b)
	}
	if text, err := os.ReadFile(filepath.Join("out", "sim-kubernetes", "1-ccm-sim.txt")); err != nil || string(text) != failing {
		t.Errorf("the history: %v\n%s", err, text)
	}
}

func TestTheSurvivorsOfAllPiecesAreOneList(t *testing.T) {
	t.Chdir(t.TempDir())
	w, err := newWork("mutate", env("SHARDS", "3", "SAMPLE", "30", "SEED", "7", "LEAST", "91"))
	if err != nil {
		t.Fatal(err)
	}
	if got := w.alone(2); got != "go run ./scripts/mutate -package ccm -sample 30 -seed 7 -piece 3/3" {
		t.Errorf("a piece alone: %s", got)
	}
	piece := func(text string) result { return result{Files: map[string][]byte{"mutate.txt": []byte(text)}} }
	var b strings.Builder
	err = w.merge(t.Context(), map[int]result{
		0: piece("10 mutants, 700 tests\nsurvives: b.go:2:1: x\n10 mutants, 1 survive: the tests notice 90.0 % (2s)\n"),
		1: piece("10 mutants, 700 tests\n10 mutants, 0 survive: the tests notice 100.0 % (2s)\n"),
		2: piece("survives: a.go:9:1: y\nsurvives: a.go:10:1: z\n10 mutants, 2 survive: the tests notice 80.0 % (2s)\n"),
	}, &b)
	survivors := "survives: a.go:10:1: z\nsurvives: a.go:9:1: y\nsurvives: b.go:2:1: x\n"
	if err == nil || !strings.HasPrefix(err.Error(), "LEAST=91: the tests notice 90.0 %") ||
		b.String() != survivors+"30 mutants, 3 survive: the tests notice 90.0 %\n" {
		t.Errorf("got %v\n%s", err, &b)
	}
	if text, err := os.ReadFile("out/mutate-kubernetes/survivors.txt"); err != nil || string(text) != survivors {
		t.Errorf("the file of the survivors: %q, %v", text, err)
	}
}

func TestTheImageHasAFileOnceThatHasSeveralNames(t *testing.T) {
	t.Parallel()
	f := &files{root: filepath.Join(t.TempDir(), "root")}
	f.write(programs+"/kubernetes", make([]byte, 1_000_000))
	for _, name := range []string{"etcd", "kubectl"} {
		f.err = errors.Join(f.err, os.Symlink("kubernetes", filepath.Join(f.root, programs, name)))
	}
	img, err := f.image()
	if err != nil {
		t.Fatal(err)
	}
	sizes, files := map[string]int64{}, tar.NewReader(mutate.Extract(img))
	for h, err := files.Next(); err == nil; h, err = files.Next() {
		sizes[h.Name+h.Linkname] = h.Size
	}
	want := map[string]int64{"programs": 0, "programs/kubernetes": 1_000_000, "programs/etcdkubernetes": 0,
		"programs/kubectlkubernetes": 0, "tmp": 0}
	if !maps.Equal(sizes, want) {
		t.Errorf("got %v, want %v", sizes, want)
	}
}
