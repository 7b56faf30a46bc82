package cloudinit

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// node runs scripts in a folder.
type node struct {
	*testing.T
	root string
	Instance
}

func newNode(t *testing.T) *node {
	root := t.TempDir()
	return &node{t, root, Instance{
		ID: 42, Hostname: "node-1", AvailabilityZone: "fsn1-dc14", Region: "eu-central",
		Dir: filepath.Join(root, "instance"), Log: filepath.Join(root, "log", "output"),
	}}
}

// data replaces ROOT in user data by the folder.
func (n *node) data(userData string) string { return strings.ReplaceAll(userData, "ROOT", n.root) }

// boot runs the user data and returns the script's error.
func (n *node) boot(userData string) error {
	n.Helper()
	s, err := Compile(n.data(userData), n.Instance)
	if err != nil {
		n.Fatal(err)
	}
	cmd := exec.CommandContext(n.Context(), "sh")
	cmd.Stdin = bytes.NewReader(s.Text)
	out, err := cmd.CombinedOutput()
	if len(out) > 0 {
		n.Errorf("the script printed %q", out)
	}
	return err
}

func (n *node) want(file, content string) {
	n.Helper()
	b, err := os.ReadFile(filepath.Join(n.root, file))
	if err != nil || string(b) != n.data(content) {
		n.Errorf("%s: %q, %v; want %q", file, b, err, content)
	}
}

func (n *node) wantMode(file string, mode os.FileMode) {
	n.Helper()
	i, err := os.Stat(filepath.Join(n.root, file))
	if err != nil || i.Mode().Perm() != mode {
		n.Errorf("%s: %v, %v; want mode %o", file, i, err, mode)
	}
}

func gz64(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

func TestScriptsAreRun(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	if err := n.boot("#!/bin/sh\necho \"it's $0\" >ROOT/ran\necho said\npwd\n"); err != nil {
		t.Error(err)
	}
	n.want("ran", "it's ROOT/instance/scripts/part-001\n")
	n.want("log/output", "said\n/\n")
	n.want("instance/boot-finished", "")
	n.wantMode("instance/user-data.txt", 0o600)
}

func TestCloudConfigIsDoneInOrder(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	err := n.boot(`#cloud-config
hostname: whatever
runcmd:
- echo runcmd >>ROOT/order; cat ROOT/etc/deep/file >>ROOT/order
- [sh, -c, 'printf "%s|" "$@" >ROOT/words', sh, a b, "it's", 0x10, true, 10000000]
- null
bootcmd:
- test -e ROOT/etc/deep/file || echo bootcmd >>ROOT/order
write_files:
- path: ROOT/etc/deep/file
  permissions: '0600'
  content: |
    written
- path: ROOT/coded
  encoding: b64
  permissions: 0750
  content: |
    aGVs
    bG8=
- {path: ROOT/zipped, encoding: gz+b64, content: ` + gz64("zip") + `}
- {path: ROOT/etc/deep/file, append: true, content: more, defer: true, permissions: "0640"}
- path: ROOT/with space
`)
	if err != nil {
		t.Error(err)
	}
	n.want("order", "bootcmd\nruncmd\nwritten\nmore")
	n.want("words", "a b|it's|16|true|10000000|")
	n.want("coded", "hello")
	n.want("zipped", "zip")
	n.want("with space", "")
	n.wantMode("etc/deep/file", 0o640)
	n.wantMode("coded", 0o750)
	n.wantMode("zipped", 0o644)
}

func TestUserDataIsDoneOnce(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for range 3 {
		if err := n.boot("#!/bin/sh\necho x >>ROOT/times\n"); err != nil {
			t.Error(err)
		}
	}
	n.want("times", "x\n")
}

func TestWhatFailsIsSaidAndTheRestIsDone(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	err := n.boot(`#cloud-config
bootcmd: [ "false" ]
write_files:
- {path: /dev/null/impossible, content: x}
runcmd:
- "false"
- echo done >ROOT/done
`)
	if err == nil {
		t.Error("no error")
	}
	n.want("done", "done\n")
	n.want("instance/boot-finished", "")
	log, _ := os.ReadFile(n.Log)
	for _, line := range []string{"cloud-init: bootcmd failed\n", "cloud-init: write_files /dev/null/impossible failed\n"} {
		if !strings.Contains(string(log), line) {
			t.Errorf("the log does not say %q: %s", line, log)
		}
	}
}

func TestTemplatesKnowTheServer(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	err := n.boot(`## template: jinja
#cloud-config
write_files:
- path: ROOT/join.yaml
  content: |
    name: '{{ ds.meta_data.local_hostname }}'
    id: hcloud://{{v1.instance_id}}
    zone: {{ ds.meta_data.availability-zone }} {{ v1.region }} {{ cloud_name }}
`)
	if err != nil {
		t.Error(err)
	}
	n.want("join.yaml", "name: 'node-1'\nid: hcloud://42\nzone: fsn1-dc14 eu-central hetzner\n")
}

func TestMessagesOfSeveralParts(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	text := `Content-Type: multipart/mixed; boundary="==B=="
MIME-Version: 1.0

--==B==
Content-Type: text/cloud-config; charset="us-ascii"
MIME-Version: 1.0
Content-Transfer-Encoding: base64

` + base64.StdEncoding.EncodeToString([]byte("#cloud-config\nruncmd: [echo runcmd >>ROOT/order]\n")) + `
--==B==
Content-Type: text/x-shellscript

#!/bin/sh
echo script >>ROOT/order
--==B==
Content-Type: text/plain

#cloud-config
runcmd: [echo second >>ROOT/order]
--==B==
Content-Type: text/x-include-url

https://example.com
--==B==--
`
	// The base64 of a folder's name is not known before.
	encoded := base64.StdEncoding.EncodeToString([]byte("#cloud-config\nruncmd: [echo runcmd >>ROOT/order]\n"))
	text = strings.Replace(text, encoded, base64.StdEncoding.EncodeToString([]byte(n.data("#cloud-config\nruncmd: [echo runcmd "+
		">>ROOT/order]\n"))), 1)
	if err := n.boot(text); err != nil {
		t.Error(err)
	}
	n.want("order", "script\nruncmd\nsecond\n")
	s, err := Compile(text, n.Instance)
	if err != nil || len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "text/x-include-url") {
		t.Errorf("%v, %v", s.Notes, err)
	}
}

func TestWhatIsNotHonouredIsSaid(t *testing.T) {
	t.Parallel()
	s, err := Compile("#cloud-config\npackages: [curl]\nusers: []\nfqdn: a.b\nruncmd: []\n", Instance{})
	if want := []string{`the module "packages" is left out`, `the module "users" is left out`}; err != nil || !slices.Equal(s.Notes, want) {
		t.Errorf("%v, %v; want %v", s.Notes, err, want)
	}
	for _, nothing := range []string{"", "\n", "#cloud-config\n"} {
		if s, err := Compile(nothing, Instance{}); err != nil || len(s.Notes) > 0 {
			t.Errorf("%q: %v, %v", nothing, s.Notes, err)
		}
	}
}

func TestUserDataThatCannotBeRead(t *testing.T) {
	t.Parallel()
	config := func(text string) string { return "#cloud-config\n" + text }
	for data, want := range map[string]string{
		"echo hello":                          "first line",
		config("{"):                           "#cloud-config",
		config("- a"):                         "#cloud-config",
		config("runcmd: a"):                   "runcmd",
		config("runcmd: [{a: b}]"):            "a command must be",
		config("runcmd: [[[a]]]"):             "a word of a command",
		config("write_files: [{path: a}]"):    "write_files.0: path",
		config("write_files: [{content: a}]"): "write_files.0: path",
		config("write_files: [{path: /a, permissions: rw}]"):               "permissions",
		config("write_files: [{path: /a, permissions: 99999}]"):            "permissions",
		config("write_files: [{path: /a, encoding: rot13}]"):               "encoding",
		config("write_files: [{path: /a, encoding: b64, content: '!'}]"):   "write_files.0",
		config("write_files: [{path: /a, encoding: gz+b64, content: aa}]"): "write_files.0",
		jinjaHeader + "\n#cloud-config\nruncmd: ['{{ v1.secret }}']":       `no variable "v1.secret"`,
		jinjaHeader + "\n#cloud-config\nruncmd: ['{{ region | upper }}']":  "filters",
		jinjaHeader + "\n#cloud-config\n{% if true %}":                     "statements",
		"Content-Type: multipart/mixed; boundary=b\n\n--b\n\nhello\n--b--": "part 1",
		"MIME-Version: 1.0\n\n": "content type",
		"Content-Type:":         "MIME message",
		"Content-Type":          "first line",
	} {
		if _, err := Compile(data, Instance{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", data, err, want)
		}
	}
}

func FuzzCompile(f *testing.F) {
	for _, seed := range []string{
		"#!/bin/sh\n", "#cloud-config\nruncmd: [a, [b, 1]]\nwrite_files: [{path: /a, content: b, permissions: '0644'}]",
		jinjaHeader + "\n#cloud-config\nruncmd: ['{{ v1.region }}']",
		"Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain\n\n#!/a\n--b--",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data string) {
		s, err := Compile(data, Instance{ID: 1})
		if err != nil {
			return
		}
		// Whatever it is, a shell can read what was made of it.
		cmd := exec.CommandContext(t.Context(), "sh", "-n")
		cmd.Stdin = bytes.NewReader(s.Text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Error(fmt.Errorf("%w: %s", err, out))
		}
	})
}
