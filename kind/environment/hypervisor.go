package environment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/remote"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodes"
)

// hypervisorName is the hypervisor's name in the cloud.
const hypervisorName = "kind"

// RunHypervisor keeps the environment's servers and containers in step until the context is done. It returns an error only if another
// hypervisor takes its place.
func (e *Environment) RunHypervisor(ctx context.Context, log *slog.Logger) error {
	driver := e.driver()
	driver.Logger = log
	// It is another one after each attachment, and the hypervisor reports only while it is attached.
	var cloud atomic.Pointer[remote.Client]
	return nodes.New(nodes.Options{
		Attach: func(ctx context.Context) (hypervisor.Session, error) {
			// Docker publishes at another port after a restart.
			if err := e.connect(ctx); err != nil {
				return nil, err
			}
			c := remote.New(e.Control)
			cloud.Store(c)
			return c.AttachHypervisor(ctx, hypervisor.Options{Name: hypervisorName, Selector: nodes.Selector})
		},
		ReportUsage: func(ctx context.Context, server int64, u hypervisor.Usage) error {
			return cloud.Load().ReportServerUsage(ctx, server, u)
		},
		Driver: driver, Logger: log,
	}).Run(ctx)
}

// files of the hypervisor's process.
func hypervisorFiles(cluster string) (log, pid string, err error) {
	folder, err := Folder(cluster)
	return filepath.Join(folder, "hypervisor.log"), filepath.Join(folder, "hypervisor.pid"), err
}

// hypervisor starts the hypervisor in the background, where it outlives this process,
// and returns when it is attached to the cloud.
func (o Options) hypervisor(ctx context.Context, e *Environment) error {
	if len(o.Hypervisor) == 0 {
		return nil
	}
	logPath, pidPath, err := hypervisorFiles(e.Name)
	if err != nil {
		return err
	}
	if pid, err := hypervisorProcess(ctx, e.Name); err != nil || pid != 0 {
		return err
	}
	log, err := os.Create(logPath)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	// It continues after the end of the context and of this process.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), o.Hypervisor[0], o.Hypervisor[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a terminal's Ctrl-C is not for it
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := os.WriteFile(pidPath, []byte(strconv.Itoa(cmd.Process.Pid)), 0o644); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	return wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
		select {
		case err := <-ended:
			return false, fmt.Errorf("it has ended: %w; its log is %s", errors.Join(err, errors.New("too early")), logPath)
		default:
		}
		said, err := os.ReadFile(logPath)
		return strings.Contains(string(said), "attached to the cloud"), err
	})
}

// HypervisorLog returns the hypervisor's log since its start.
func (e *Environment) HypervisorLog() (string, error) {
	path, _, err := hypervisorFiles(e.Name)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(path)
	return string(text), err
}

// hypervisorProcess returns the process id of the cluster's hypervisor, 0 if it does not run.
func hypervisorProcess(ctx context.Context, cluster string) (int, error) {
	_, pidPath, err := hypervisorFiles(cluster)
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(pidPath)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", pidPath, err)
	}
	if !isHypervisor(ctx, pid, cluster) {
		return 0, nil
	}
	return pid, nil
}

// stopHypervisor ends the hypervisor that was started in the background, if it runs, and waits for its end.
func stopHypervisor(ctx context.Context, cluster string) error {
	pid, err := hypervisorProcess(ctx, cluster)
	if err != nil || pid == 0 {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("the hypervisor, process %d: %w", pid, err)
	}
	if err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		return !isHypervisor(ctx, pid, cluster), nil
	}); err != nil {
		return fmt.Errorf("the hypervisor, process %d, does not end: %w", pid, err)
	}
	return nil
}

// isHypervisor reports whether a process is the cluster's hypervisor, and not a later process with the same number.
func isHypervisor(ctx context.Context, pid int, cluster string) bool {
	arguments, err := run(ctx, "ps", "-o", "args=", "-p", strconv.Itoa(pid))
	return err == nil && strings.Contains(arguments, " hypervisor ") && strings.HasSuffix(arguments, "--name="+cluster)
}

// removeFolder removes the environment's files on disk.
func removeFolder(cluster string) error {
	folder, err := Folder(cluster)
	if err != nil {
		return err
	}
	return os.RemoveAll(folder)
}
