package cluster

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// registry fakes a Docker that has images, and a registry that answers or does not. It returns the path of Docker's log.
func registry(t *testing.T, answers bool, images ...string) (log string) {
	t.Helper()
	log = filepath.Join(t.TempDir(), "log")
	known := " " + strings.Join(images, " ") + " "
	pull := "echo 'lookup registry: no such host' >&2; exit 1"
	if answers {
		pull = "echo layer: Download complete"
	}
	fakeDocker(t, `echo "$*" >>`+log+`
case "$1 $2" in
"image inspect") for name; do :; done; case "`+known+`" in *" $name "*) ;; *) exit 1 ;; esac ;;
"pull "*) `+pull+` ;;
esac`)
	return log
}

func TestKindsOwnImageIsTheOrdinaryWay(t *testing.T) {
	log := registry(t, false, KindImage)
	if name, err := EnsureImage(t.Context(), ImageAuto, nil); err != nil || name != KindImage {
		t.Fatalf("%s, %v", name, err)
	}
	if Built(KindImage) || !Built(builtImages+":0123") {
		t.Error("a person is told of what the wrong image lacks")
	}
	if said, _ := os.ReadFile(log); strings.Contains(string(said), "pull") {
		t.Errorf("it was pulled again: %s", said)
	}
	for _, from := range []string{"", ImageAuto, ImagePull} {
		registry(t, true)
		var out bytes.Buffer
		name, err := EnsureImage(t.Context(), from, &out)
		if err != nil || name != KindImage {
			t.Errorf("%s: %s, %v", from, name, err)
		}
		for _, want := range []string{"pulling " + KindImage, "Download complete"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: a person is told %q", from, out.String())
			}
		}
	}
}

func TestAnImageByNameMustBeThere(t *testing.T) {
	registry(t, true, "mine:1")
	if name, err := EnsureImage(t.Context(), "mine:1", nil); err != nil || name != "mine:1" {
		t.Errorf("%s, %v", name, err)
	}
	if _, err := EnsureImage(t.Context(), "mine:2", nil); err == nil || !strings.Contains(err.Error(), "mine:2: Docker does not have it") {
		t.Errorf("got %v", err)
	}
}

func TestWithoutARegistryPullSaysWhy(t *testing.T) {
	registry(t, false)
	if _, err := EnsureImage(t.Context(), ImagePull, nil); err == nil || !strings.Contains(err.Error(), "no such host") {
		t.Errorf("got %v", err)
	}
}

func TestWhatKindSaysWhileItIsStoppedIsNotShown(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := &logger{out: &out}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	context.AfterFunc(ctx, func() { l.silence("stopping"); close(done) })
	l.V(0).Info("Installing StorageClass")
	stop()
	<-done
	l.Error("failed to add default storage class")
	if got := out.String(); got != "Installing StorageClass\nstopping\n" {
		t.Errorf("%q", got)
	}
}
