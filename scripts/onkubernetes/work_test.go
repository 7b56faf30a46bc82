package main

import (
	"archive/tar"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	for _, c := range []struct{ seeds, first, shards string }{
		{"1000000", "1", ""}, {"7", "100", "3"}, {"3", "1", "10"}, {"10001", "5", "17"}, {"1", "1", ""},
	} {
		w, err := newWork("sim", env("SEEDS", c.seeds, "FIRST", c.first, "SHARDS", c.shards))
		if err != nil {
			t.Fatal(err)
		}
		s := w.(sim)
		next := s.first
		for piece := range s.pieces() {
			if s.end(piece) != next || s.end(piece+1) <= next {
				t.Errorf("%v: piece %d has the seeds from %d to before %d, want them from %d", c, piece, s.end(piece), s.end(piece+1), next)
			}
			next = s.end(piece + 1)
		}
		if next != s.first+s.seeds {
			t.Errorf("%v: the last seed is %d", c, next-1)
		}
		// What the pods read is what was meant.
		again, err := newWork("sim", func(name string) string { return w.settings()[name] })
		if err != nil || again != w {
			t.Errorf("a pod has %v, %v, want %v", again, err, w)
		}
	}
}

func TestAMillionSeedsAreTwoThousandPieces(t *testing.T) {
	t.Parallel()
	w, err := newWork("sim", env("SEEDS", "1000000"))
	if err != nil || w.pieces() != 2000 {
		t.Errorf("got %v, %v", w, err)
	}
}

func TestWhatIsNotUnderstoodIsNamed(t *testing.T) {
	t.Parallel()
	for want, try := range map[string]func() error{
		"SEEDS=many: must be a number from 1": func() error { _, err := newWork("sim", env("SEEDS", "many")); return err },
		"SHARDS=0: must be a number from 1":   func() error { _, err := newWork("e2e", env("SHARDS", "0")); return err },
		"E2E_CLUSTER=kind: only embedded":     func() error { _, err := newWork("e2e", env("E2E_CLUSTER", "kind")); return err },
		"CCM is set: only our CCM":            func() error { _, err := newWork("e2e", env("CCM", "x.yaml")); return err },
		"bench: must be one of sim, e2e":      func() error { _, err := newWork("bench", env()); return err },
		"SAMPLE=-1: must be a number from 0":  func() error { _, err := newWork("mutate", env("SAMPLE", "-1")); return err },
		"CPU=much: must be such as 1":         func() error { _, err := newOptions(sim{}, env("CPU", "much")); return err },
		"PARALLELISM=0: must be a number":     func() error { _, err := newOptions(sim{}, env("PARALLELISM", "0")); return err },
		"is not that of a kind cluster":       func() error { _, _, err := publish(t.Context(), nil, "", "prod", nil); return err },
	} {
		if err := try(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestAPieceSaysHowItIsRunAlone(t *testing.T) {
	t.Parallel()
	w, err := newWork("e2e", env("SHARDS", "20", "LABELS", "service && !fault"))
	if err != nil {
		t.Fatal(err)
	}
	if got := w.alone(7); got != "make e2e E2E_CLUSTER=embedded SHARD=8/20 LABELS='service && !fault'" {
		t.Errorf("got %s", got)
	}
}

func TestTheResultsOfASimulationAreOneTotal(t *testing.T) {
	t.Chdir(t.TempDir())
	s := sim{seeds: 30, first: 1, shards: 3}
	failing := "sim: 5 of 10 seeds have run, 0 failed, 50 requests, 5 of them writes, 1s\n" +
		"sim: 10 of 10 seeds have run, 1 failed, 100 requests, 10 of them writes, 2s\n" +
		"--- FAIL: TestSim (2.00s)\n    sim_test.go:7: seed 13: leak: a load balancer is left\n        3 nodes, and these steps\n"
	var b strings.Builder
	err := s.merge(t.Context(), map[int]result{
		0: found("sim: 10 of 10 seeds have run, 0 failed, 7 requests, 3 of them writes, 1s\nPASS\n", false),
		1: found(failing, true),
	}, &b)
	want := `out/sim-kubernetes/1-ccm-sim.txt: sim_test.go:7: seed 13: leak: a load balancer is left
sim: 20 of 30 seeds have run, 1 failed, 107 requests, 13 of them writes
`
	if err != nil || b.String() != want {
		t.Errorf("got %v\n%s", err, &b)
	}
	if text, err := os.ReadFile(filepath.Join("out", "sim-kubernetes", "1-ccm-sim.txt")); err != nil || string(text) != failing {
		t.Errorf("the history: %v\n%s", err, text)
	}
}

func TestTheSurvivorsOfAllPiecesAreOneList(t *testing.T) {
	t.Chdir(t.TempDir())
	w, err := newWork("mutate", env("SHARDS", "3", "SAMPLE", "30", "SEED", "7", "LEAST", "90"))
	if err != nil {
		t.Fatal(err)
	}
	if got := w.alone(2); got != "go run ./scripts/mutate -package ccm -sample 30 -seed 7 -piece 3/3" {
		t.Errorf("a piece alone: %s", got)
	}
	again, err := newWork("mutate", func(name string) string { return w.settings()[name] }) // a pod prints that, too
	if err != nil || again != w {
		t.Errorf("a pod has %v, %v, want %v", again, err, w)
	}
	piece := func(text string) result { return result{Files: map[string][]byte{"mutate.txt": []byte(text)}} }
	var b strings.Builder
	err = w.merge(t.Context(), map[int]result{
		0: piece("10 mutants, 700 tests\nsurvives: b.go:2:1: x\n10 mutants, 1 survive: the tests notice 90.0 % (2s)\n"),
		1: piece("10 mutants, 700 tests\n10 mutants, 0 survive: the tests notice 100.0 % (2s)\n"),
		2: piece("survives: a.go:9:1: y\nsurvives: a.go:10:1: z\n10 mutants, 2 survive: the tests notice 80.0 % (2s)\n"),
	}, &b)
	want := "survives: a.go:10:1: z\nsurvives: a.go:9:1: y\nsurvives: b.go:2:1: x\n30 mutants, 3 survive: the tests notice 90.0 %\n"
	if err != nil || b.String() != want {
		t.Errorf("got %v\n%s", err, &b)
	}
	err = mutants{least: 91}.merge(t.Context(), map[int]result{0: piece("10 mutants, 1 survive: …\n")}, &b)
	if err == nil || !strings.Contains(err.Error(), "notice 90.0 %") {
		t.Errorf("LEAST=91: got %v", err)
	}
	if text, err := os.ReadFile("out/mutate-kubernetes/survivors.txt"); err != nil || len(text) != 0 {
		t.Errorf("the survivors of the second run: %q, %v", text, err)
	}
}

func TestTheImageHasAFileOnceThatHasSeveralNames(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "kubernetes"), make([]byte, 1_000_000), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"etcd", "kubectl"} {
		if err := os.Symlink("kubernetes", filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	l, err := newLayer(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l.copy(filepath.Join(folder, "etcd"), programs+"/etcd")
	l.copy(filepath.Join(folder, "kubectl"), programs+"/kubectl")
	img, err := l.image()
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatal(err, len(layers))
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	sizes, files := map[string]int64{}, tar.NewReader(content)
	for h, err := files.Next(); err == nil; h, err = files.Next() {
		sizes[h.Name+h.Linkname] = h.Size
	}
	if sizes["programs/kubernetes"] != 1_000_000 || len(sizes) != 5 || sizes["programs/etcdkubernetes"] != 0 {
		t.Errorf("got %v", sizes)
	}
}
