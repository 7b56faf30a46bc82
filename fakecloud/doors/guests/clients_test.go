package guests_test

import (
	"bytes"
	"encoding/pem"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"golang.org/x/crypto/ssh"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/doors/doorstest"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/doors/guests"
)

// TestTheClientsOfOpenSSH runs Debian's ssh, scp in both protocols, sftp and sshpass.
func TestTheClientsOfOpenSSH(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"ssh", "scp", "sftp", "sshpass"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is missing; apt-get install openssh-client sshpass", program)
		}
	}
	w := newWorld(t, guests.Options{Rules: []guests.Rule{{Match: "^nginx -v$", Stderr: "nginx/1.26.3\n", ExitCode: 3}}})
	server, _ := w.create("web-1", w.key)
	other, password := w.create("web-2")
	dir, address := w.clientFiles()
	options := "-F none -o UserKnownHostsFile=known -o LogLevel=ERROR "
	key, port := options+"-i id -o BatchMode=yes ", address[server.ID]
	for _, c := range []struct {
		command, want string
		status        int
	}{
		{"ssh " + key + "-p " + port + " root@127.0.0.1 hostname", "web-1\n", 0},
		{"ssh " + key + "-p " + port + " root@127.0.0.1 nginx -v", "nginx/1.26.3\n", 3},
		{"ssh " + key + "-p " + port + " admin@127.0.0.1 true", "admin@127.0.0.1: Permission denied (password,publickey).\n", 255},
		{"sshpass -p " + password + " ssh " + options + "-p " + address[other.ID] + " root@127.0.0.1 hostname", "web-2\n", 0},
		{"sshpass -p wrong ssh " + options + "-p " + address[other.ID] + " root@127.0.0.1 hostname",
			"Permission denied, please try again.\n", 5},
		{"scp -q " + key + "-P " + port + " -r up root@127.0.0.1:", "", 0},
		{"scp -q " + key + "-P " + port + " -r root@127.0.0.1:up sftp", "", 0},
		{"diff -r up sftp", "", 0},
		{"scp -O -q " + key + "-P " + port + " -p up/a up/empty root@127.0.0.1:/tmp", "", 0},
		{"scp -O -q " + key + "-P " + port + " root@127.0.0.1:/tmp/a scp", "", 0},
		{"cmp up/a scp", "", 0},
		{"scp -O -q " + key + "-P " + port + " up/a root@127.0.0.1:/none/a", "scp: \"/none/a\": No such file or directory\n", 1},
		{"sftp -q " + key + "-P " + port + " -b batch root@127.0.0.1", "", 0},
		{"cmp up/a y", "", 0},
		{"ssh " + key + "-p " + port + " root@127.0.0.1 cat up/below/b", "b\n", 0},
		{"ssh " + key + "-p " + port + " root@127.0.0.1 poweroff", "", 0},
	} {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "exec "+c.command)
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput()
		out = bytes.ReplaceAll(out, []byte("\r"), nil)
		if strings.HasPrefix(c.command, "sftp") {
			if !bytes.Contains(out, []byte("Remote working directory: /root\n")) || !bytes.Contains(out, []byte("-rw-------")) {
				t.Errorf("%s\n%s", c.command, out)
			}
			out = nil
		}
		if status := cmd.ProcessState.ExitCode(); status != c.status || string(out) != c.want {
			t.Errorf("%s\n%d %s\nwant %d %s", c.command, status, out, c.status, c.want)
		}
	}
}

// TestPackerBuildsAnImageAndAnsibleUsesItsServer has guests at port 22. Most machines give that to root only.
func TestPackerBuildsAnImageAndAnsibleUsesItsServer(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"packer", "ansible"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is missing; apt-get install packer ansible", program)
		}
	}
	if l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.65.22.1:22"); err != nil {
		t.Skipf("guests cannot have port 22 here: %v", err)
	} else {
		_ = l.Close()
	}
	w := newWorldWith(t, fakecloud.Options{PublicIPv4: netip.MustParsePrefix("127.65.22.0/24")},
		guests.Options{Rules: []guests.Rule{{Match: "^apt-get install", Output: "installed\n"}}})
	dir, _ := w.clientFiles()
	w.must(os.WriteFile(filepath.Join(dir, "build.json"), []byte(`{"builders": [{"type": "hcloud", "image": "debian-13", "location": "fsn1",
		"server_type": "cx23", "ssh_username": "root", "snapshot_name": "golden"}], "provisioners": [
		{"type": "shell", "inline": ["apt-get install -y nginx"]},
		{"type": "file", "source": "up/below/b", "destination": "/etc/golden"}]}`), 0o600))
	env := append(doorstest.Environ(t, w.cloud), "HOME="+dir, "CHECKPOINT_DISABLE=1")
	run := func(command string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "exec "+command)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		return strings.ReplaceAll(string(out), "\r", ""), err
	}
	if out, err := run("packer validate build.json"); err != nil {
		t.Skipf("this packer has no builder for hcloud: that of Debian has it: %s", out)
	}
	if out, err := run("packer build -color=false build.json"); err != nil || !strings.Contains(out, "hcloud: installed\n") {
		t.Fatalf("packer: %v\n%s", err, out)
	}
	images, err := w.client.Image.AllWithOpts(t.Context(), hcloud.ImageListOpts{Type: []hcloud.ImageType{hcloud.ImageTypeSnapshot}})
	w.must(err)
	if servers, err := w.client.Server.All(t.Context()); err != nil || len(servers) > 0 || len(images) != 1 {
		t.Fatalf("after the build there are %d servers and %d images: %v", len(servers), len(images), err)
	}
	server, _ := w.createFrom(images[0], "web-1", w.key)
	out, err := run("ansible all -i " + server.PublicNet.IPv4.IP.String() + ", -u root --private-key id --ssh-common-args " +
		"'-F none -o StrictHostKeyChecking=no -o UserKnownHostsFile=known' -m raw -a 'cat /etc/golden /etc/hostname'")
	if err != nil || !strings.Contains(out, "rc=0 >>\nb\nweb-1\n") {
		t.Errorf("ansible: %v\n%s", err, out)
	}
}

// clientFiles returns a folder with the files of clients, and the ports of the servers.
func (w *world) clientFiles() (string, map[int64]string) {
	w.Helper()
	dir := w.TempDir()
	block, err := ssh.MarshalPrivateKey(w.private, "")
	w.must(err)
	var known strings.Builder
	address := map[int64]string{}
	for _, g := range w.door.Guests() {
		host, port, err := net.SplitHostPort(g.Address)
		w.must(err)
		known.WriteString("[" + host + "]:" + port + " " + g.HostKey + "\n")
		address[g.Server] = port
	}
	random := bytes.Repeat([]byte("0123456789abcdef"), 40_000)
	for name, text := range map[string][]byte{"id": pem.EncodeToMemory(block), "known": []byte(known.String()), "up/a": random,
		"up/below/b": []byte("b\n"), "up/empty": nil,
		"batch": []byte("pwd\nput up/a /tmp/x\nrename /tmp/x /tmp/y\nchmod 600 /tmp/y\nmkdir z\nls -l /tmp\nrmdir z\nget /tmp/y y\n" +
			"rm /tmp/y\n")} {
		w.must(os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700))
		w.must(os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	return dir, address
}
