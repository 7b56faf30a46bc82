package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// choose returns the packages that the settings name, in random order.
func choose(ctx context.Context, out io.Writer, lines string, setting func(string) string) []*pkg {
	var packages []*pkg
	here, _ := filepath.Abs(".")
	words := strings.Fields(cmp.Or(setting("PACKAGES"), "..."))
	for line := range strings.Lines(lines) {
		fields := append(strings.Fields(line), "")
		p := &pkg{path: fields[1], work: fields[2]}
		p.folder, _ = filepath.Rel(here, fields[0])
		p.folder = filepath.ToSlash(p.folder)
		if slices.ContainsFunc(words, func(word string) bool {
			prefix, all := strings.CutSuffix(path.Clean(word), "...")
			return path.Clean(prefix) == p.folder || all && strings.HasPrefix(p.folder, prefix)
		}) {
			packages = append(packages, p)
		}
	}
	rand.Shuffle(len(packages), func(i, j int) { packages[i], packages[j] = packages[j], packages[i] })
	if setting("CHANGED") == "" {
		return packages
	}
	base, name := since(ctx)
	if base == "" {
		fmt.Fprintln(out, "stress: this clone has no earlier commit to compare with: all packages, in random order")
		return packages
	}
	packages = slices.DeleteFunc(packages, func(p *pkg) bool {
		return git(ctx, "diff", "--name-only", base, "--", ":(glob)"+p.folder+"/*", p.folder+"/testdata") == ""
	})
	fmt.Fprintf(out, "stress: %d packages differ from %s\n", len(packages), name)
	return packages
}

// since returns the commit that the packages are compared with, and its name for people.
func since(ctx context.Context) (commit, name string) {
	if base := git(ctx, "merge-base", "HEAD", "origin/main"); base != "" && base != git(ctx, "rev-parse", "HEAD") {
		return base, "origin/main, at " + base
	}
	if tag := git(ctx, "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^"); tag != "" {
		return tag, "the release " + tag
	}
	return git(ctx, "rev-parse", "--verify", "--quiet", "HEAD^"), "the commit before, since there is no release yet"
}

// git returns what a command of git prints, and nothing where it fails.
func git(ctx context.Context, args ...string) string {
	out, _ := exec.CommandContext(ctx, "git", args...).Output()
	return strings.TrimSpace(string(out))
}

// report prints the tests that did not end the same each time, or failed each time, and returns their number.
func report(out io.Writer, race string, results map[string]*result) (differ int) {
	names := slices.Sorted(maps.Keys(results))
	bad := func(name string) bool { return len(results[name].ends) > 1 || results[name].ends["fail"] > 0 }
	for _, name := range names {
		r := results[name]
		// A test ends as its subtests do: those are named.
		if !bad(name) || slices.ContainsFunc(names, func(sub string) bool { return strings.HasPrefix(sub, name+"/") && bad(sub) }) {
			continue
		}
		differ++
		total := r.ends["pass"] + r.ends["fail"] + r.ends["skip"]
		_, test, _ := strings.Cut(name, " ")
		pattern := strings.ReplaceAll(regexp.QuoteMeta(test), "'", ".")
		command := fmt.Sprintf("go test -C %s -run '^%s$' -shuffle=on -cpu=1,2,4 -count=20 %s", r.pkg.folder,
			strings.ReplaceAll(pattern, "/", "$/^"), race)
		if r.pkg.work != "" {
			command = "GOWORK=" + r.pkg.work + " " + command
		}
		fmt.Fprintf(out, "%s of %s: %d of %d times failed, %d times skipped\n  again: %s\n%s", test, r.pkg.path, r.ends["fail"], total,
			r.ends["skip"], strings.TrimSpace(command), r.printed)
	}
	return differ
}
