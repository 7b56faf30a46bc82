package kubernetes

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// archive packs files as envtest's archives are packed.
func archive(t *testing.T, names ...string) []byte {
	t.Helper()
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	files := tar.NewWriter(zipped)
	for _, name := range names {
		text := []byte("this is " + name)
		header := tar.Header{Name: "controller-tools/envtest/" + name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(text))}
		if err := files.WriteHeader(&header); err != nil {
			t.Fatal(err)
		}
		if _, err := files.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

func TestPublishedProgramsAreDownloadedAndChecked(t *testing.T) {
	t.Parallel()
	const manager = "this is kube-controller-manager"
	good := archive(t, "etcd", "kube-apiserver", "kubectl", "another")
	for name, test := range map[string]struct {
		archive    []byte
		archiveSum []byte
		managerSum string
		release    string
		want       string // in the error
	}{
		"all well": {archive: good, archiveSum: good, managerSum: manager, release: "v9.9.9"},
		"a changed archive": {archive: good, archiveSum: []byte("else"), managerSum: manager, release: "v9.9.9",
			want: "checksum mismatch"},
		"a changed program": {archive: good, archiveSum: good, managerSum: "else", release: "v9.9.9", want: "its checksum is"},
		"an unknown release": {archive: good, archiveSum: good, managerSum: manager, release: "v9.9.8",
			want: "unable to find archive for 9.9.9"},
		"a missing program": {archive: archive(t, "etcd"), archiveSum: archive(t, "etcd"), managerSum: manager, release: "v9.9.9",
			want: "kube-apiserver: no such file"},
		"no archive at all": {archive: []byte("html"), archiveSum: []byte("html"), managerSum: manager, release: "v9.9.9", want: "un-gz"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mux := http.NewServeMux()
			server := httptest.NewServer(mux)
			defer server.Close()
			serve := func(path, body string) {
				mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
			}
			serve("/index.yaml", fmt.Sprintf("releases:\n  %s:\n    envtest-%s-linux-amd64.tar.gz:\n      hash: %x\n      selfLink: "+
				"%s/archive\n",
				test.release, test.release, sha512.Sum512(test.archiveSum), server.URL))
			serve("/archive", string(test.archive))
			serve("/v9.9.9/bin/linux/amd64/kube-controller-manager", manager)
			serve("/v9.9.9/bin/linux/amd64/kube-controller-manager.sha256", fmt.Sprintf("%x\n", sha256.Sum256([]byte(test.managerSum))))

			dir := t.TempDir()
			options := Options{Source: Source{Kubernetes: "v9.9.9"}, Platform: Platform{OS: "linux", Arch: "amd64"}}
			err := publisher{index: server.URL + "/index.yaml", releases: server.URL}.download(t.Context(), options, dir)
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want an error that says %q", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"etcd", "kube-apiserver", "kubectl", "kube-controller-manager"} {
				path := filepath.Join(dir, name)
				if data, err := os.ReadFile(path); err != nil || string(data) != "this is "+name {
					t.Errorf("%s holds %q, %v", name, data, err)
				}
				if err := usable(path); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
