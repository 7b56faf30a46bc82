package cluster

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// janitorScript waits until its standard input ends, and then kills and deletes.
//
//go:embed janitor.sh
var janitorScript string

// janitor is a small shell process that outlives us by a moment. It reads from a pipe that the system closes when this process ends, even
// by a kill or a panic. Then the janitor kills every process that has a note in the cluster's folder, and deletes the folder.
//
// Linux's parent-death signal does not exist on macOS, leaves files behind, and fires even if only the thread ends that started a process.
type janitor struct {
	dir  string
	pids string // folder of files that are named after a program and hold its number
	pipe io.Closer
	cmd  *exec.Cmd
}

// hireJanitor starts the janitor of the cluster's folder.
func hireJanitor(dir string) (*janitor, error) {
	j := &janitor{dir: dir, pids: filepath.Join(dir, "pids")}
	if err := os.Mkdir(j.pids, 0o700); err != nil {
		return nil, err
	}
	//nolint:noctx // it must outlive everything that could cancel it
	j.cmd = exec.Command("/bin/sh", "-c", janitorScript, "janitor", dir)
	// The new session keeps a terminal's Ctrl-C away from it.
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := j.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	j.pipe = pipe
	if err := j.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the janitor: %w", err)
	}
	return j, nil
}

// wrap writes a script that notes its process number for the janitor under the name and then becomes the program at path. It is for
// programs that envtest starts. When the janitor is gone, and the folder with it, the script refuses to start anything.
func (j *janitor) wrap(name, path string) (string, error) {
	script := filepath.Join(j.dir, name)
	note := filepath.Join(j.pids, name)
	text := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = --help ] || echo $$ > %s || exit 1\nexec %s \"$@\"\n", quote(note), quote(path))
	return script, os.WriteFile(script, []byte(text), 0o700)
}

// note tells the janitor to kill the process group that pid leads. forget removes the note.
func (j *janitor) note(name string, pid int) error {
	return os.WriteFile(filepath.Join(j.pids, name), []byte(strconv.Itoa(pid)+"\n"), 0o600)
}

func (j *janitor) forget(name string) error {
	err := os.Remove(filepath.Join(j.pids, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// end kills programs that wrap made scripts for, at once: their files are deleted anyway, and kube-apiserver would first wait for all
// watches to end.
func (j *janitor) end(names ...string) error {
	var errs []error
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(j.pids, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
		if err != nil || pid <= 1 {
			errs = append(errs, fmt.Errorf("%s holds no process number: %q", name, data))
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("cannot kill %s: %w", name, err))
		}
		errs = append(errs, j.forget(name))
	}
	return errors.Join(errs...)
}

// dismiss lets the janitor do its work now, and waits for its end.
func (j *janitor) dismiss() error {
	_ = j.pipe.Close()
	if err := j.cmd.Wait(); err != nil {
		return errors.Join(fmt.Errorf("the janitor failed: %w", err), os.RemoveAll(j.dir))
	}
	return nil
}

// quote makes one shell word of s.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
