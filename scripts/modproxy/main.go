// Command modproxy writes the released modules of this checkout as the files of a Go module proxy, so that a release can be tried before
// its tags exist.
//
//	go run ./scripts/modproxy FOLDER    in the root; at the version of fakecloud that go.mod requires
//
// It prints the settings with which go uses them, for the shell.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

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
	env, err := proxy(context.Background(), ".", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "modproxy:", err)
		os.Exit(1)
	}
	for _, setting := range env {
		name, value, _ := strings.Cut(setting, "=")
		fmt.Printf("export %s='%s'\n", name, value)
	}
}

// proxy writes the modules of the checkout in the folder from, and returns the settings of the environment for go. Go's module cache is a
// new one in the folder to: the user's must not keep a release that is yet to be made. Other modules come from the user's cache.
func proxy(ctx context.Context, from, to string) (env []string, err error) {
	if to, err = filepath.Abs(to); err != nil {
		return nil, err
	}
	known, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	modules, upstream, _ := strings.Cut(strings.TrimSpace(string(known)), "\n")
	if err := write(ctx, from, filepath.Join(to, "proxy")); err != nil {
		return nil, err
	}
	return []string{
		"GOWORK=off", "GOMODCACHE=" + filepath.Join(to, "cache"),
		"GOFLAGS=-modcacherw", // so that the folder can be removed
		"GOPROXY=file://" + filepath.Join(to, "proxy") + ",file://" + filepath.Join(modules, "cache", "download") + "," + upstream,
		"GONOSUMDB=" + root, // the checksum database does not know a release that is yet to be made
	}, nil
}

// write writes the modules of the checkout in the folder from.
func write(ctx context.Context, from, to string) error {
	tmp, err := os.MkdirTemp("", "modproxy-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := copyCheckout(ctx, from, tmp); err != nil {
		return err
	}
	version, err := requiredVersion(filepath.Join(tmp, "files"))
	if err != nil {
		return err
	}
	for path, folder := range released {
		m := module.Version{Path: path, Version: version}
		if err := writeModule(filepath.Join(tmp, "files", folder), filepath.Join(to, path, "@v"), m); err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
	}
	return nil
}

// copyCheckout copies all files of a checkout that git does not ignore to the folder files. Git writes to another index.
func copyCheckout(ctx context.Context, from, to string) error {
	for _, args := range [][]string{{"add", "-A"}, {"checkout-index", "-a", "--prefix=" + filepath.Join(to, "files") + "/"}} {
		cmd := exec.CommandContext(ctx, "git", append([]string{"-C", from}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_INDEX_FILE="+filepath.Join(to, "index"))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %v in %s: %w: %s", args, from, err, out)
		}
	}
	return nil
}

// requirement matches the requirement of fakecloud in a go.mod.
var requirement = regexp.MustCompile(`(?m)^\s+` + regexp.QuoteMeta(fakecloud) + ` (v\S+)$`)

// requiredVersion returns the version of fakecloud that the root module requires. It is that of the next release.
func requiredVersion(folder string) (string, error) {
	text, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	found := requirement.FindSubmatch(text)
	if err == nil && found == nil {
		err = errors.New("go.mod does not require " + fakecloud)
	}
	if err != nil {
		return "", err
	}
	return string(found[1]), nil
}

// writeModule writes the four files of one version: its zip, its go.mod, its time and the list of versions.
func writeModule(from, to string, m module.Version) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	archive, err := os.Create(filepath.Join(to, m.Version+".zip"))
	if err != nil {
		return err
	}
	err = errors.Join(zip.CreateFromDir(archive, m, from), archive.Close())
	text, err2 := os.ReadFile(filepath.Join(from, "go.mod"))
	info, err3 := json.Marshal(map[string]any{"Version": m.Version, "Time": time.Unix(0, 0).UTC()})
	if err = errors.Join(err, err2, err3); err != nil {
		return err
	}
	for suffix, text := range map[string][]byte{m.Version + ".mod": text, m.Version + ".info": info, "list": []byte(m.Version + "\n")} {
		if err := os.WriteFile(filepath.Join(to, suffix), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
