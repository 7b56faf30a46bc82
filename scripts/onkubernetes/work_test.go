package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
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
	for want, try := range map[string][]string{
		"SEEDS=many: must be a number from 1": {"sim", "SEEDS", "many"},
		"SHARDS=9: must be a number from 1":   {"sim", "SEEDS", "8", "SHARDS", "9"},
		"E2E_CLUSTER=kind: only embedded":     {"e2e", "E2E_CLUSTER", "kind"},
		"bench: must be one of sim, e2e":      {"bench"},
		"SAMPLE=-1: must be a number from 0":  {"mutate", "SAMPLE", "-1"},
		"PARALLELISM=0: must be a number":     {"sim", "PARALLELISM", "0"},
	} {
		if _, err := newWork(try[0], env(try[1:]...)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestTheSpecsOfAPieceRunWithAnyCCM(t *testing.T) {
	t.Parallel()
	const labels = `service && !fault && "\d"`
	w, err := newWork("e2e", env("SHARDS", "20", "LABELS", labels, "CCM", "my/ccm.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if got := w.alone(7); got != "make e2e E2E_CLUSTER=embedded SHARD=8/20 LABELS='"+labels+"' CCM='my/ccm.yaml'" {
		t.Errorf("alone, the piece is run by %s", got)
	}
	var inJob string
	if err := yaml.Unmarshal([]byte(w.job(`"${LABELS}"`)), &inJob); err != nil || inJob != labels {
		t.Errorf("the Job has the labels %q: %v", inJob, err)
	}
	filter := "--label-filter=!real-nodes && !hour && (" + labels + ")"
	if args := w.programs(7)[0]; w.shard(7) != "8/20" || !slices.Contains(args, filter) {
		t.Errorf("a pod runs %q", args)
	}
	folder, f := t.TempDir(), &files{root: t.TempDir()}
	all := map[string]string{"ccm.yaml": "name: my-ccm\nbinary: bin/ccm\nmanifest: deploy.yaml\narchive: ccm.tar\n" +
		"driverCommand: [python3, ./driver, --quiet]\n", "bin/ccm": "program", "deploy.yaml": "kind: List", "driver": "#!/bin/sh"}
	for name, text := range all {
		write(t, filepath.Join(folder, name), text)
	}
	write(t, filepath.Join(f.root, programs, "x"), "")
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
	w := work{out: filepath.Join(t.TempDir(), "out"), report: "specs.json", pieces: 3}
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

func TestTheResultsOfAllPiecesAreOneTotal(t *testing.T) {
	for name, c := range map[string]struct {
		files        map[int]string
		want, failed string
	}{
		"sim": {map[int]string{
			0: "sim: 10 of 10 seeds have run, 0 failed, 7 requests, 3 of them writes, 1s\nPASS\n",
			1: "sim: 5 of 10 seeds have run, 0 failed, 50 requests, 5 of them writes, 1s\n" +
				"sim: 10 of 10 seeds have run, 1 failed, 100 requests, 10 of them writes, 2s\n" +
				"--- FAIL: TestSim (2.00s)\n    sim_test.go:7: seed 13: leak: a load balancer is left\n        3 nodes, and these steps\n",
		}, "sim_test.go:7: seed 13: leak: a load balancer is left\n" +
			"sim: 20 of 30 seeds have run, 1 failed, 107 requests, 13 of them writes\n", "<nil>"},
		"mutate": {map[int]string{
			0: "10 mutants, 700 tests\nsurvives: b.go:2:1: x\n10 mutants, 1 survive: the tests notice 90.0 % (2s)\n",
			1: "10 mutants, 700 tests\n10 mutants, 0 survive: the tests notice 100.0 % (2s)\n",
			2: "survives: a.go:9:1: y\nsurvives: a.go:10:1: z\n10 mutants, 2 survive: the tests notice 80.0 % (2s)\n",
		}, "survives: a.go:10:1: z\nsurvives: a.go:9:1: y\nsurvives: b.go:2:1: x\n" +
			"30 mutants, 3 survive: the tests notice 90.0 %\n", "LEAST=91: the tests notice 90.0 %"},
	} {
		t.Chdir(t.TempDir())
		w, err := newWork(name, env("SEEDS", "30", "SHARDS", "3", "SAMPLE", "30", "SEED", "7", "LEAST", "91"))
		if err != nil {
			t.Fatal(err)
		}
		all := map[int]result{}
		for piece, text := range c.files {
			all[piece] = found(text, false)
		}
		var b strings.Builder
		if err := w.merge(t.Context(), all, &b); !strings.HasPrefix(fmt.Sprint(err), c.failed) || b.String() != c.want {
			t.Errorf("%s: got %v\n%s", name, err, &b)
		}
		kept, err := os.ReadFile(filepath.Join("out", name+"-kubernetes", "1-ccm-sim.txt"))
		if err != nil || string(kept) != c.files[1] {
			t.Errorf("%s: the output of a piece: %v\n%s", name, err, kept)
		}
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o755)); err != nil {
		t.Fatal(err)
	}
}
