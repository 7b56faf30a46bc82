package framework

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/report"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/shards"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

// envDivided makes TestTheDividedSuite run its specs. The test starts itself as another process, as the suite does.
const envDivided = "FRAMEWORK_TEST_DIVIDED"

// TestTheDividedSuite is a suite with a spec of each kind, for the tests below.
func TestTheDividedSuite(t *testing.T) {
	if os.Getenv(envDivided) == "" {
		t.Skip("it runs as a process of other tests")
	}
	Describe("Node", func() {
		for i := range 7 {
			It(fmt.Sprint("passes ", i, " (with + signs | of regular expressions)"), func() {})
		}
		It("fails", func() { By("a step"); Fail("as it should") })
		It("fails later", func() {}) // its name begins with that of another spec
		for i := range 3 {
			It(fmt.Sprint("skips itself ", i), func() { Skip("unsupported here") })
		}
		It("is an incident", Label(Incident), func() {})
		It("needs pods", Label(RealNodes), func() { Fail("must not run") })
		PIt("is pending", func() {})
		It("is filtered", Label("filtered"), func() {})
	})
	Describe("Route", func() {
		It("fails", func() {}) // the end of its name is that of another spec
		Context("in order", Ordered, func() {
			n := 0
			for i := range 3 {
				It(fmt.Sprint("is step ", i), func() {
					if n != i {
						Fail(fmt.Sprintf("step %d comes after %d others", i, n))
					}
					n++
				})
			}
		})
		DescribeTable("of a table", func(int) {}, Entry("one", 1), Entry("two", 2))
	})
	_ = ReportAfterSuite("writes", func(r Report) {
		if err := WriteSummary(r); err != nil {
			Fail(err.Error())
		}
	})
	const name = "divided"
	config, _ := GinkgoConfiguration()
	RunSpecs(t, name, Shard(name, config))
}

// testedCCM is the file of the CCM that the suite says it tests.
const testedCCM = "../ccms/ccm-from-scratch.yaml"

func merge(out string, folders ...string) (speclist.Run, error) {
	run, err := speclist.ReadShards(folders)
	if err != nil {
		return run, err
	}
	return run, report.WriteRun(out, run)
}

// runDivided runs the suite in a process and returns its folder.
func runDivided(t *testing.T, env ...string) string {
	t.Helper()
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestTheDividedSuite$", "-ginkgo.label-filter", "!"+RealNodes+
		" && !filtered", "-ginkgo.randomize-all", "-ginkgo.no-color")
	cmd.Env = append(os.Environ(), append(env, envDivided+"=1", EnvOut+"="+out, EnvCluster+"=embedded", EnvCCM+"="+testedCCM)...)
	if printed, err := cmd.CombinedOutput(); err != nil && !strings.Contains(string(printed), "Ran ") {
		t.Fatalf("%v\n%s", err, printed)
	}
	return out
}

func readRun(t *testing.T, folder string) (run speclist.Run) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, speclist.File))
	if err == nil {
		err = json.Unmarshal(text, &run)
	}
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// timeless removes what differs between two runs of the same specs.
func timeless(run speclist.Run) speclist.Run {
	run.Time, run.Seconds, run.Seed = time.Time{}, 0, 0
	for i, s := range run.Specs {
		s.Seconds, s.Begin, s.Steps = 0, time.Time{}, slices.Clone(s.Steps)
		for j := range s.Steps {
			s.Steps[j].At = 0
		}
		if s.Failure != nil {
			s.Failure.At = 0
		}
		run.Specs[i] = s
	}
	return run
}

func TestTheMergedShardsEqualARunOfAllSpecs(t *testing.T) {
	t.Parallel()
	whole := runDivided(t)
	var folders []string
	ran := map[string]int{}
	for i := range 3 {
		folders = append(folders, runDivided(t, fmt.Sprintf("%s=%d/3", EnvShard, i+1)))
		run := readRun(t, folders[i])
		specs := 0
		for _, s := range run.Specs {
			if s.Result != speclist.NotHere {
				ran[s.Name]++
				specs++
			}
		}
		if specs < 3 || run.Shard != fmt.Sprintf("%d/3", i+1) || run.LeftOut == 0 {
			t.Errorf("shard %d has %d specs, left out %d, and calls itself %q", i+1, specs, run.LeftOut, run.Shard)
		}
	}
	for name, times := range ran {
		if times != 1 {
			t.Errorf("%s ran in %d shards", name, times)
		}
	}
	merged := t.TempDir()
	slices.Reverse(folders)
	if _, err := merge(merged, folders...); err != nil {
		t.Fatal(err)
	}
	if got, want := timeless(readRun(t, merged)), timeless(readRun(t, whole)); !reflect.DeepEqual(got, want) || len(got.Specs) != 20 {
		t.Errorf("the merged specs.json has %d specs:\n%+v\nwant %d:\n%+v", len(got.Specs), got, len(want.Specs), want)
	}
	numbers := regexp.MustCompile(`in [\d.]+m?s|seed \d+|time="[\d.]+"|timestamp="[^"]*"|at \w+ \d+ [\d:.]+`)
	text := func(folder string) string {
		junit, err := os.ReadFile(filepath.Join(folder, "junit.xml"))
		if err != nil {
			t.Fatal(err)
		}
		return numbers.ReplaceAllString(report.Results(readRun(t, folder))+string(junit), "#")
	}
	if got, want := text(merged), text(whole); got != want || !strings.Contains(got, "survives 1 of 1 incidents") {
		t.Errorf("the results of the merged run:\n%s\nwant\n%s", got, want)
	}
	if _, err := os.Stat(filepath.Join(merged, report.File)); err != nil {
		t.Error(err)
	}
}

func TestAMissingShardIsNamed(t *testing.T) {
	t.Parallel()
	second, merged := runDivided(t, EnvShard+"=2/3"), t.TempDir()
	if run, err := merge(merged, second); err != nil || run.Incomplete != "shard 1/3 is missing, shard 3/3 is missing" || run.Shard != "" ||
		run.LeftOut == 0 {
		t.Errorf("the merged run: %v, %q, %q, %d", err, run.Incomplete, run.Shard, run.LeftOut)
	}
	whole := runDivided(t)
	if _, err := merge(merged, second, whole); err == nil || !strings.Contains(err.Error(), "not the folder of a shard") {
		t.Errorf("with a whole run: got %v", err)
	}
	if _, err := merge(merged, second, runDivided(t, EnvShard+"=1/2")); err == nil ||
		!strings.Contains(err.Error(), "is a shard of another run than "+second) {
		t.Errorf("with one of another run: got %v", err)
	}
	if _, err := merge(merged); err == nil || !strings.Contains(err.Error(), "name their folders") {
		t.Errorf("of nothing: got %v", err)
	}
}

func TestAnEarlierRunDividesTheSpecs(t *testing.T) {
	t.Parallel()
	whole := readRun(t, runDivided(t))
	for i := range whole.Specs {
		whole.Specs[i].Seconds = 1
		if name := whole.Specs[i].Name; name == "Node fails" || name == "Node needs pods" { // the second cannot run here
			whole.Specs[i].Seconds = 1000
		}
	}
	folder := t.TempDir()
	if err := whole.Write(folder); err != nil {
		t.Fatal(err)
	}
	run := readRun(t, runDivided(t, EnvShard+"=1/2", shards.EnvDurations+"="+filepath.Join(folder, speclist.File)))
	results := map[string]speclist.Result{}
	for _, s := range run.Specs {
		results[s.Name] = s.Result
	}
	if want := map[string]speclist.Result{"Node fails": speclist.Failed, "Node needs pods": speclist.NotHere}; !maps.Equal(results, want) {
		t.Errorf("the shard with the long spec: %v", results)
	}
}
