package environment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/cluster"
)

// Check returns the mistakes in the settings. Up calls it before anything else: images take minutes to build.
func (o Options) Check() error {
	if err := o.Cluster.Check(); err != nil {
		return err
	}
	if o.APIPort != 0 && o.APIPort == o.ControlPort {
		return fmt.Errorf("--control-port=%d: is that of --api-port, too: choose another one", o.ControlPort)
	}
	if o.Timeout < 0 {
		return fmt.Errorf("--timeout=%s: must not be negative; 0 means no limit", o.Timeout)
	}
	for _, archive := range []string{o.CloudArchive, o.ProbeArchive, o.CCMArchive} {
		if archive == "" {
			continue
		}
		if _, err := os.Stat(archive); err != nil {
			return fmt.Errorf("cannot read an image: %w; name a file that docker save has written", err)
		}
	}
	// The cloud itself checks its settings.
	cloud, err := fakecloud.Open(fakecloud.Options{Actions: o.Actions, RateLimit: o.RateLimit})
	if err != nil {
		return err
	}
	cloud.Close()
	return nil
}

// checkPorts returns an error if another program uses one of the ports that the cloud is published at.
func (o Options) checkPorts(ctx context.Context) error {
	for flag, port := range map[string]uint16{"--api-port": o.APIPort, "--control-port": o.ControlPort} {
		if port == 0 {
			continue
		}
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
		if err != nil {
			return fmt.Errorf("%s=%d: another program uses the port: choose another one (%w)", flag, port, err)
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}

// lock lets one process at a time make, repair or remove an environment: two would take each other's half-made cluster for the
// remains of a killed one. The system gives the lock back when the process ends, in whatever way.
func lock(name string) (unlock func(), err error) {
	folder, err := Folder(name)
	if err != nil {
		return nil, err
	}
	// Not in the folder: Down removes that.
	file, err := os.OpenFile(folder+".lock", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		holder, _ := io.ReadAll(file) // without it, the message lacks the number
		err = fmt.Errorf("the cluster %s is being made or removed by another process, %s: wait for its end, or end it (kill %[2]s); "+
			"KIND_NAME and KIND_SUBNET make a second cluster", name, strings.TrimSpace(string(holder)))
	case err == nil:
		if err = file.Truncate(0); err == nil {
			_, err = file.WriteString(strconv.Itoa(os.Getpid()) + "\n")
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { _, _ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN), file.Close() }, nil // see job.Lock
}

// Folder is the folder of an environment's files on this host: archives of images, the hypervisor's log and process id.
func Folder(name string) (string, error) {
	if err := cluster.CheckName(name); err != nil {
		return "", err // another one could name a folder that is not ours, which Down would remove
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place for the cluster's files: %w", err)
	}
	folder := filepath.Join(cache, "ccm-from-scratch", "kind", name)
	return folder, os.MkdirAll(folder, 0o755)
}
