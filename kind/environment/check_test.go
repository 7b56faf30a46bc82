package environment

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/kind/cluster"
)

// noDocker makes each call of docker write its arguments into the file that is returned.
func noDocker(t *testing.T) (calls string) {
	t.Helper()
	calls = filepath.Join(t.TempDir(), "calls")
	t.Setenv("CALLS", calls)
	fakeDocker(t, `echo "$*" >>"$CALLS"; exit 1`)
	return calls
}

func TestSettingsAreCheckedBeforeDockerIsAsked(t *testing.T) {
	calls := noDocker(t)
	for want, change := range map[string]func(*Options){
		`KIND_NAME="..": must be at most 40 lower-case letters`:               func(o *Options) { o.Cluster.Name = ".." },
		"--workers=253: must be from 0 to 252":                                func(o *Options) { o.Cluster.Workers = 253 },
		"--node-monitor-grace-period=1ms: must be whole seconds":              func(o *Options) { o.Cluster.NodeMonitorGracePeriod = 1e6 },
		`action profile "slow": must be instant, realistic or a duration`:     func(o *Options) { o.Actions = "slow" },
		"rate limit -1: must be 1 to ":                                        func(o *Options) { o.RateLimit = -1 },
		"--control-port=4242: is that of --api-port, too: choose another":     func(o *Options) { o.APIPort, o.ControlPort = 4242, 4242 },
		"--timeout=-1s: must not be negative":                                 func(o *Options) { o.Timeout = -time.Second },
		"no-such.tar: no such file or directory; name a file that docker sav": func(o *Options) { o.CCMArchive = "no-such.tar" },
	} {
		var out bytes.Buffer
		o := Options{Cluster: cluster.Options{Name: "x"}, Progress: &out}
		change(&o)
		if _, err := Up(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) || out.Len() > 0 {
			t.Errorf("got %v, want %q; shown: %s", err, want, out.String())
		}
	}
	if text, err := os.ReadFile(calls); err == nil {
		t.Errorf("docker was called: %s", text)
	}
}

func TestAPortThatIsUsedIsFoundBeforeAnythingIsBuilt(t *testing.T) {
	fakeDocker(t, "exit 0")
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	n, _ := strconv.ParseUint(port, 10, 16)
	archive := writeFile(t, "")
	o := Options{
		Cluster: cluster.Options{Name: "x", Image: "node:1"}, ControlPort: uint16(n),
		CloudArchive: archive, ProbeArchive: archive, CCMArchive: archive, // should it go on, nothing is compiled
	}
	want := "--control-port=" + port + ": another program uses the port"
	if _, err := Up(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
}

func TestTwoProcessesDoNotChangeOneEnvironment(t *testing.T) {
	calls := noDocker(t)
	unlock, err := lock("x")
	if err != nil {
		t.Fatal(err)
	}
	_, up := Up(t.Context(), Options{Cluster: cluster.Options{Name: "x"}})
	want := "the cluster x is being made or removed by another process, " + strconv.Itoa(os.Getpid()) + ": wait"
	for command, err := range map[string]error{"up": up, "down": Down(t.Context(), "x")} {
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", command, err, want)
		}
	}
	if text, err := os.ReadFile(calls); err == nil {
		t.Errorf("docker was called: %s", text)
	}
	other, err := lock("y")
	if err != nil {
		t.Fatalf("another name has another lock: %v", err)
	}
	other()
	unlock()
	if unlock, err = lock("x"); err != nil {
		t.Fatal(err)
	}
	unlock()
}

// A name such as .. once made Down remove the cache of all clusters.
func TestOnlyTheFolderOfAClusterIsRemoved(t *testing.T) {
	noDocker(t)
	folder, err := Folder("x")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", ".", "..", "../..", "x/..", "X"} {
		if err := Down(t.Context(), name); err == nil || !strings.HasPrefix(err.Error(), "KIND_NAME=") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(folder); err != nil {
		t.Error(err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestAnInterruptIsSaidOnce(t *testing.T) {
	fakeDocker(t, "exit 0")
	for _, step := range []string{"node image ...", "image fakecloud:kind ..."} {
		ctx, cancel := context.WithCancelCause(t.Context())
		var shown bytes.Buffer
		_, err := Up(ctx, Options{
			Cluster: cluster.Options{Name: "x"}, NodeImage: "node:1",
			Progress: writerFunc(func(p []byte) (int, error) {
				if strings.Contains(string(p), step) {
					cancel(errors.New("interrupt signal received"))
				}
				return shown.Write(p)
			}),
		})
		if err == nil || err.Error() != "stopped (interrupt signal received): what it had made is removed" {
			t.Errorf("%s: got %v after\n%s", step, err, shown.String())
		}
	}
}
