package doorstest_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestTheTranscriptOfTheDoors(t *testing.T) {
	t.Parallel()
	transcript(t, blocks(t, "console", t.Name()), "hcloud", "curl", "dig")
}

// TestExecFindsTheCloud has a server of fakecloud start, and another one that HCLOUD_ENDPOINT names.
func TestExecFindsTheCloud(t *testing.T) {
	t.Parallel()
	transcript(t, read(t, "testdata/exec.txt"))
}

func TestTheTranscriptOfAGuest(t *testing.T) {
	t.Parallel()
	transcript(t, blocks(t, "console", t.Name()), "hcloud", "ssh", "ssh-keygen")
}

// TestTheClientsOfOpenSSH runs Debian's ssh, scp in both protocols, sftp and sshpass.
func TestTheClientsOfOpenSSH(t *testing.T) {
	t.Parallel()
	transcript(t, read(t, "testdata/openssh.txt"), "hcloud", "ssh", "ssh-keygen", "scp", "sftp", "sshpass")
}

// TestACertificateIsIssued has an authority of the ACME protocol, pebble, check names in a zone of the cloud. The client is dehydrated,
// with a hook that knows only api.hetzner.cloud. Nothing leaves the machine.
func TestACertificateIsIssued(t *testing.T) {
	t.Parallel()
	transcript(t, blocks(t, "console", t.Name()), "curl", "openssl", "pebble", "dehydrated")
}

// TestACertificateIsIssuedToCertbot goes on after the other transcript.
func TestACertificateIsIssuedToCertbot(t *testing.T) {
	t.Parallel()
	transcript(t, blocks(t, "console", "TestACertificateIsIssued", t.Name()), "curl", "openssl", "pebble", "dehydrated", "certbot")
}

// TestPackerBuildsAnImageAndAnsibleUsesItsServer has guests at port 22. Most machines give that to root only.
func TestPackerBuildsAnImageAndAnsibleUsesItsServer(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.65.0.1:22")
	if err != nil {
		t.Skipf("guests cannot have port 22 here: %v", err)
	}
	_ = l.Close()
	transcript(t, blocks(t, "console", t.Name()), "hcloud", "ssh", "ssh-keygen", "packer", "ansible")
}

// TestAnsibleManagesAServerAndAVolume has a server of the CLI: Debian's module cannot create one, since Debian's python3-hcloud is too old.
func TestAnsibleManagesAServerAndAVolume(t *testing.T) {
	t.Parallel()
	transcript(t, read(t, "testdata/ansible.txt"), "hcloud", "ansible-playbook")
}

// need skips a test if a program is missing, or fails it if REQUIRE_PROGRAMS has that: a list of names, which CI sets.
func need(t *testing.T, program string, err error) {
	t.Helper()
	required := slices.Contains(strings.Fields(os.Getenv("REQUIRE_PROGRAMS")), program)
	if err != nil && required {
		t.Fatalf("%s is missing, and REQUIRE_PROGRAMS has it: %v", program, err)
	} else if err != nil {
		t.Skipf("%s is missing here, or too old; .github/workflows/nightly.yml has the packages of Debian: %v", program, err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks returns the blocks of DOORS.md that say that a test of these names runs them.
func blocks(t *testing.T, language string, names ...string) (all string) {
	t.Helper()
	for _, name := range names {
		block := regexp.MustCompile("(?s)<!-- run by " + name + " -->\n```" + language + "\n(.*?)```")
		for _, found := range block.FindAllStringSubmatch(read(t, "../../DOORS.md"), -1) {
			all += found[1]
		}
	}
	if all == "" {
		t.Fatalf("DOORS.md has no block of %v", names)
	}
	return all
}

var (
	times  = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	logins = regexp.MustCompile(` -p \d+ root@`)
)

// transcript runs the commands of a text in a shell, with free ports, and compares what they print. Times and the port of a guest are as
// on the page.
func transcript(t *testing.T, text string, programs ...string) {
	t.Helper()
	for _, program := range append(programs, "bash") {
		_, err := exec.LookPath(program)
		need(t, program, err)
	}
	home := t.TempDir()
	for name, block := range map[string]string{
		"build.json": blocks(t, "json", "TestPackerBuildsAnImageAndAnsibleUsesItsServer"),
		"rules.yaml": blocks(t, "yaml", "TestTheRulesOfThePage"), "hook.sh": read(t, "testdata/hook.sh"),
		"play.yaml": read(t, "testdata/play.yaml"),
	} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(block), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var ports []string
	for _, port := range []string{"4245", "5300", "14000"} { // of the page
		socket, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = socket.Close()
		_, free, _ := net.SplitHostPort(socket.Addr().String())
		ports = append(ports, port, free)
	}
	script, want := strings.Builder{}, ""
	for line := range strings.Lines(strings.NewReplacer(ports...).Replace(text)) {
		command, ok := strings.CutPrefix(line, "$ ")
		want += line
		if ok {
			fmt.Fprintf(&script, "cat <<'EOF'\n%sEOF\n%s", line, command)
		}
	}
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", read(t, "testdata/prelude.sh")+script.String())
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "HOME="+home, "HCLOUD_ENDPOINT=",
		"FAKECLOUD_LISTEN=127.0.0.1:0", "FAKECLOUD_CONTROL=127.0.0.1:0", "FAKECLOUD_STATE_FILE="+home+"/server.json", "HCLOUD_TOKEN=")
	out, err := cmd.CombinedOutput()
	got := strings.ReplaceAll(string(out), "\r", "")
	got = logins.ReplaceAllString(times.ReplaceAllString(got, "2026-11-29T01:50:10Z"), " -p 41749 root@")
	if err != nil || got != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
}

// binary builds the program once.
var binary = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "build", "-o", folder, "../../cmd/fakecloud").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("go build: %w\n%s", err, out)
	}
	return folder, err
})

var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "doors-"); err != nil {
		panic(err)
	}
	status := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(status)
}
