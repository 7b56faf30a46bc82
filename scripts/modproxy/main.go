// Command modproxy writes the released modules of this checkout as the files of a Go module proxy, so that a release can be tried before
// its tags exist.
//
//	go run ./scripts/modproxy FOLDER    in the root; at the version of fakecloud that go.mod requires
//
// It prints the settings with which go uses them, for the shell.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// The released modules, by their folders. All have the same version.
const (
	root        = "github.com/ccm-from-scratch/ccm-from-scratch"
	e2e         = root + "/e2e"
	fakecloud   = root + "/fakecloud"
	gomegacloud = fakecloud + "/gomegacloud"
)

var released = map[string]string{root: "", e2e: "e2e", fakecloud: "fakecloud", gomegacloud: "fakecloud/gomegacloud"}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: modproxy FOLDER")
		os.Exit(2)
	}
	env, _, err := proxy(context.Background(), ".", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "modproxy:", err)
		os.Exit(1)
	}
	for _, setting := range env {
		name, value, _ := strings.Cut(setting, "=")
		fmt.Printf("export %s='%s'\n", name, value)
	}
}

// requirement matches the requirement of fakecloud in a go.mod.
var requirement = regexp.MustCompile(`(?m)^\s+` + regexp.QuoteMeta(fakecloud) + ` (v\S+)$`)

// proxy writes the modules of the checkout in the folder from, and returns the settings of the environment for go, and their version: that
// of fakecloud that the root module requires. Go's module cache is a new one in the folder to: the user's must not keep a release that is
// yet to be made. Other modules come from the user's cache.
func proxy(ctx context.Context, from, to string) (env []string, version string, err error) {
	if to, err = filepath.Abs(to); err != nil {
		return nil, "", err
	}
	known, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		return nil, "", fmt.Errorf("go env: %w", err)
	}
	modules, upstream, _ := strings.Cut(strings.TrimSpace(string(known)), "\n")
	// All files that git does not ignore. Git writes to another index.
	files := filepath.Join(to, "files")
	for _, args := range [][]string{{"add", "-A"}, {"checkout-index", "-a", "--prefix=" + files + "/"}} {
		cmd := exec.CommandContext(ctx, "git", append([]string{"-C", from}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_INDEX_FILE="+filepath.Join(to, "index"))
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, "", fmt.Errorf("git %v in %s: %w: %s", args, from, err, out)
		}
	}
	text, err := os.ReadFile(filepath.Join(files, "go.mod"))
	found := requirement.FindSubmatch(text)
	if err != nil || found == nil {
		return nil, "", errors.Join(err, fmt.Errorf("%s/go.mod does not require %s", from, fakecloud))
	}
	version = string(found[1])
	for path, folder := range released {
		m := module.Version{Path: path, Version: version}
		if err := writeModule(filepath.Join(files, folder), filepath.Join(to, "proxy", path, "@v"), m); err != nil {
			return nil, "", fmt.Errorf("%s: %w", m, err)
		}
	}
	return []string{
		"GOWORK=off", "GOMODCACHE=" + filepath.Join(to, "cache"),
		"GOFLAGS=-modcacherw", // so that the folder can be removed
		"GOPROXY=file://" + filepath.Join(to, "proxy") + ",file://" + filepath.Join(modules, "cache", "download") + "," + upstream,
		"GONOSUMDB=" + root, // the checksum database does not know a release that is yet to be made
	}, version, os.RemoveAll(files)
}

// writeModule writes the four files of one version: its zip, its go.mod, its time and the list of versions.
func writeModule(from, to string, m module.Version) error {
	text, err := os.ReadFile(filepath.Join(from, "go.mod"))
	if err = errors.Join(err, os.MkdirAll(to, 0o755)); err != nil {
		return err
	}
	for name, text := range map[string]string{
		m.Version + ".mod": string(text), "list": m.Version + "\n",
		m.Version + ".info": fmt.Sprintf(`{"Version": %q, "Time": "1970-01-01T00:00:00Z"}`, m.Version),
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(to, name), []byte(text), 0o644))
	}
	archive, err2 := os.Create(filepath.Join(to, m.Version+".zip"))
	if err = errors.Join(err, err2); err != nil {
		return err
	}
	return errors.Join(zip.CreateFromDir(archive, m, from), archive.Close())
}
